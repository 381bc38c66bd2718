// Blocks, loops and buffers of one candidate, as in `wmsched/schedules/trace_blocks.py` and `trace_nest.TraceNest`.
//
// Functions have the names of their Python twins, which explain them; a test compares the results. This reader throws
// `Unsupported` where Python's takes something as unknown or words it generically; Python then reads the candidate.
#ifndef WMSCHED_NEST_H_
#define WMSCHED_NEST_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "arena.h"
#include "number.h"

namespace wmsched {

// Indices into `loop_nest.ANNOTATIONS`; from kBlockX on, blockIdx and threadIdx alternate.
constexpr int kUnroll = 1, kVectorize = 2, kParallel = 3, kVthread = 4, kBlockX = 5, kThreadX = 6, kThreadY = 8,
              kThreadZ = 10, kTensorize = 11;
inline bool IsGrid(int annotation) { return annotation >= kBlockX && annotation <= kThreadZ && annotation % 2 == 1; }
inline bool IsThread(int annotation) { return annotation > kBlockX && annotation <= kThreadZ && annotation % 2 == 0; }
inline bool IsBound(int annotation) { return IsGrid(annotation) || IsThread(annotation); }
constexpr size_t kMaxParts = 64, kMaxReads = 64;

struct Block;

struct Part {
  int iterator;
  Number extent;
};

struct Loop {
  Number extent;  // 0: unknown
  char kind;      // 'S' spatial, 'R' reduction, 'M' mixed
  Vector<Part> parts;
  Block* owner;  // of the parts' iterators; null: unknown
  int annotation = 0;
  bool noted = false;  // whether a postprocessor gave it a pragma
};

using Loops = Vector<Loop*>;

// For each dimension of a tensor the (iterator, coefficient) pairs of the index expression.
using Dims = Vector<Vector<std::pair<int, Number>>>;

// For each dimension of a tensor the iterators, or for each new index the old ones, behind it.
using Joined = Vector<Vector<int>>;

struct Buffer {
  String name;
  Vector<Number> shape;
  Block* writer = nullptr;  // null: an argument
  String scope;
  Number bytes = 4;  // of an element

  bool Shared() const { return scope.rfind("shared", 0) == 0; }
};

struct Read {
  Buffer* buffer;
  const Dims* dims;
  const Vector<Number>* offsets = nullptr;  // constant term by dimension; null: zeros
  const Joined* joined = nullptr;           // iterators behind each dimension where `dims` cannot say it
};

struct Iterator {
  Number extent;
  char kind;
};

enum class Role { kCompute, kCacheRead, kCopy, kRFactor, kInit, kBefore };

// An operation of the unscheduled program; read once a workload.
struct Source {
  String name;
  bool placeholder = false;
  Vector<Iterator> iterators;
  struct Access {
    int stage;
    Dims dims;
    Vector<Number> shape;
  };
  Vector<Access> reads;
  Vector<Number> shape;
  Number bytes = 4;
};

struct Block {
  String name;
  Vector<Iterator> iterators;
  const Source* source = nullptr;
  int stage = -1;  // the source's index
  Role role = Role::kCompute;
  Vector<Read> reads;
  Buffer* writes = nullptr;
  Vector<int> order;  // spatial iterators by output dimension, if `ordered`
  bool ordered = false;
  bool inlined = false, decomposed = false, vague = false;
  Number unroll = 0;
  Number fetch = 0;  // vector length of a cooperative copy into shared memory
  Number warps = 0;  // that share the copy, where whole warps execute blocks; 0: no
  String intrinsic;  // tensor intrinsic that it is
  String wanted, wanted_init;  // and those that RewriteTensorize will make of it and of its initialisation
  bool into = false;   // computed at `at`: into another's nest, or after another
  Loop* at = nullptr;  // the loop it is computed at
  Loops nest, tail;
  // By iterator: outer loops that move it, and their steps. Exact nests only.
  Vector<Vector<std::pair<const Loop*, Number>>> moved;
  // Iterators from this index on run through their whole extent in fused loops. Exact nests only.
  size_t whole = std::numeric_limits<size_t>::max();

  Vector<int> Spatial() const {
    if (ordered) return order;
    Vector<int> found;
    for (size_t k = 0; k < iterators.size(); ++k)
      if (iterators[k].kind == 'S') found.push_back(int(k));
    return found;
  }

