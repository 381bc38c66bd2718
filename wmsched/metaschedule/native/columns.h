// Columns of phi from a trace's nest: `trace_nest.as_stages`, `step_features` and `trace_features` in C++.
#ifndef WMSCHED_COLUMNS_H_
#define WMSCHED_COLUMNS_H_

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "columns_enum.h"
#include "nest.h"

namespace wmsched {

using Columns = std::array<double, kColumns>;

inline double Log(double x) { return x > 0 ? std::log2(1.0 + x) : 0.0; }

// A block as an AutoScheduler stage.
struct StageView {
  Block* block;
  Loops loops;
  int at = -1;  // the stage it is computed at
  size_t place = 0;
  double around = 1;  // iterations of outer loops that are not in `loops`

  double Work() const { return Volume(loops.begin(), loops.end()); }
  Number Vector() const {
    Number most = 0;
    for (const Loop* loop : loops)
      if (loop->annotation == kVectorize) most = std::max(most, loop->extent);
    return most;
  }
  // Extent of the innermost vectorized loop, or 1.
  double Lanes() const {
    for (size_t k = loops.size(); k-- > 0;)
      if (loops[k]->annotation == kVectorize) return double(loops[k]->extent);
    return 1;
  }
  bool Any(int annotation) const {
    return std::any_of(loops.begin(), loops.end(), [&](const Loop* loop) { return loop->annotation == annotation; });
  }
  template <typename It>
  static double Volume(It begin, It end) {
    double total = 1.0;
    for (; begin != end; ++begin) total *= double(std::max<Number>(1, (*begin)->extent));
    return total;
  }
};

class View {
 public:
  explicit View(const Nest& nest) : nest_(nest) {
    for (Block* block : nest.blocks) {
      if (block->role == Role::kInit || block->role == Role::kBefore) continue;
      stages_.push_back({block, block->nest});
      stages_.back().loops.insert(stages_.back().loops.end(), block->tail.begin(), block->tail.end());
    }
    for (size_t k = 0; k < stages_.size(); ++k) Attach(int(k));
  }

  // The stage of phi's cache model.
  const StageView* Heaviest() const {
    const StageView* main = nullptr;
    double most = 0;
    for (const StageView* stage : Computing()) {
      bool reduces = !stage->block->vague && !stage->block->source->reads.empty() &&
                     std::any_of(stage->loops.begin(), stage->loops.end(), [](auto* x) { return x->kind == 'R'; });
      double total = 1.0;
      for (const Iterator& it : stage->block->source->iterators) total *= double(it.extent);
      total *= reduces ? 4 : 1;
      if (main == nullptr || total > most) main = stage, most = total;
    }
    return main;
  }

  // Fill the columns that do not depend on the loops of `main`, the heaviest stage; return its block.
  const Block* Fill(const StageView* main, double cores, double threads, Columns* out) const {
    Structure(cores, out);
    (*out)[k_parallel_slowdown] = Slowdown(threads);
    Annotations(out);
    Neighbours(main, cores, out);
    return Trace(out);
  }

 private:
  // Stages that compute; the inlined ones only if there are no others.
  Vector<const StageView*> Computing() const {
    Vector<const StageView*> all, live;
    for (const StageView& stage : stages_)
      if (stage.block->source != nullptr) {
        all.push_back(&stage);
        if (!stage.block->inlined) live.push_back(&stage);
      }
    return live.empty() ? all : live;
  }

  void Attach(int number) {
    StageView& stage = stages_[number];
    Block* block = stage.block;
    if (block->inlined || block->at == nullptr || !Holds(block->nest, block->at)) return;
    int partner = Partner(block);
    if (partner < 0) return;
    size_t place = PlaceOf(block->nest, block->at);
    if (block->into) {
      stage.at = partner;
      stage.place = place;
      stage.loops.assign(block->nest.begin() + place + 1, block->nest.end());
      stage.loops.insert(stage.loops.end(), block->tail.begin(), block->tail.end());
      stage.around = StageView::Volume(block->nest.begin(), block->nest.begin() + place + 1);
    } else if (stages_[partner].at < 0) {
      stages_[partner].at = number;
      stages_[partner].place = place;
    }
  }

  int Partner(const Block* block) const {
    int other = -1;
    for (size_t k = 0; k < stages_.size(); ++k) {
      const Block* each = stages_[k].block;
      if (each == block || each->inlined || !Holds(each->nest, block->at)) continue;
      if (other < 0) other = int(k);
      bool linked = block->into ? each->OwnFrom() <= PlaceOf(each->nest, block->at)
                                : Nest::ReadsOf(block, each->writes);
      if (linked) return int(k);
    }
    return other;
  }

