// MetaSchedule's CPU postprocessors, simulated, and TVM's corrections of compute locations.
#ifndef WMSCHED_PROCESSORS_H_
#define WMSCHED_PROCESSORS_H_

#include <limits>
#include <vector>

#include "columns.h"
#include "layouts.h"

namespace wmsched {

// Facts that the CPU postprocessors use and a workload's stages lack; see `cpu_postproc.CpuProgram`.
struct CpuProgram {
  std::vector<int> rewritten;                         // stages of the arguments whose layout is free
  std::vector<std::vector<Vector<Number>>> offsets;  // by stage, read and dimension
};

// The root block's annotations; below 0: none.
struct Asked {
  Number parallel = -1, vectorize = -1, unroll_explicit = -1, unroll_implicit = -1;

  // The field of a key; null for any other key.
  Number* At(const String& key) {
    if (key == "meta_schedule.parallel") return &parallel;
    if (key == "meta_schedule.vectorize") return &vectorize;
    if (key == "meta_schedule.unroll_explicit") return &unroll_explicit;
    if (key == "meta_schedule.unroll_implicit") return &unroll_implicit;
    return nullptr;
  }
};

inline bool Reduces(const Block* block) {
  return std::any_of(block->iterators.begin(), block->iterators.end(), [](auto& it) { return it.kind != 'S'; });
}

inline Vector<Block*> Live(const Vector<Block*>& blocks) {
  Vector<Block*> found;
  for (Block* block : blocks)
    if (!block->inlined) found.push_back(block);
  return found;
}

// TVM's correction of a compute location: the last one that it allows up to the decision. -2 is inline, -1 the root,
// others are loops of the first consumer's nest.
inline Number Settled(const Nest& nest, const Block* block, Number decision) {
  auto consumers = nest.Consumers(block);
  if (consumers.empty()) return -1;
  bool inlines = block->role == Role::kCompute && block->source != nullptr && !Reduces(block);
  if (decision < -1) return inlines && decision == -2 ? -2 : -1;
  const Loops& loops = consumers[0]->nest;
  size_t shared = loops.size();
  int last = -1;  // the innermost spatial loop
  for (const Block* each : consumers) {
    size_t k = 0;
    while (k < shared && k < each->nest.size() && each->nest[k] == loops[k]) ++k;
    shared = k;
  }
  for (size_t k = 0; k < shared; ++k)
    if (loops[k]->kind == 'S') last = int(k);
  Number found = -1;
  bool reduced = false;
  for (size_t k = 0; k < shared && Number(k) <= decision; ++k) {
    if (loops[k]->extent == 0) throw Unsupported();
    if (loops[k]->extent == 1) continue;
    if (loops[k]->kind == 'S' ? reduced : int(k) > last) break;
    reduced |= loops[k]->kind != 'S';
    found = Number(k);
  }
  return found;
}

// The postprocessors decide on the exact nest, and change it and the followed nest that the columns come from.
class CpuProcessors {
 public:
  CpuProcessors(Nest* exact, Nest* followed, Columns* columns, const Asked& asked, const CpuProgram& program)
      : nest_(exact), followed_(followed), columns_(*columns), asked_(asked), program_(program) {}

  // Return whether the last instruction leaves the program unchanged.
  bool Apply() {
    bool pure = RewriteAnnotations();
    for (Block* block : Live(nest_->blocks))
      if (Reduces(block) && Decompose(block)) pure = false;
    for (int stage : program_.rewritten)
      if (RewriteLayout(nest_->of_stage.at(size_t(stage)))) pure = false;
    return pure;
  }

 private:
  struct Plan {
    int parallel = -1, vectorize = -1;  // indices of loops; below 0: none
    Number unroll = 0;
  };

  // RewriteParallelVectorizeUnroll
  bool RewriteAnnotations() {
    int asked = 0;
    for (Number value : {asked_.parallel, asked_.vectorize, asked_.unroll_explicit, asked_.unroll_implicit})
      asked += value != -1;
    if (asked == 0) return true;
    columns_[k_steps] += asked;  // Unannotate
    bool pure = false;
    auto blocks = Live(nest_->blocks), followed = Live(followed_->blocks);
    if (followed.size() < blocks.size()) throw Unsupported();
    for (size_t n = 0; n < blocks.size(); ++n) {
      const Loops loops = blocks[n]->nest;
      if (!blocks[n]->tail.empty()) throw Unsupported();
      const Loops seen = LoopsOf(followed_, followed[n], loops.size());
      Plan plan = loops.empty() ? Plan() : PlanOf(blocks[n]);
      Carry(nest_, loops, plan, nullptr);
      double before = columns_[k_steps];
      Carry(followed_, seen, plan, &columns_);
      pure = columns_[k_steps] == before;
    }
    return pure;
  }

