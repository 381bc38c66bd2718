// Schedule primitives on a `Nest`, as in `wmsched/schedules/trace_primitives.py` and `trace_nest.py`.
#ifndef WMSCHED_PRIMITIVES_H_
#define WMSCHED_PRIMITIVES_H_

#include <numeric>
#include <string>
#include <vector>

#include "nest.h"

namespace wmsched {

// A block's loops, cut or filled up to TVM's number `wanted`.
inline const Loops& LoopsOf(Nest* nest, Block* block, size_t wanted) {
  if (block->nest.size() != wanted && block != nest->root) {
    // The nest is not known exactly: keep the outer loops, drop the inner ones.
    if (block->nest.size() > wanted) block->nest.resize(wanted);
    while (block->nest.size() < wanted) block->nest.push_back(nest->NewLoop(0, 'S', {{-1, 0}}, block));
    block->vague = true;
  }
  return block->nest;
}

inline Block* Named(const Nest& nest, const String& name) {
  for (Block* block : nest.blocks)
    if (block->name == name) return block;
  // TVM names copies by tensors, and these may have other names than the blocks that write them.
  size_t at = name.find("_reindex");
  if (at == String::npos) throw Unsupported();
  size_t count = name.size() - at;
  Block* found = nullptr;
  for (Block* block : nest.blocks) {
    const String& own = block->name;
    if (own.size() < count || own.compare(own.size() - count, count, name, at, count) != 0) continue;
    if (found != nullptr) throw Unsupported();
    found = block;
  }
  if (found == nullptr) throw Unsupported();
  return found;
}

// The iterator that a fused loop runs through where the others have one value; below 0: there is none, or several.
inline int OnlyIterator(const Loop* loop) {
  int found = -1;
  for (const Part& part : loop->parts) {
    if (part.extent == 1) continue;
    if (found >= 0) return -1;
    found = part.iterator;
  }
  return found;
}

inline Loops Split(Nest* nest, Loop* loop, Vector<Number> sizes, int inferred) {
  if (inferred >= 0) {
    Number rest = 1;
    for (Number size : sizes)
      if (size) rest = Times(rest, size);
    sizes[inferred] = loop->extent && rest ? (loop->extent + rest - 1) / rest : 0;
  }
  int origin = loop->parts.size() == 1 ? loop->parts[0].iterator : -1;
  if (nest->exact && origin < 0) origin = OnlyIterator(loop);
  Loops parts;
  for (Number size : sizes) parts.push_back(nest->NewLoop(size, loop->kind, {{origin, size}}, loop->owner));
  nest->Replace({loop}, parts);
  for (size_t k = 1; k < sizes.size(); ++k) nest->splits.push_back(sizes[k]);
  return parts;
}

inline Loop* Fuse(Nest* nest, const Loops& loops) {
  if (loops.empty()) throw Unsupported();
  Number extent = 1;
  char kind = loops[0]->kind;
  Block* owner = loops[0]->owner;
  Vector<Part> parts;
  for (const Loop* loop : loops) {
    extent = Times(extent, loop->extent);
    if (loop->kind != kind) kind = 'M';
    if (loop->owner != owner) owner = nullptr;
    parts.insert(parts.end(), loop->parts.begin(), loop->parts.end());
  }
  Loop* fused = nest->NewLoop(extent, kind, std::move(parts), owner);
  nest->Replace(loops, {fused});
  return fused;
}

inline void Reorder(Nest* nest, const Loops& order) {
  for (Block* block : nest->blocks)
    for (Loops* loops : {&block->nest, &block->tail}) {
      Vector<size_t> places;
      for (size_t k = 0; k < loops->size(); ++k)
        if (Holds(order, (*loops)[k])) places.push_back(k);
      Loops held;
      for (Loop* loop : order)
        if (Holds(*loops, loop)) held.push_back(loop);
      if (held.size() != places.size()) throw Unsupported();
      for (size_t k = 0; k < places.size(); ++k) (*loops)[places[k]] = held[k];
    }
}

// Extents of a producer's iterators that one iteration of a loop needs.
inline Vector<Number> Needed(const Block* block, const Vector<Block*>& others, const Loop* where) {
  Vector<Number> needed;
  for (const Block* reader : others)
    for (const Read& read : reader->reads) {
      if (read.buffer != block->writes) continue;
      auto found = Span(*read.dims, reader->Tile(where, block->writes->Shared()), block->writes->shape);
      if (reader->vague) std::fill(found.begin(), found.end(), 0);
      if (needed.empty()) {
        needed = found;
        continue;
      }
      needed.resize(std::min(needed.size(), found.size()));
      for (size_t k = 0; k < needed.size(); ++k) needed[k] = std::max(needed[k], found[k]);
    }
  Vector<Number> sizes;
  for (const Iterator& it : block->iterators) sizes.push_back(it.extent);
  auto spatial = block->Spatial();
  for (size_t k = 0; k < std::min(spatial.size(), needed.size()); ++k) sizes.at(spatial[k]) = needed[k];
  return sizes;
}

// Extents of a consumer's iterators that one iteration of a loop makes ready.
inline Vector<Number> Offered(const Block* block, const Vector<Block*>& others, const Loop* where) {
  Vector<Number> sizes;
  for (const Iterator& it : block->iterators) sizes.push_back(it.extent);
  for (const Read& read : block->reads) {
    const Block* writer = read.buffer->writer;
    if (writer == nullptr || !Holds(others, writer)) continue;
    auto tile = writer->Tile(where, read.buffer->Shared());
    Vector<Number> ready;
    for (int k : writer->Spatial()) ready.push_back(tile.at(k));
    for (size_t k = 0; k < read.dims->size() && k < ready.size(); ++k) {
      const auto& dim = (*read.dims)[k];
      if (dim.size() != 1 || std::abs(dim[0].second) != 1) continue;
      Number& size = sizes.at(dim[0].first);
      size = writer->vague ? 0 : std::min(ready[k], size ? size : ready[k]);
    }
  }
  return sizes;
}

// The iterators of a block that a partner's first loops move, if the block is computed inside them.
inline Vector<Vector<std::pair<const Loop*, Number>>> Moved(const Block* block, const Block* partner, size_t place,
                                                            bool back) {
  Vector<Vector<std::pair<const Loop*, Number>>> moved(block->iterators.size());
  auto add = [&](int own, int of, Number step) {
    auto& into = moved.at(size_t(own));
    for (size_t k = 0; k < place; ++k)
      if (Number each = partner->Step(partner->nest[k], of)) into.push_back({partner->nest[k], Times(step, each)});
    if (size_t(of) >= partner->moved.size()) return;
    for (auto [loop, each] : partner->moved[of])
      if (PlaceOf(partner->nest, loop) < place) into.push_back({loop, Times(step, each)});
  };
  const Block* reader = back ? block : partner;
  const Block* writer = back ? partner : block;
  auto spatial = writer->Spatial();
  for (const Read& read : reader->reads) {
    if (read.buffer != writer->writes) continue;
    for (size_t d = 0; d < read.dims->size() && d < spatial.size(); ++d)
      for (auto [it, step] : (*read.dims)[d]) {
        if (!back) add(spatial[d], it, step);
        if (back && (*read.dims)[d].size() == 1 && step == 1) add(it, spatial[d], 1);
      }
    break;
  }
  return moved;
}

// The first block of the loop directly inside a loop, if that inner loop encloses it.
inline Block* FirstWith(const Nest& nest, Block* block, size_t place) {
  return place < block->nest.size() ? nest.Under(block->nest[place])[0] : block;
}

inline void ComputeAt(Nest* nest, Block* block, Loop* where, bool back) {
  Vector<Block*> others, linked;
  for (Block* each : nest->Under(where))
    if (each != block && !each->inlined) others.push_back(each);
  for (Block* each : others)
    if (back ? Nest::ReadsOf(block, each->writes) : Nest::ReadsOf(each, block->writes)) linked.push_back(each);
  if (others.empty()) return;  // a loop of no nest: its place is unknown
  Block* partner = linked.empty() ? others[0] : linked[0];
  size_t place = std::min(PlaceOf(partner->nest, where) + 1, partner->nest.size());
  auto sizes = back ? Offered(block, others, where) : Needed(block, others, where);
  if (nest->exact && !linked.empty()) block->moved = Moved(block, partner, place, back);
  Loops fresh(partner->nest.begin(), partner->nest.begin() + place);
  for (size_t k = 0; k < std::min(sizes.size(), block->whole); ++k)
    fresh.push_back(nest->NewLoop(sizes[k], block->iterators[k].kind, {{int(k), sizes[k]}}, block));
  block->nest = std::move(fresh);
  block->tail.clear();
  block->at = where;
  block->into = !back;
  if (back)
    nest->Insert(block, nullptr, others.back());
  else
    nest->Insert(block, nest->exact ? FirstWith(*nest, partner, place) : partner, nullptr);
}

inline void Gone(Block* block) {
  block->inlined = true;
  block->nest.clear();
}

inline void InlineBack(Block* block) {
  for (const Read& read : block->reads) {
    Block* writer = read.buffer->writer;
    if (writer == nullptr) continue;
    size_t room = kMaxReads;
    Vector<Read> more;
    for (const Read& each : block->reads)
      if (each.buffer != writer->writes && room-- > 0) more.push_back(each);
    writer->reads.insert(writer->reads.end(), more.begin(), more.end());
    writer->writes = block->writes;
    block->writes->writer = writer;
    break;
  }
  Gone(block);
}

// Composed access: `outer` reads what a block writes, `inner` is that block's own read.
inline Dims Through(const Dims& outer, const Dims& inner, const Vector<int>& spatial) {
  Dims made;
  for (const auto& dim : inner) {
    made.emplace_back();
    for (auto [inside, coefficient] : dim)
      for (size_t k = spatial.size(); k-- > 0;)  // the last of equal keys counts, as in Python's dict
        if (spatial[k] == inside && k < outer.size()) {
          for (auto [it, each] : outer[k]) made.back().push_back({it, Times(each, coefficient)});
          break;
        }
  }
  return made;
}

// Constant term of each dimension of the composed access.
inline const Vector<Number>* OffsetsThrough(Nest* nest, const Read& outer, const Read& inner,
                                            const Vector<int>& spatial) {
  if (outer.offsets == nullptr) return inner.offsets;
  Vector<Number> made;
  for (size_t d = 0; d < inner.dims->size(); ++d) {
    Number sum = inner.offsets != nullptr && d < inner.offsets->size() ? (*inner.offsets)[d] : 0;
    for (auto [inside, coefficient] : (*inner.dims)[d])
      for (size_t k = 0; k < spatial.size() && k < outer.offsets->size(); ++k)
        if (spatial[k] == inside) sum += Times(coefficient, (*outer.offsets)[k]);
    made.push_back(sum);
  }
  return nest->NewOffsets(std::move(made));
}

inline void Inline(Nest* nest, Block* block) {
  auto spatial = block->Spatial();
  for (Block* reader : nest->Consumers(block)) {
    Vector<Read> reads;
    for (const Read& read : reader->reads) {
      if (read.buffer != block->writes) {
        reads.push_back(read);
        continue;
      }
      for (const Read& own : block->reads)
        reads.push_back({own.buffer, nest->NewDims(Through(*read.dims, *own.dims, spatial)),
                         OffsetsThrough(nest, read, own, spatial)});
    }
    if (reads.size() > kMaxReads) reads.resize(kMaxReads);
    reader->reads = std::move(reads);
  }
  Gone(block);
}

inline const Dims* Identity(Nest* nest, const Vector<int>& places) {
  Dims dims;
  for (int place : places) dims.push_back({{place, 1}});
  return nest->NewDims(std::move(dims));
}

inline Vector<int> UpTo(size_t count) {
  Vector<int> places(count);
  std::iota(places.begin(), places.end(), 0);
  return places;
}

// A read by index; a negative one counts from the end, as in Python.
inline Read& ReadAt(Block* block, Number place) {
  if (place < 0) place += Number(block->reads.size());
  if (place < 0 || size_t(place) >= block->reads.size()) throw Unsupported();
  return block->reads[place];
}

inline Block* CopyOf(Nest* nest, const Buffer* source, const String& scope, Role role) {
  Vector<Iterator> iterators;
  for (Number extent : source->shape) iterators.push_back({extent, 'S'});
  Block* copy = nest->NewBlock(source->name + "_" + scope, std::move(iterators), role);
  copy->writes = nest->NewBuffer(copy->name, source->shape, copy, scope, source->bytes);
  return copy;
}

inline Block* CacheRead(Nest* nest, Block* reader, Number place, const String& scope,
                        const Vector<Block*>& named) {
  Buffer* source = ReadAt(reader, place - reader->decomposed).buffer;
  Block* copy = CopyOf(nest, source, scope, Role::kCacheRead);
  for (Block* block : named.empty() ? nest->blocks : named)
    for (Read& read : block->reads)
      if (read.buffer == source) read.buffer = copy->writes;
  copy->reads = {{source, Identity(nest, UpTo(source->shape.size()))}};
  nest->Insert(copy, nullptr, source->writer);
  return copy;
}

inline Block* CacheWrite(Nest* nest, Block* block, const String& scope) {
  Buffer* target = block->writes;
  Block* copy = CopyOf(nest, target, scope, Role::kCopy);
  Buffer* cache = copy->writes;
  copy->writes = target;
  cache->writer = block;
  target->writer = copy;
  block->writes = cache;
  copy->reads = {{cache, Identity(nest, UpTo(target->shape.size()))}};
  nest->Insert(copy, nullptr, block);
  return copy;
}

inline Block* DecomposeReduction(Nest* nest, Block* block, Loop* loop) {
  size_t place = PlaceOf(block->nest, loop);
  Block* made = nest->NewBlock(block->name + "_init", {}, Role::kInit);
  made->nest.assign(block->nest.begin(), block->nest.begin() + place);
  for (size_t k = place; k < block->nest.size(); ++k) {
    const Loop* each = block->nest[k];
    if (each->kind == 'S')
      made->nest.push_back(nest->NewLoop(each->extent, each->kind, each->parts, made, each->annotation));
  }
  made->writes = nest->NewBuffer(block->writes->name, {}, nullptr, "", 4);
  const Block* before = block;
  for (const Block* each : nest->blocks)
    if (Holds(each->nest, loop)) {
      before = each;
      break;
    }
  nest->Insert(made, before, nullptr);
  block->name += "_update";
  block->decomposed = true;
  return made;
}

}  // namespace wmsched

#endif  // WMSCHED_PRIMITIVES_H_
