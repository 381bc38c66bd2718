// Clocks each call of a Relax virtual machine: the function that its `set_instrument` takes, before and after
// each. One in Python takes 3 to 10 microseconds a call, as long as a small model's functions do; this one some 50
// nanoseconds.
//
// As TVM's FFI calls it, whose headers are not here.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr int32_t kRawString = 8;   // of TVM's FFI: a pointer to characters
constexpr int32_t kSmallString = 11;  // characters in the value itself
constexpr int32_t kString = 65;       // an object whose pointer to characters comes after its header
constexpr int64_t kHeaderBytes = 24;
constexpr int32_t kGiven = 4;  // the function, its name, whether it is before the call, the result; then arguments

struct Any {  // TVMFFIAny
  int32_t type;
  uint32_t length;
  union {
    int64_t number;
    const char* pointer;
    char characters[8];
  };
};

using Safe = int (*)(void*, const Any*, int32_t, Any*);  // TVMFFISafeCallType

struct Event {
  int64_t start, stop;  // nanoseconds
  int64_t again;        // nanoseconds of a second call with the same arguments; -1 without one
  int32_t name, parent;  // index of its name; of the call that made it, -1 without one
};

std::vector<Event> events;
std::vector<int32_t> open;
std::vector<std::string> names;
std::unordered_map<std::string, int32_t> places;
bool repeated = false;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

const char* Text(const Any& value) {
  if (value.type == kRawString) return value.pointer;
  if (value.type == kSmallString) return value.characters;
  if (value.type == kString) return *reinterpret_cast<const char* const*>(value.pointer + kHeaderBytes);
  return "?";
}

int32_t Place(const Any& value) {
  auto [found, fresh] = places.emplace(Text(value), static_cast<int32_t>(names.size()));
  if (fresh) names.push_back(found->first);
  return found->second;
}

// TVM's own functions have a point in their names, and may not be called twice: an allocation, a copy.
bool Compiled(int32_t name) { return names[name].find('.') == std::string::npos; }

}  // namespace

extern "C" {

#define SEEN __attribute__((visibility("default")))

SEEN void wmsched_calls_begin(int64_t capacity, int32_t again) {
  events.clear();
  events.reserve(capacity);
  open.clear();
  repeated = again != 0;
}

SEEN int64_t wmsched_calls_count() { return static_cast<int64_t>(events.size()); }
SEEN const Event* wmsched_calls_events() { return events.data(); }
SEEN int32_t wmsched_calls_names() { return static_cast<int32_t>(names.size()); }
SEEN const char* wmsched_calls_name(int32_t place) { return names[place].c_str(); }

SEEN int __tvm_ffi_wmsched_call_times(void*, const Any* given, int32_t count, Any* result) {
  result->type = 1;  // an integer: 0 goes on, by relax.VMInstrumentReturnKind
  result->length = 0;
  result->number = 0;
  if (count < kGiven) return 0;
  if (given[2].number) {
    int32_t parent = open.empty() ? -1 : open.back();
    open.push_back(static_cast<int32_t>(events.size()));
    events.push_back({0, 0, -1, Place(given[1]), parent});
    events.back().start = Now();
    return 0;
  }
  int64_t stop = Now();
  if (open.empty()) return 0;
  int32_t place = open.back();
  open.pop_back();
  events[place].stop = stop;
  bool leaf = place + 1 == static_cast<int32_t>(events.size());
  if (repeated && leaf && Compiled(events[place].name)) {
    const char* function = given[0].pointer;
    Safe call = *reinterpret_cast<const Safe*>(function + kHeaderBytes);
    Any ignored;
    std::memset(&ignored, 0, sizeof(ignored));
    int64_t start = Now();
    if (call(const_cast<char*>(function), given + kGiven, count - kGiven, &ignored) == 0) {
      events[place].again = Now() - start;
    }
  }
  return 0;
}

// Nanoseconds that it adds to a call that it clocks: the least of some, of a call of nothing.
SEEN int64_t wmsched_calls_cost() {
  std::vector<Event> kept;
  kept.swap(events);
  wmsched_calls_begin(256, 0);
  Any given[kGiven];
  std::memset(given, 0, sizeof(given));
  given[1].type = kRawString;
  given[1].pointer = "cost.";
  Any result;
  int64_t least = INT64_MAX;
  for (int k = 0; k < 256; ++k) {
    given[2].number = 1;
    __tvm_ffi_wmsched_call_times(nullptr, given, kGiven, &result);
    given[2].number = 0;
    __tvm_ffi_wmsched_call_times(nullptr, given, kGiven, &result);
    int64_t spent = events.back().stop - events.back().start;
    if (spent < least) least = spent;
  }
  events.swap(kept);
  return least;
}
}
