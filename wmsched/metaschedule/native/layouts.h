// Primitives that lay tensors and iterators out anew, as in `wmsched/schedules/trace_layouts.py`, and Blockize.
#ifndef WMSCHED_LAYOUTS_H_
#define WMSCHED_LAYOUTS_H_

#include "primitives.h"

namespace wmsched {

// The iterator that an index is; -1 if it is more than that.
inline int OnlyOf(const Vector<std::pair<int, Number>>& dim) {
  return dim.size() == 1 && dim[0].second == 1 ? dim[0].first : -1;
}

inline Vector<int> Sorted(Vector<int> all) {
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

inline Vector<Number> ExtentsOf(const Vector<Iterator>& iterators) {
  Vector<Number> extents;
  for (const Iterator& it : iterators) extents.push_back(it.extent);
  return extents;
}

inline Block* ReIndex(Nest* nest, Block* block, Number place, bool writes) {
  Vector<Iterator> iterators;
  if (writes) {
    Buffer* target = block->writes;
    for (int k : block->Spatial()) iterators.push_back(block->iterators.at(size_t(k)));
    Block* copy = nest->NewBlock(target->name + "_reindex", iterators, Role::kCopy);
    Buffer* between = nest->NewBuffer(copy->name, ExtentsOf(iterators), block, "", target->bytes);
    copy->reads = {{between, Identity(nest, UpTo(iterators.size()))}};
    copy->writes = target;
    block->writes = between;
    target->writer = copy;
    nest->Insert(copy, nullptr, block);
    return copy;
  }
  Read& read = ReadAt(block, place);
  Vector<int> used;
  for (const auto& dim : *read.dims)
    for (auto [it, coefficient] : dim) used.push_back(it);
  used = Sorted(std::move(used));
  for (int it : used) iterators.push_back({block->iterators.at(size_t(it)).extent, 'S'});
  Block* copy = nest->NewBlock(read.buffer->name + "_reindex", iterators, Role::kCacheRead);
  Dims dims;
  for (const auto& dim : *read.dims) {
    dims.emplace_back();
    for (auto [it, coefficient] : dim)
      dims.back().push_back({int(std::find(used.begin(), used.end(), it) - used.begin()), coefficient});
  }
  copy->reads = {{read.buffer, nest->NewDims(std::move(dims))}};
  copy->writes = nest->NewBuffer(copy->name, ExtentsOf(iterators), copy, "", read.buffer->bytes);
  read = {copy->writes, Identity(nest, used)};
  nest->Insert(copy, block, nullptr);
  return copy;
}

// TransformLayout: new dimensions; `turned` is the permutation if only their order changes, and `behind` has the old
// dimensions that are in each new one.
inline void TransformLayout(Nest* nest, Buffer* buffer, Vector<Number> shape, const Vector<int>& turned,
                            const Joined& behind = {}) {
  buffer->shape = std::move(shape);
  size_t dimensions = buffer->shape.size();
  for (Block* reader : nest->blocks)
    for (Read& read : reader->reads) {
      if (read.buffer != buffer) continue;
      Dims dims(dimensions);
      if (turned.size() == dimensions && read.dims->size() == dimensions) {
        for (size_t k = 0; k < dimensions; ++k) dims[k] = (*read.dims)[turned[k]];
        read.joined = nullptr;
      } else {
        auto only = [](const auto& dim) { return OnlyOf(dim) >= 0; };
        bool plain = !behind.empty() && read.joined == nullptr && std::all_of(read.dims->begin(), read.dims->end(), only);
        Joined joined;
        for (const auto& places : behind) {
          joined.emplace_back();
          for (int k : places)
            if (plain && size_t(k) < read.dims->size()) joined.back().push_back(OnlyOf((*read.dims)[k]));
          joined.back() = Sorted(std::move(joined.back()));
        }
        read.joined = plain ? nest->NewJoined(std::move(joined)) : nullptr;
        if (reader->role == Role::kCopy || reader->role == Role::kCacheRead) reader->vague = true;
      }
      read.dims = nest->NewDims(std::move(dims));
    }
}

// Reads by new iterators, each with the old ones behind it; vague if they do not fit.
inline void Rejoin(Nest* nest, Block* block, const Joined& behind) {
  bool known = true;
  for (Read& read : block->reads) {
    Joined wanted;
    if (read.joined != nullptr)
      wanted = *read.joined;
    else
      for (const auto& dim : *read.dims) wanted.push_back(dim.empty() ? Vector<int>{} : Vector<int>{OnlyOf(dim)});
    Dims dims;
    for (const auto& each : wanted) {
      auto found = std::find(behind.begin(), behind.end(), each);
      known = known && (each.empty() || found != behind.end());
      dims.emplace_back();
      if (found != behind.end()) dims.back().push_back({int(found - behind.begin()), 1});
    }
    read.dims = nest->NewDims(std::move(dims));
    read.joined = nullptr;
  }
  const Source* source = block->source;
  block->vague = !known || (source != nullptr && source->reads.size() != block->reads.size());
  if (source == nullptr || block->vague) return;
  Source made;
  made.name = source->name;
  made.iterators = block->iterators;
  for (size_t k = 0; k < block->reads.size(); ++k) {
    const Read& read = block->reads[k];
    made.reads.push_back({source->reads[k].stage, *read.dims, read.buffer->shape});
  }
  made.shape = source->shape;
  made.bytes = source->bytes;
  block->source = nest->NewSource(std::move(made));
}

// TransformBlockLayout: new iterators of the extents `sizes`, each of the old ones in `behind`.
inline void TransformBlock(Nest* nest, Block* block, const Vector<Number>& sizes, const Joined& behind) {
  bool same = sizes == ExtentsOf(block->iterators);
  if (!same) {
    Vector<Iterator> made;
    for (size_t k = 0; k < sizes.size(); ++k) {
      auto reduces = [&](int it) { return block->iterators.at(size_t(it)).kind == 'R'; };
      made.push_back({sizes[k], std::any_of(behind[k].begin(), behind[k].end(), reduces) ? 'R' : 'S'});
    }
    block->iterators = std::move(made);
    Rejoin(nest, block, behind);
  }
  nest->FreshLoops(block);
  if (!block->vague) return;
  for (size_t k = 0; k < block->nest.size(); ++k) block->nest[k]->parts = {{-1 - int(k), block->nest[k]->extent}};
}

inline Block* PaddedCopy(Nest* nest, const Buffer* buffer, const Vector<Number>& shape, Role role) {
  Vector<Iterator> iterators;
  for (Number extent : shape) iterators.push_back({extent, 'S'});
  Block* copy = nest->NewBlock(buffer->name + "_pad", std::move(iterators), role);
  copy->writes = nest->NewBuffer(copy->name, shape, copy, "", buffer->bytes);
  return copy;
}

inline void PadEinsum(Nest* nest, Block* block, const Vector<Number>& padding) {
  size_t count = block->iterators.size();
  if (padding.size() != count) throw Unsupported();
  Vector<Number> sizes;
  Vector<bool> grown;
  for (size_t k = 0; k < count; ++k) {
    Number by = std::max<Number>(1, padding[k]), extent = block->iterators[k].extent;
    sizes.push_back(Times((extent + by - 1) / by, by));
    grown.push_back(sizes[k] != extent);
    block->iterators[k].extent = sizes[k];
  }
  for (Read& read : block->reads) {
    bool grows = false;
    for (const auto& dim : *read.dims)
      for (auto [it, coefficient] : dim) grows = grows || grown.at(size_t(it));
    if (!grows) continue;
    Buffer* source = read.buffer;
    Vector<Number> shape;
    for (size_t k = 0; k < std::min(read.dims->size(), source->shape.size()); ++k) {
      int only = OnlyOf((*read.dims)[k]);
      shape.push_back(only >= 0 ? sizes.at(size_t(only)) : source->shape[k]);
    }
    Block* copy = PaddedCopy(nest, source, shape, Role::kCacheRead);
    copy->reads = {{source, Identity(nest, UpTo(shape.size()))}};
    nest->Insert(copy, block, nullptr);
    read.buffer = copy->writes;
  }
  Vector<int> spatial = block->Spatial();
  if (std::any_of(spatial.begin(), spatial.end(), [&](int k) { return grown.at(size_t(k)); })) {
    Buffer* target = block->writes;
    Vector<Number> shape;
    for (int k : spatial) shape.push_back(sizes.at(size_t(k)));
    Block* copy = PaddedCopy(nest, target, shape, Role::kCopy);
    copy->iterators.clear();
    for (Number extent : target->shape) copy->iterators.push_back({extent, 'S'});
    nest->FreshLoops(copy);
    Buffer* between = copy->writes;
    copy->reads = {{between, Identity(nest, UpTo(spatial.size()))}};
    between->writer = block;
    target->writer = copy;
    block->writes = between;
    copy->writes = target;
    nest->Insert(copy, nullptr, block);
  }
  nest->FreshLoops(block);
}

inline Block* Blockize(Nest* nest, Loop* loop) {
  Vector<Block*> under = nest->Under(loop);
  if (under.empty()) throw Unsupported();
  Block* inner = under[0];
  auto place = inner->nest.begin() + PlaceOf(inner->nest, loop);
  Block* outer = nest->NewBlock(inner->name + "_o", inner->iterators, inner->role);
  outer->source = inner->source;
  outer->stage = inner->stage;
  outer->reads = inner->reads;
  outer->writes = inner->writes;
  outer->vague = inner->vague;
  outer->at = inner->at;
  outer->into = inner->into;
  outer->unroll = inner->unroll;
  outer->nest.assign(inner->nest.begin(), place);
  outer->tail.assign(place, inner->nest.end());
  for (const Loops* loops : {&outer->nest, &outer->tail})
    for (Loop* each : *loops)
      if (each->owner == inner) each->owner = outer;
  if (outer->writes->writer == inner) outer->writes->writer = outer;
  nest->Insert(outer, inner, nullptr);
  nest->blocks.erase(std::find(nest->blocks.begin(), nest->blocks.end(), inner));
  return outer;
}

}  // namespace wmsched

#endif  // WMSCHED_LAYOUTS_H_