  // As `parallel.slowdown`.
  double Slowdown(double threads) const {
    if (threads <= 1) return 0.0;
    double total = 0, spent = 0;
    for (const StageView& stage : stages_) {
      if (stage.block->inlined) continue;
      double work = stage.Work() * stage.around / std::min(std::max(1.0, stage.Lanes()), 16.0);
      double extent = std::max(1.0, SharedBy(stage));
      total += work;
      spent += work * std::ceil(extent / threads) / extent;
    }
    return total > 0 ? std::log2(threads * spent / total) : 0.0;
  }

  // Iterations of the parallel loop around a stage, its own or an outer stage's; or 1.
  double SharedBy(const StageView& stage) const {
    const StageView* at = &stage;
    for (int k = 0; k < 64 && at != nullptr; ++k) {
      for (const Loop* loop : at->loops)
        if (loop->annotation == kParallel) return double(loop->extent);
      at = at->at >= 0 ? &stages_[at->at] : nullptr;
    }
    return 1;
  }

  void Structure(double cores, Columns* out) const {
    Columns& row = *out;
    double inlined = 0, roots = 0, live = 0, caches = 0, factored = 0, best = 0, root_work = 0, serial = 0, total = 0;
    double vectorized = 0, unroll = 0;
    for (const StageView& stage : stages_) {
      const Block* block = stage.block;
      caches += block->source == nullptr && block->role == Role::kCacheRead;
      factored += block->role == Role::kRFactor;
      if (block->inlined) {
        ++inlined;
        continue;
      }
      ++live;
      double work = stage.Work();
      total += work;
      if (stage.Vector()) vectorized += work;
      unroll = std::max(unroll, double(block->unroll));
      for (const Loop* loop : stage.loops)
        if (loop->annotation == kParallel) best = std::max(best, double(loop->extent));
      if (stage.at >= 0) continue;
      ++roots;
      root_work += work;
      if (!stage.Any(kParallel)) serial += work;
    }
    double waves = best > 0 ? std::ceil(best / cores) : 0.0;
    row[k_stages] = double(stages_.size() + nest_.arguments.size());
    row[k_inlined] = inlined;
    row[k_roots] = roots;
    row[k_attached] = live - roots;
    row[k_cache_stages] = caches;
    row[k_rfactor] = factored;
    row[k_parallel_max] = Log(best);
    row[k_parallel_balance] = waves > 0 ? best / (waves * cores) : 0.0;
    row[k_parallel_waves] = Log(waves);
    row[k_serial_root_share] = serial / (root_work > 0 ? root_work : 1.0);
    row[k_unroll_max] = Log(unroll);
    row[k_vector_stage_share] = vectorized / (total > 0 ? total : 1.0);
  }

  void Annotations(Columns* out) const {
    Columns& row = *out;
    for (int column : {k_count_PR, k_count_ann_unroll, k_count_ann_vectorize, k_count_ann_parallel,
                       k_count_ann_vthread, k_count_ann_bind})
      row[column] = 0;
    for (const Block* block : nest_.blocks) {
      row[k_count_PR] += block->unroll > 0;
      Loops seen;
      for (const Loops* loops : {&block->nest, &block->tail})
        for (const Loop* loop : *loops) {
          if (loop->owner != block || loop->annotation == 0 || Holds(seen, loop)) continue;
          seen.push_back(const_cast<Loop*>(loop));
          if (loop->annotation == kUnroll) ++row[k_count_ann_unroll];
          if (loop->annotation == kVectorize) ++row[k_count_ann_vectorize];
          if (loop->annotation == kParallel) ++row[k_count_ann_parallel];
          if (loop->annotation == kVthread) ++row[k_count_ann_vthread];
          if (IsBound(loop->annotation)) ++row[k_count_ann_bind];
        }
    }
    for (size_t k = 0; k < 8; ++k)
      row[k_split_0 + k] =
          k < nest_.splits.size() ? Log(double(nest_.splits[k])) : std::numeric_limits<double>::quiet_NaN();
  }

