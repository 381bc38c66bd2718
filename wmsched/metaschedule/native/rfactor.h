// RFactor on a `Nest`, as `rfactor` in `wmsched/schedules/trace_primitives.py`.
#ifndef WMSCHED_RFACTOR_H_
#define WMSCHED_RFACTOR_H_

#include <map>
#include <utility>
#include <vector>

#include "primitives.h"

namespace wmsched {

// Accesses of the factored block to iterators that were reduced in fused loops; no loop steps through them evenly.
inline void KeepWhole(Nest* nest, const Block& block, Block* factored) {
  factored->whole = factored->iterators.size();
  std::map<int, int> place;
  for (size_t k = 0; k < block.iterators.size(); ++k) {
    if (block.iterators[k].kind == 'S') continue;
    if (block.iterators[k].extent <= 1) throw Unsupported();  // a loop steps evenly then
    place[int(k)] = int(factored->iterators.size());
    factored->iterators.push_back(block.iterators[k]);
  }
  for (size_t n = 0; n < block.reads.size(); ++n) {
    Dims dims = *factored->reads[n].dims;
    for (size_t d = 0; d < dims.size(); ++d)
      for (auto [it, step] : (*block.reads[n].dims)[d])
        if (place.count(it)) dims[d].push_back({place[it], step});
    factored->reads[n].dims = nest->NewDims(std::move(dims));
  }
}

// Add a block of partial results, spatial along the loop; the old block reduces them.
inline Block* RFactor(Nest* nest, Loop* loop, Number axis) {
  Block* block = nullptr;
  for (Block* each : nest->Under(loop))
    if (loop->owner == nullptr || loop->owner == each) {
      block = each;
      break;
    }
  if (block == nullptr || axis < 0) throw Unsupported();
  const Vector<int> spatial = block->Spatial();
  axis = std::min(axis, Number(spatial.size()));
  Vector<Iterator> outer, iterators = {{loop->extent, 'S'}};
  for (int k : spatial) outer.push_back(block->iterators.at(k));
  iterators.insert(iterators.end(), outer.begin(), outer.end());
  for (const Loop* each : block->nest)
    if (each->kind == 'R' && each != loop) iterators.push_back({each->extent, 'R'});
  Vector<int> order;
  for (size_t n = 0; n < spatial.size(); ++n) order.push_back(int(n) + 1);
  order.insert(order.begin() + axis, 0);

  Block* factored = nest->NewBlock(block->name + "_rf", iterators, Role::kRFactor);
  factored->source = block->source;
  factored->stage = block->stage;
  factored->order = order;
  factored->ordered = true;
  factored->vague = block->vague;
  Vector<Number> shape;
  for (int k : order) shape.push_back(iterators[k].extent);
  factored->writes = nest->NewBuffer(factored->name, std::move(shape), factored, "", block->writes->bytes);

  std::map<int, int> place;
  for (size_t n = 0; n < spatial.size(); ++n) place[spatial[n]] = int(n) + 1;
  auto placed = [&](int origin) { return place.count(origin) ? place[origin] : -1; };
  // An old iterator as a sum over the new ones: after a split, outer loops have larger strides.
  std::map<int, Vector<std::pair<int, Number>>> sums;
  for (auto [k, n] : place) sums[k] = {{n, 1}};
  factored->nest.clear();
  int tail = int(spatial.size()) + 1;
  for (size_t at = 0; at < block->nest.size(); ++at) {
    const Loop* old = block->nest[at];
    if (old->parts.empty()) throw Unsupported();
    int origin = old->parts[0].iterator, k = placed(origin);
    char kind = old->kind;
    if (old == loop)
      k = 0, kind = 'S';
    else if (old->kind == 'R')
      k = tail++;
    if (old->kind == 'R') {
      Number stride = 1;
      for (size_t inside = at + 1; inside < block->nest.size(); ++inside) {
        const Loop* each = block->nest[inside];
        if (each->kind == 'R' && each->parts.at(0).iterator == origin) stride = Times(stride, each->extent);
      }
      sums[origin].push_back({k, stride});
    }
    factored->nest.push_back(nest->NewLoop(old->extent, kind, {{k, old->extent}}, factored));
  }
  for (const Read& read : block->reads) {
    Dims dims;
    for (const auto& dim : *read.dims) {
      dims.emplace_back();
      for (auto [it, coefficient] : dim) {
        auto found = sums.find(it);
        if (found == sums.end()) continue;
        for (auto [n, each] : found->second) dims.back().push_back({n, Times(coefficient, each)});
      }
    }
    factored->reads.push_back({read.buffer, nest->NewDims(std::move(dims)), read.offsets});
  }

  if (nest->exact && loop->parts[0].iterator < 0) KeepWhole(nest, *block, factored);
  Loops kept;
  for (const Loop* each : block->nest) {
    if (each->kind != 'S' && each != loop) continue;
    int k = each == loop ? 0 : placed(each->parts[0].iterator);
    kept.push_back(nest->NewLoop(each->extent, each->kind, {{k, each->extent}}, block));
  }
  block->iterators = {{loop->extent, 'R'}};
  block->iterators.insert(block->iterators.end(), outer.begin(), outer.end());
  block->nest = std::move(kept);
  block->reads = {{factored->writes, Identity(nest, order)}};
  block->ordered = false;
  nest->Insert(factored, block, nullptr);
  return factored;
}

}  // namespace wmsched

#endif  // WMSCHED_RFACTOR_H_