  // Extent of each iterator within one iteration of the loop `below`. `shared` counts the loops of threads at any
  // depth, since all threads fill shared memory together.
  Vector<Number> Tile(const Loop* below, bool shared) const {
    Vector<Number> sizes(iterators.size(), 1);
    auto count = [&](const Loop* loop) {
      if (loop->owner != this) return;
      for (const Part& part : loop->parts)
        if (part.iterator >= 0 && size_t(part.iterator) < sizes.size())
          sizes[part.iterator] = Times(sizes[part.iterator], std::max<Number>(1, part.extent));
    };
    auto found = std::find(nest.begin(), nest.end(), below);
    if (shared && found != nest.end())
      for (auto each = nest.begin(); each != found + 1; ++each)
        if (IsThread((*each)->annotation) || (*each)->annotation == kVthread) count(*each);
    for (auto each = found == nest.end() ? nest.begin() : found + 1; each != nest.end(); ++each) count(*each);
    for (const Loop* loop : tail) count(loop);
    for (size_t k = 0; k < moved.size(); ++k)
      for (auto [loop, step] : moved[k])
        if (found != nest.end() && std::find(found + 1, nest.end(), loop) != nest.end())
          sizes[k] += Times(step, loop->extent - 1);
    for (size_t k = whole; k < sizes.size(); ++k) {
      auto divides = [this](const Loop* loop) {
        return loop->owner == this && loop->extent != 1 && (loop->kind != 'S' || loop->parts.at(0).iterator == 0);
      };
      if (found == nest.end() || std::any_of(nest.begin(), found + 1, divides)) throw Unsupported();
      sizes[k] = iterators[k].extent;
    }
    for (size_t k = 0; k < sizes.size(); ++k)
      if (iterators[k].extent) sizes[k] = std::min(sizes[k], iterators[k].extent);
    return sizes;
  }

  // Distance that a step of the block's own loop moves an iterator; 0 for a fused loop or one of another block.
  Number Step(const Loop* loop, int iterator) const {
    if (loop->owner != this) return 0;
    const Part* main = nullptr;
    for (const Part& part : loop->parts) {
      if (part.iterator < 0) throw Unsupported();
      if (part.extent == 1 && loop->parts.size() > 1) continue;
      if (main != nullptr) return 0;  // fused: a quotient and a remainder
      main = &part;
    }
    if (main == nullptr || main->iterator != iterator) return 0;
    Number product = 1;
    for (auto each = std::find(nest.begin(), nest.end(), loop) + 1; each < nest.end(); ++each)
      for (const Part& part : (*each)->parts)
        if ((*each)->owner == this && part.iterator == iterator) product = Times(product, part.extent);
    return product;
  }