  void Carry(Nest* nest, const Loops& loops, const Plan& plan, Columns* columns) const {
    auto count = [&](Column column) {
      if (columns != nullptr) ++(*columns)[column], ++(*columns)[k_steps];
    };
    auto fuse = [&](size_t from, size_t to) {
      count(k_count_FU);
      return Fuse(nest, Loops(loops.begin() + from, loops.begin() + to));
    };
    auto mark = [&](Loop* loop, int annotation) {
      loop->annotation = annotation;
      count(k_count_AN);
      return loop;
    };
    size_t all = loops.size();
    if (all == 0) return;
    Loop* first = loops[0];
    if (plan.parallel == int(all) && plan.vectorize == int(all)) {
      Loop* fused = fuse(0, all);
      count(k_count_SP);
      Loops parts = Split(nest, fused, {0, asked_.vectorize}, 0);
      mark(parts[0], kParallel);
      mark(parts[1], kVectorize);
      first = parts[all > 1 ? 0 : 1];
    } else {
      if (plan.parallel > 0) first = mark(fuse(0, size_t(plan.parallel)), kParallel);
      if (plan.vectorize > 0) {
        Loop* fused = mark(fuse(all - size_t(plan.vectorize), all), kVectorize);
        if (plan.vectorize == int(all)) first = fused;
      }
    }
    if (plan.unroll <= 0) return;
    for (Block* each : nest->Under(first)) each->unroll = std::max(each->unroll, plan.unroll);
    first->noted = true;
    if (columns != nullptr) (*columns)[k_steps] += 2;  // two annotations: length, and explicit
  }

  // RewriteReductionBlock; return whether it decomposed the block.
  bool Decompose(Block* block) {
    auto reduces = [](const Loop* loop) { return loop->kind != 'S'; };
    size_t place = size_t(std::find_if(block->nest.begin(), block->nest.end(), reduces) - block->nest.begin());
    if (place == block->nest.size()) return false;
    Block* followed = Named(*followed_, block->name);
    const Loops& seen = LoopsOf(followed_, followed, block->nest.size());
    DecomposeReduction(followed_, followed, seen[place]);
    DecomposeReduction(nest_, block, block->nest[place]);
    ++columns_[k_steps];
    return true;
  }

  static bool Taken(const Loop* loop) { return loop->noted || IsBound(loop->annotation); }

  // Whether the loop directly contains a single loop or block.
  bool Single(const Loop* loop) const {
    const Loop* inside = nullptr;
    bool first = true;
    for (const Block* block : nest_->Under(loop)) {
      size_t place = PlaceOf(block->nest, loop) + 1;
      const Loop* next = place < block->nest.size() ? block->nest[place] : nullptr;
      if (!first && (next == nullptr || next != inside)) return false;
      inside = next;
      first = false;
    }
    return true;
  }

  Plan PlanOf(const Block* block) const {
    Plan plan;
    if (Reduces(block)) plan.unroll = asked_.unroll_explicit + asked_.unroll_implicit + 1;
    if (asked_.parallel == -1 && asked_.vectorize == -1) return plan;
    const Loops& loops = block->nest;
    int all = int(loops.size());
    for (const Loop* loop : loops)
      if (loop->extent <= 0) throw Unsupported();
    int fusible = Fusible(block);
    if (asked_.parallel != -1) {
      Number volume = 1;
      plan.parallel = 0;
      for (int k = 0; k < all && loops[k]->kind == 'S' && !Taken(loops[k]); ++k) {
        ++plan.parallel;
        volume = Times(volume, loops[k]->extent);
        if (volume > asked_.parallel || !Single(loops[k])) break;
      }
      if (volume == 1) plan.parallel = -1;
    }
    if (asked_.vectorize != -1) {
      Number volume = 1;
      plan.vectorize = 0;
      for (int k = all; k-- > 0 && loops[k]->kind == 'S' && plan.vectorize < fusible;) {
        if (Taken(loops[k]) || !Single(loops[k])) break;
        volume = Times(volume, loops[k]->extent);
        if (volume > asked_.vectorize) break;
        ++plan.vectorize;
      }
      if (volume == 1) plan.vectorize = -1;
    }
    if (plan.parallel != -1 && plan.vectorize != -1) {
      auto rewritable = [&](const Loop* loop) { return loop->kind == 'S' && !Taken(loop) && Single(loop); };
      if (fusible == all && std::all_of(loops.begin(), loops.end(), rewritable))
        plan.parallel = plan.vectorize = all;
      else
        plan.parallel = std::min(plan.parallel, all - plan.vectorize);
    }
    return plan;
  }

  // Number of innermost loops that walk through memory without gaps, for all reads and writes of the block.
  int Fusible(const Block* block) const {
    int least = std::numeric_limits<int>::max();
    for (const Read& read : block->reads)
      if (read.buffer != block->writes) least = std::min(least, Fusible(block, *read.dims, read.offsets, *read.buffer));
    Dims written;
    for (int k : block->Spatial()) written.push_back({{k, 1}});
    return std::min(least, Fusible(block, written, nullptr, *block->writes));
  }