  void Neighbours(const StageView* main, double cores, Columns* out) const {
    Columns& row = *out;
    const StageView* consumer = main->at >= 0 ? &stages_[main->at] : nullptr;
    row[k_main_attached] = consumer != nullptr;
    row[k_main_vector_last_axis] = LastAxis(*main);
    for (int column : {k_consumer_vector, k_consumer_tile, k_consumer_inner, k_consumer_contiguous, k_tile_per_core,
                       k_register_loads_per_iteration})
      row[column] = std::numeric_limits<double>::quiet_NaN();
    if (consumer != nullptr) {
      const Loops& loops = consumer->loops;
      double inside = StageView::Volume(loops.begin() + std::min(main->place + 1, loops.size()), loops.end());
      double own = 1.0;
      for (size_t k = main->loops.size(); k-- > 0 && main->loops[k]->kind == 'S';)
        own *= double(std::max<Number>(1, main->loops[k]->extent));
      row[k_consumer_vector] = Log(double(consumer->Vector()));
      row[k_consumer_tile] = Log(inside);
      row[k_consumer_inner] = Log(loops.empty() ? 0.0 : double(loops.back()->extent));
      row[k_consumer_contiguous] = !loops.empty() && loops.back()->annotation == kVectorize;
      row[k_tile_per_core] = Log(inside * cores);
      row[k_register_loads_per_iteration] = own / std::max(1.0, inside);
    }
    double helpers = 0, roots = 0, recompute = 0, vectors = 0;
    for (const StageView* stage : Computing()) {
      if (stage == main || stage == consumer) continue;
      ++helpers;
      vectors += stage->Vector() != 0;
      if (stage->at < 0) {
        ++roots;
        continue;
      }
      const Loops& loops = stages_[stage->at].loops;
      recompute = std::max(
          recompute, StageView::Volume(loops.begin(), loops.begin() + std::min(stage->place + 1, loops.size())));
    }
    row[k_helper_roots] = roots;
    row[k_helper_attached] = helpers - roots;
    row[k_helper_recompute] = Log(recompute);
    row[k_helper_vector_share] = helpers > 0 ? vectors / helpers : 0.0;
  }

  static bool LastAxis(const StageView& main) {
    int last = -1;
    const auto& iterators = main.block->source->iterators;
    for (size_t k = 0; k < iterators.size(); ++k)
      if (iterators[k].kind == 'S') last = int(k);
    for (size_t k = main.loops.size(); k-- > 0;) {
      if (main.loops[k]->annotation != kVectorize) continue;
      const auto& parts = main.loops[k]->parts;
      return std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return part.iterator == last; });
    }
    return false;
  }

  // The columns that only traces have.
  const Block* Trace(Columns* out) const {
    Columns& row = *out;
    bool known = true;
    double blocks = 0, inits = 0, most = -1;
    const Block* main = nullptr;
    for (const Block* block : nest_.blocks) {
      inits += block->role == Role::kInit;
      if (block->inlined) continue;
      ++blocks;
      for (const Loop* loop : block->nest) known &= loop->extent != 0;
      if (block->source == nullptr || (block->role != Role::kCompute && block->role != Role::kRFactor)) continue;
      double work = 1.0;
      bool reduces = false;
      for (const Iterator& it : block->source->iterators) {
        work *= double(it.extent);
        reduces |= it.kind == 'R';
      }
      work *= !block->reads.empty() && reduces ? 4 : 1;
      if (work > most) main = block, most = work;
    }
    if (main == nullptr || main->vague) throw Unsupported();
    row[k_trace_known] = known;
    row[k_trace_blocks] = blocks;
    row[k_trace_decomposed] = inits;
    double volume = 1.0;
    bool tensorized = false;
    for (const Loops* loops : {&main->nest, &main->tail})
      for (const Loop* loop : *loops)
        if (loop->annotation == kTensorize) tensorized = true, volume *= double(std::max<Number>(1, loop->extent));
    row[k_trace_tensorize_volume] = tensorized ? Log(volume) : 0.0;
    Set<String> intrinsics;
    for (const Block* block : nest_.blocks)
      if (!block->intrinsic.empty()) intrinsics.insert(block->intrinsic);
    row[k_trace_intrinsics] = double(intrinsics.size());
    row[k_trace_decomposed_inside] = row[k_trace_decomposed_copies] = std::numeric_limits<double>::quiet_NaN();
    for (const Block* mine : nest_.blocks) {
      if (mine->role != Role::kInit) continue;
      String name = mine->name;
      if (name.size() >= 5 && name.compare(name.size() - 5, 5, "_init") == 0) name.resize(name.size() - 5);
      if (name + "_update" != main->name) continue;
      size_t shared = 0;
      for (const Loop* loop : mine->nest) shared += Holds(main->nest, loop);
      auto volume = [](const Loops& loops, size_t from, size_t to) {
        return StageView::Volume(loops.begin() + std::min(from, loops.size()),
                                 loops.begin() + std::min(to, loops.size()));
      };
      row[k_trace_decomposed_inside] = Log(volume(main->nest, shared, main->nest.size()));
      row[k_trace_decomposed_copies] = Log(volume(mine->nest, 0, shared));
      break;
    }
    return main;
  }

  const Nest& nest_;
  Vector<StageView> stages_;
};

}  // namespace wmsched

#endif  // WMSCHED_COLUMNS_H_
