// Loop bodies for test_parallel_launch.py, as TVM's generated code has them.
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

struct Group {
  void* sync_handle;
  int32_t num_task;
};
using Body = int (*)(int, Group*, void*);
using Launch = int (*)(Body, void*, int);

struct Data {
  Launch launch;
  int64_t extent;     // iterations
  int64_t spin;       // of each
  std::atomic<int>* seen;
  int failing;        // a part; -1: none
  std::atomic<int> most_parts;
  std::atomic<int> inner;
};

extern "C" {

int divide(int part, Group* group, void* given) {
  auto* data = static_cast<Data*>(given);
  int before = data->most_parts.load();
  while (before < group->num_task && !data->most_parts.compare_exchange_weak(before, group->num_task)) {}
  int64_t step = (data->extent + group->num_task - 1) / group->num_task;
  for (int64_t i = part * step; i < (part + 1) * step && i < data->extent; ++i) {
    data->seen[i].fetch_add(1);
    for (int64_t turn = 0; turn < data->spin; ++turn) asm volatile("" ::: "memory");
  }
  return part == data->failing ? 7 : 0;
}

int add_part(int, Group*, void* given) {
  static_cast<Data*>(given)->inner.fetch_add(1);
  return 0;
}

int nest(int part, Group* group, void* given) {
  auto* data = static_cast<Data*>(given);
  return divide(part, group, given) + data->launch(add_part, given, 3);
}

int doze(int part, Group* group, void* given) {
  usleep(20000);
  return divide(part, group, given);
}

// Launch `body` so many times; launches that failed, or after which an iteration was not done exactly once.
int drive(Launch launch, Body body, int64_t extent, int64_t spin, int tasks, int failing, int launches, int* found) {
  int bad = 0;
  auto* seen = new std::atomic<int>[extent];
  Data data{launch, extent, spin, seen, failing, {0}, {0}};
  for (int k = 0; k < launches; ++k) {
    for (int64_t i = 0; i < extent; ++i) seen[i] = 0;
    bool wrong = launch(body, &data, tasks) != 0;
    for (int64_t i = 0; i < extent; ++i) wrong = wrong || seen[i] != 1;
    bad += wrong;
  }
  found[0] = data.most_parts;
  found[1] = data.inner;
  delete[] seen;
  return bad;
}
}
