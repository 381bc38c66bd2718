// GPU columns: grid, work and memory of a block of threads, as `trace_features._gpu`.
#ifndef WMSCHED_GPU_H_
#define WMSCHED_GPU_H_

#include "columns.h"

namespace wmsched {

// Facts about a target from its `HardwareParams`.
struct Machine {
  double cores, warp, shared_limit;
  double threads;  // that programs run on
};

// The columns stay missing if the main block runs on no grid.
inline void FillGpu(const Nest& nest, const Block& main, const Machine& machine, Columns* out) {
  Columns& row = *out;
  for (int k = k_gpu_threads; k <= k_gpu_flops_per_byte; ++k) row[k] = std::numeric_limits<double>::quiet_NaN();
  Loops loops = main.nest;
  loops.insert(loops.end(), main.tail.begin(), main.tail.end());
  auto bound = [](const Loop* loop) { return IsBound(loop->annotation); };
  if (std::none_of(loops.begin(), loops.end(), bound)) return;
  auto volume = [](const Loops& all, auto&& counts) {
    double total = 1.0;
    for (const Loop* loop : all)
      if (counts(loop)) total *= double(std::max<Number>(1, loop->extent));
    return total;
  };
  auto all = [](const Loop*) { return true; };
  auto ours = [&](const Loop* loop) { return bound(loop) && Holds(loops, loop); };
  double blocks = volume(loops, [](auto* loop) { return IsGrid(loop->annotation); });
  double vthreads = volume(loops, [](auto* loop) { return loop->annotation == kVthread; });
  std::array<Number, kThreadZ + 1> across{};  // the last loop of each kind of thread index
  double shared = 0, local = 0, rounds = 0;
  Number fetch = 0;
  for (const Block* block : nest.blocks) {
    if (block != &main && std::none_of(block->nest.begin(), block->nest.end(), ours)) continue;  // another kernel's
    for (const Loop* loop : block->nest)
      if (IsThread(loop->annotation)) across[loop->annotation] = loop->extent;
    if (block->inlined || block->role != Role::kCacheRead) continue;
    Loops own;
    for (const Loops* part : {&block->nest, &block->tail})
      for (Loop* loop : *part)
        if (loop->owner == block) own.push_back(loop);
    if (block->writes->Shared()) {
      shared += volume(own, all) * double(block->writes->bytes);
      rounds += volume(own, [](auto* loop) {
        return !IsThread(loop->annotation) && loop->annotation != kVthread && loop->annotation != kVectorize;
      });
      fetch = std::max(fetch, block->fetch);
    } else if (block->writes->scope == "local") {
      local += volume(own, all);
    }
  }
  double threads = 1.0;
  for (Number extent : across) threads *= double(std::max<Number>(1, extent));
  local += volume(loops, [&](auto* loop) { return loop->kind == 'S' && !bound(loop); });
  Number steps = 1;
  for (const Loop* loop : main.nest)
    if (loop->kind == 'R') {
      steps = loop->extent;
      break;
    }
  double work = volume(loops, all), moved = shared * double(std::max<Number>(1, steps));
  double warps = std::ceil(threads / machine.warp);
  row[k_gpu_threads] = Log(threads);
  row[k_gpu_blocks] = Log(blocks);
  row[k_gpu_vthreads] = Log(vthreads);
  row[k_gpu_waves] = std::log2(1 + blocks / std::max(1.0, machine.cores));
  row[k_gpu_warps] = Log(warps);
  row[k_gpu_warp_full] = threads / (warps * machine.warp);
  row[k_gpu_thread_work] = Log(work / std::max(1.0, blocks * threads));
  row[k_gpu_shared_bytes] = Log(shared);
  row[k_gpu_shared_share] = shared / machine.shared_limit;
  row[k_gpu_local_elements] = Log(local);
  row[k_gpu_reduce_steps] = Log(double(steps));
  row[k_gpu_fetch_vector] = double(fetch);
  row[k_gpu_fetch_rounds] = Log(rounds);
  if (moved > 0) row[k_gpu_flops_per_byte] = std::log2(2 * (work / std::max(1.0, blocks)) / moved);
}

}  // namespace wmsched

#endif  // WMSCHED_GPU_H_