  int Fusible(const Block* block, const Dims& dims, const Vector<Number>* offsets, const Buffer& buffer) const {
    if (dims.size() != buffer.shape.size()) throw Unsupported();
    const Loops& loops = block->nest;
    int fusible = 0, used = -1;
    for (int k = int(loops.size()); k-- > 0; ++fusible) {
      Number stride = Stride(block, loops[k], dims, offsets, buffer.shape);
      if (stride == 0) continue;
      if (used < 0 ? stride != 1 && fusible != 0
                   : stride != Times(Stride(block, loops[used], dims, offsets, buffer.shape), loops[used]->extent))
        break;
      used = k;
    }
    return fusible;
  }

  // Distance in memory of a step of the loop; 0 if TVM finds none.
  static Number Stride(const Block* block, const Loop* loop, const Dims& dims, const Vector<Number>* offsets,
                       const Vector<Number>& shape) {
    Number inside = 1;
    for (size_t d = dims.size(); d-- > 0;) {
      // TVM takes no coefficients from a difference.
      bool seen = offsets == nullptr || d >= offsets->size() || (*offsets)[d] >= 0;
      Number sum = 0;
      for (auto [it, coefficient] : dims[d]) {
        if (coefficient < 0) throw Unsupported();
        if (seen && coefficient != 0) sum += Times(coefficient, block->Step(loop, it));
      }
      if (sum != 0) return Times(sum, inside);
      if (shape[d] == 0) throw Unsupported();
      inside = Times(inside, shape[d]);
    }
    return 0;
  }

  struct Piece {  // of an index: a loop, or its remainder after a division
    size_t loop;
    Number inside, extent;
    size_t first, last;  // its dimensions
  };

  // RewriteLayout: give an argument the layout in which it is read. Return whether that happened.
  bool RewriteLayout(Buffer* buffer) {
    Block* reader = nullptr;
    const Read* read = nullptr;
    for (Block* block : Live(nest_->blocks))
      for (const Read& each : block->reads) {
        if (each.buffer != buffer) continue;
        if (read != nullptr) throw Unsupported();
        reader = block, read = &each;
      }
    if (read == nullptr) return false;
    if (!Reduces(reader) && reader->reads.size() == 1) throw Unsupported();  // a chain of copies
    Vector<Piece> pieces = Pieces(reader, *read, buffer->shape);
    if (pieces.empty()) return false;
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return a.loop != b.loop ? a.loop < b.loop : a.inside > b.inside;
    });
    Vector<Number> shape;
    Vector<int> turned;
    for (const Piece& piece : pieces) {
      shape.push_back(piece.extent);
      if (piece.first == piece.last && piece.extent == buffer->shape[piece.first]) turned.push_back(int(piece.first));
    }
    if (pieces.size() != buffer->shape.size() || turned.size() != pieces.size()) turned.clear();
    Number place = Number(read - reader->reads.data()) + reader->decomposed;
    for (Nest* nest : {nest_, followed_}) {
      Block* block = nest == nest_ ? reader : Named(*followed_, reader->name);
      Block* copy = CacheRead(nest, block, place, "global", {});
      copy->role = Role::kBefore;
      TransformLayout(nest, ReadAt(block, place - block->decomposed).buffer, shape, turned);
    }
    ++columns_[k_count_CHR];
    ++columns_[k_trace_layout];
    columns_[k_steps] += 3;
    return true;
  }

  static Vector<Piece> Pieces(const Block* block, const Read& read, const Vector<Number>& shape) {
    if (read.dims->size() != shape.size()) throw Unsupported();
    for (const Loop* loop : block->nest)
      if (loop->owner != block) throw Unsupported();
    Vector<Piece> pieces;
    for (size_t d = 0; d < shape.size(); ++d) {
      // one iterator, or the sum that an rfactor makes of two: each one's step is the length of what is inside it
      auto dim = (*read.dims)[d];
      std::sort(dim.begin(), dim.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
      if (dim.empty() && shape[d] == 1) continue;
      Number length = 1;
      for (size_t n = dim.size(); n-- > 0;) {
        if (dim[n].second != length) throw Unsupported();
        length = Times(length, block->iterators.at(size_t(dim[n].first)).extent);
      }
      if (dim.empty() || length != shape[d]) throw Unsupported();
      for (auto [iterator, step] : dim) AddPieces(block, iterator, d, &pieces);
    }
    return pieces;
  }

  static void AddPieces(const Block* block, int iterator, size_t d, Vector<Piece>* pieces) {
    for (size_t k = 0; k < block->nest.size(); ++k) {
      Number inside = block->nest[k]->extent;
      for (const Part& part : block->nest[k]->parts) {
        if (part.iterator < 0 || part.extent <= 0) throw Unsupported();
        inside /= part.extent;
        if (part.iterator != iterator || part.extent == 1) continue;
        if (!pieces->empty() && pieces->back().loop == k && pieces->back().inside == inside * part.extent)
          pieces->back() = {k, inside, pieces->back().extent * part.extent, pieces->back().first, d};
        else
          pieces->push_back({k, inside, part.extent, d, d});
      }
    }
  }

  Nest* nest_;
  Nest* followed_;
  Columns& columns_;
  const Asked& asked_;
  const CpuProgram& program_;
};

}  // namespace wmsched

#endif  // WMSCHED_PROCESSORS_H_
