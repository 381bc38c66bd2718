// Which way contended launches go, for test_launch_ways.py: of loops that take 1 ms by one thread.
#include "launch_sites.h"

extern "C" {

void start() {
  ticks_per_us = 1000;
  ways = {{}, 0, 0, true};
}

// So many launches, by speeds alone and shared; found: those that were shared, and the most in succession that
// went the slower way.
void drive(int launches, double alone, double shared, int* found) {
  found[0] = found[1] = 0;
  int others = 0;
  static uint64_t now = 1;
  for (int i = 0; i < launches; ++i) {
    bool chosen = ChooseWay(now);
    auto taken = static_cast<uint64_t>(1e6 / (chosen ? shared : alone));
    now += taken;
    Note(chosen, 1'000'000, taken);
    found[0] += chosen;
    others = chosen == (shared > alone) ? 0 : others + 1;
    found[1] = std::max(found[1], others);
  }
}

}