  size_t OwnFrom() const {
    for (size_t k = 0; k < nest.size(); ++k)
      if (nest[k]->owner == this) return k;
    return nest.size();
  }
};

template <typename T>
bool Holds(const Vector<T*>& all, const T* one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

inline size_t PlaceOf(const Loops& nest, const Loop* loop) {
  return size_t(std::find(nest.begin(), nest.end(), loop) - nest.begin());
}

// Extent of each tensor dimension that an access touches while its iterators run through a tile.
inline Vector<Number> Span(const Dims& dims, const Vector<Number>& tile, const Vector<Number>& shape) {
  Vector<Number> sizes;
  for (size_t k = 0; k < dims.size(); ++k) {
    Number size = 1;
    for (auto [it, coefficient] : dims[k])
      if (it >= 0 && size_t(it) < tile.size())
        size += Times(std::max<Number>(1, std::abs(coefficient)), tile[it] - 1);
    sizes.push_back(k < shape.size() && shape[k] ? std::min(size, shape[k]) : size);
  }
  return sizes;
}

// All blocks of one candidate after the instructions read so far.
class Nest {
 public:
  explicit Nest(const std::vector<Source>& stages) {
    Vector<Buffer*>& buffers = of_stage;
    for (size_t k = 0; k < stages.size(); ++k) {
      const Source& stage = stages[k];
      Buffer* buffer = NewBuffer(stage.name, stage.shape, nullptr, "", stage.bytes);
      if (stage.placeholder) {
        bool known = std::any_of(arguments.begin(), arguments.end(), [&](auto* name) { return *name == stage.name; });
        if (!known) arguments.push_back(&stage.name);
      } else {
        Block* block = NewBlock(stage.name, stage.iterators, Role::kCompute);
        block->source = &stage;
        block->stage = int(k);
        block->writes = buffer;
        buffer->writer = block;
        blocks.push_back(block);
      }
      buffers.push_back(buffer);
    }
    for (Block* block : blocks)
      for (const Source::Access& access : block->source->reads) {
        bool known = access.stage >= 0 && size_t(access.stage) < buffers.size();
        Buffer* buffer = known ? buffers[access.stage] : NewBuffer("", access.shape, nullptr, "", 4);
        block->reads.push_back({buffer, &access.dims});
      }
    root = NewBlock("root", {}, Role::kCompute);
  }

  Vector<Block*> blocks;
  Vector<const String*> arguments;
  Vector<Buffer*> of_stage;  // what each stage writes or, as a placeholder, is
  Block* root;
  Vector<Number> splits;
  bool exact = false;  // follows TVM's nest exactly, to simulate its postprocessors

  Loop* NewLoop(Number extent, char kind, Vector<Part> parts, Block* owner, int annotation = 0) {
    if (extent < 0 || parts.size() > kMaxParts) throw Unsupported();
    loops_.push_back({extent, kind, std::move(parts), owner, annotation});
    return &loops_.back();
  }

  Block* NewBlock(String name, Vector<Iterator> iterators, Role role) {
    blocks_.emplace_back();
    Block* block = &blocks_.back();
    block->name = std::move(name);
    block->iterators = std::move(iterators);
    block->role = role;
    FreshLoops(block);
    return block;
  }

  Buffer* NewBuffer(String name, Vector<Number> shape, Block* writer, String scope, Number bytes) {
    buffers_.push_back({std::move(name), std::move(shape), writer, std::move(scope), bytes});
    return &buffers_.back();
  }

  const Dims* NewDims(Dims dims) {
    dims_.push_back(std::move(dims));
    return &dims_.back();
  }

  const Vector<Number>* NewOffsets(Vector<Number> offsets) {
    offsets_.push_back(std::move(offsets));
    return &offsets_.back();
  }

  const Joined* NewJoined(Joined joined) {
    joined_.push_back(std::move(joined));
    return &joined_.back();
  }

  const Source* NewSource(Source source) {
    sources_.push_back(std::move(source));
    return &sources_.back();
  }

  // Give a block one loop for each iterator.
  void FreshLoops(Block* block) {
    block->nest.clear();
    for (size_t k = 0; k < block->iterators.size(); ++k) {
      auto [extent, kind] = block->iterators[k];
      block->nest.push_back(NewLoop(extent, kind, {{int(k), extent}}, block));
    }
  }

  Vector<Block*> Under(const Loop* loop) const {
    Vector<Block*> found;
    for (Block* block : blocks)
      if (Holds(block->nest, loop) || Holds(block->tail, loop)) found.push_back(block);
    return found;
  }

  Vector<Block*> Consumers(const Block* block) const {
    Vector<Block*> found;
    for (Block* each : blocks)
      if (each != block && !each->inlined && ReadsOf(each, block->writes)) found.push_back(each);
    return found;
  }

  static bool ReadsOf(const Block* block, const Buffer* buffer) {
    return std::any_of(block->reads.begin(), block->reads.end(), [&](const Read& r) { return r.buffer == buffer; });
  }

  void Insert(Block* block, const Block* before, const Block* after) {
    blocks.erase(std::remove(blocks.begin(), blocks.end(), block), blocks.end());
    auto place = blocks.begin();
    if (before != nullptr && Holds(blocks, before))
      place = std::find(blocks.begin(), blocks.end(), before);
    else if (after != nullptr && Holds(blocks, after))
      place = std::find(blocks.begin(), blocks.end(), after) + 1;
    blocks.insert(place, block);
  }

  // Put `fresh` in place of the first of `old` and remove the others, in every nest.
  void Replace(const Loops& old, const Loops& fresh) {
    for (Block* block : blocks) {
      for (Loops* nest : {&block->nest, &block->tail}) {
        auto first = std::find_if(nest->begin(), nest->end(), [&](Loop* loop) { return Holds(old, loop); });
        if (first == nest->end()) continue;
        size_t at = size_t(first - nest->begin());
        nest->erase(std::remove_if(first, nest->end(), [&](Loop* loop) { return Holds(old, loop); }), nest->end());
        nest->insert(nest->begin() + at, fresh.begin(), fresh.end());
      }
      if (block->at != nullptr && Holds(old, block->at) && !fresh.empty()) block->at = fresh.back();
    }
  }

 private:
  Deque<Loop> loops_;
  Deque<Block> blocks_;
  Deque<Buffer> buffers_;
  Deque<Dims> dims_;
  Deque<Vector<Number>> offsets_;
  Deque<Joined> joined_;
  Deque<Source> sources_;
};

}  // namespace wmsched

#endif  // WMSCHED_NEST_H_
