// Follower of a trace, instruction by instruction, as `trace_nest.TraceNest`.
#ifndef WMSCHED_FOLLOW_H_
#define WMSCHED_FOLLOW_H_

#include "columns.h"
#include "fingerprint.h"
#include "layouts.h"
#include "primitives.h"
#include "processors.h"
#include "rfactor.h"

namespace wmsched {

class Follower {
 public:
  // `drawn` replaces the decisions of a trace without postprocessors. GPU postprocessors are simulated here. On a CPU
  // two followers run: `exact`, made with `cpu`, tracks the program as TVM's postprocessors see it and decides what
  // they do; this one then applies those decisions like trace instructions. The exact one has no fingerprint. `fixed` is
  // what the fingerprint of another row of this trace gave.
  template <typename Trace>
  Follower(const std::vector<Source>& stages, const Trace& instructions, Drawn* drawn = nullptr,
           const CpuProgram* cpu = nullptr, Follower* exact = nullptr, const Fixed* fixed = nullptr)
      : cpu_(cpu), nest(stages), fingerprint(variables_, fixed) {
    columns.fill(0.0);
    nest.exact = cpu != nullptr;
    if (cpu != nullptr) Offset(*cpu);
    bool pure = false;
    for (size_t k = 0; k < instructions.size(); ++k) {
      row_ = instructions[k];
      if (drawn != nullptr) row_.Draw(drawn);
      pure = Apply();
      columns[k_steps] += !pure;
      if (cpu == nullptr) fingerprint.Add(row_);
    }
    if (drawn != nullptr) {
      if (drawn->next != drawn->end) throw Unsupported();
      if (cpu != nullptr) return;
      pure = exact != nullptr ? PostprocessForCpu(exact) : Postprocess();
    }
    columns[k_steps] += pure;
  }

 private:
  Variables variables_;
  Instruction row_;
  const CpuProgram* cpu_;   // of the exact follower only
  Vector<Block*> fetched_;  // copies into shared memory annotated for cooperative fetch
  Asked asked_;             // annotations of the root block
  bool whole_warps_ = false;  // execute the blocks of tensor cores,
  Number warps_ = 0;          // so many in a thread block
  bool other_ = false;      // has annotations whose CPU postprocessors are not simulated

 public:
  Nest nest;
  Columns columns;
  Fingerprint fingerprint;

 private:
  // -- references

  Value Of(const ffi::Any& x) const {
    int number = variables_.Find(ObjectOf(x));
    if (number >= 0) return variables_[number];
    Value found;
    if (auto integer = IntegerOf(x)) {
      found.kind = Value::kNumber;
      found.number = *integer;
    } else if (!IsNone(x)) {
      found.kind = Value::kOther;
    }
    return found;
  }

  Block* BlockOf(const ffi::Any& x) const {
    Value found = Of(x);
    if (found.kind != Value::kBlock) throw Unsupported();
    return found.block;
  }

  Loop* LoopOf(const ffi::Any& x) const {
    Value found = Of(x);
    if (found.kind != Value::kLoop) throw Unsupported();
    return found.loop;
  }

  static Value As(Block* block) { return {Value::kBlock, block}; }
  static Value As(Loop* loop) { return {Value::kLoop, nullptr, loop}; }
  static Value As(Number number) { return {Value::kNumber, nullptr, nullptr, number}; }

  void GiveOne(const ffi::Any& output, const Value& value) { variables_.Set(ObjectOf(output), value); }

  template <typename T>
  void Give(const Vector<T*>& found) {
    if (found.size() < row_.outputs.size()) throw Unsupported();
    for (size_t k = 0; k < row_.outputs.size(); ++k) GiveOne(row_.outputs[k], As(found[k]));
  }

  void GiveBlock(Block* block) { Give(Vector<Block*>{block}); }

  const ffi::Any& Input(size_t k) const { return row_.inputs[k]; }
  const ffi::Any& Attribute(size_t k) const { return row_.attributes[k]; }

  // -- instructions; they return whether the program is unchanged

  bool Apply() {
    switch (row_.kind) {
      case Kind::GetSBlock:
      case Kind::GetBlock:
        return GetBlock(), true;
      case Kind::GetLoops:
        return GetLoops(), true;
      case Kind::GetChildBlocks:
        return GetChildren(), true;
      case Kind::GetProducers:
        return GetProducers(), true;
      case Kind::GetConsumers:
        return Give(nest.Consumers(BlockOf(Input(0)))), true;
      case Kind::SampleCategorical:
        return SampleCategorical(), true;
      case Kind::SamplePerfectTile:
      case Kind::SamplePartitionedTile:
        return SampleTile(), true;
      case Kind::SampleComputeLocation:
        return SampleLocation(), true;
      case Kind::EnterPostproc:
        return true;
      case Kind::Split:
        return SplitLoop(), false;
      case Kind::Fuse:
        return Count(k_count_FU), Give(Loops{Fuse(&nest, InputLoops())}), false;
      case Kind::Reorder:
        return Count(k_count_RE), Reorder(&nest, InputLoops()), false;
      case Kind::Parallel:
        return Mark(kParallel), false;
      case Kind::Vectorize:
        return Mark(kVectorize), false;
      case Kind::Unroll:
        return Mark(kUnroll), false;
      case Kind::Annotate:
        return Annotate(), false;
      case Kind::Unannotate:
        return false;
      case Kind::ComputeAt:
        return Locate(false), false;
      case Kind::ReverseComputeAt:
        return Locate(true), false;
      case Kind::ComputeInline:
        return Count(k_count_CI), Inline(&nest, BlockOf(Input(0))), false;
      case Kind::ReverseComputeInline:
        return Count(k_count_CI), InlineBack(BlockOf(Input(0))), false;
      case Kind::CacheRead:
        return Cache(), false;
      case Kind::CacheWrite:
        return CacheOutput(), false;
      case Kind::RFactor:
        return Factor(), false;
      case Kind::DecomposeReduction:
        return Decompose(), false;
      case Kind::TransformLayout:
        return Layout(), false;
      case Kind::Bind:
        return Mark(ThreadOf(Text(Attribute(0)))), false;
      case Kind::SetScope:
        return BlockOf(Input(0))->writes->scope = Text(Attribute(1)), false;
      case Kind::StorageAlign:
        return Count(k_count_SA), false;
      case Kind::ReIndex:
        return Reindex(), false;
      case Kind::TransformBlockLayout:
        return BlockLayout(), false;
      case Kind::PadEinsum:
        return Pad(), false;
      case Kind::Blockize:
        return GiveBlock(Blockize(&nest, LoopOf(Input(0)))), false;
      case Kind::Tensorize:
        return Tensorize(BlockOf(Input(0)), Text(Attribute(0))), false;
      case Kind::kOther:
        break;
    }
    throw Unsupported();
  }

  void Count(Column column) { ++columns[column]; }

  Loops InputLoops() {
    Loops loops;
    for (const ffi::Any& x : row_.inputs) loops.push_back(LoopOf(x));
    return loops;
  }

  void GetBlock() {
    String name = Text(Attribute(0));
    GiveBlock(name == "root" ? nest.root : Named(nest, name));
  }

  void GetLoops() {
    Give(LoopsOf(&nest, BlockOf(Input(0)), row_.outputs.size()));
  }

  void GetChildren() {
    Give(Live(nest.blocks));
  }

  void GetProducers() {
    Vector<Block*> found;
    for (const Read& read : BlockOf(Input(0))->reads)
      if (read.buffer->writer != nullptr && !Holds(found, read.buffer->writer)) found.push_back(read.buffer->writer);
    Give(found);
  }

  void SampleCategorical() {
    Number decision = row_.Choice();
    if (decision < 0 || row_.outputs.size() != 1) throw Unsupported();
    GiveOne(row_.outputs[0], As(Integer(List(Attribute(0))[size_t(decision)])));
  }

  void SampleTile() {
    Vector<Number> sizes = row_.Tile();
    if (sizes.size() < row_.outputs.size() || sizes.empty()) throw Unsupported();
    for (size_t k = 0; k < row_.outputs.size(); ++k) GiveOne(row_.outputs[k], As(sizes[k]));
  }

  void SampleLocation() {
    Block* block = BlockOf(Input(0));
    if (cpu_ != nullptr) *row_.drawn = Settled(nest, block, *row_.drawn);
    Number decision = row_.Decided() ? row_.Choice() : -1;
    Value found{decision == -1 ? Value::kRoot : decision == -2 ? Value::kInline : Value::kLoop};
    if (found.kind == Value::kLoop) {
      auto consumers = nest.Consumers(block);
      bool known = !consumers.empty() && decision >= 0 && size_t(decision) < consumers[0]->nest.size();
      // A vague nest is shorter than TVM's.
      found.loop = known ? consumers[0]->nest[decision] : nest.NewLoop(0, 'S', {{-1, 0}}, nullptr);
    }
    if (row_.outputs.size() != 1) throw Unsupported();
    GiveOne(row_.outputs[0], found);
  }

  void SplitLoop() {
    Count(k_count_SP);
    Vector<Number> sizes;
    int inferred = -1;
    for (size_t k = 1; k < row_.inputs.size(); ++k) {
      Value given = Of(row_.inputs[k]);
      if (given.kind == Value::kNone && inferred < 0) inferred = int(k) - 1;
      sizes.push_back(given.kind == Value::kNumber ? given.number : 0);
    }
    Give(Split(&nest, LoopOf(Input(0)), std::move(sizes), inferred));
  }

  void Mark(int annotation) {
    Count(k_count_AN);
    Loop* loop = LoopOf(Input(0));
    loop->annotation = annotation;
    bool main = loop->owner != nullptr && loop->owner->source != nullptr;  // others' extents may be unknown
    if (annotation == kThreadY && main) warps_ = loop->extent;
  }

  static int ThreadOf(const String& tag) {
    if (tag.rfind("vthread", 0) == 0) return kVthread;
    static const char* const tags[] = {"blockIdx.x",  "threadIdx.x", "blockIdx.y",
                                       "threadIdx.y", "blockIdx.z",  "threadIdx.z"};
    for (int k = 0; k < 6; ++k)
      if (tag == tags[k]) return kBlockX + k;
    return 0;
  }

  void Annotate() {
    Value on = Of(Input(0)), value = Of(Input(1));
    String key = Text(Attribute(0));
    if (key == "software_pipeline_stage") columns[k_trace_pipeline] = 1;
    if (on.kind == Value::kLoop && key == "pragma_auto_unroll_max_step" && value.kind == Value::kNumber)
      for (Block* block : nest.Under(on.loop)) block->unroll = std::max(block->unroll, value.number);
    if (on.kind != Value::kBlock) return;
    if (key == "meta_schedule.layout_rewrite_preproc") on.block->role = Role::kBefore;
    if (key == "meta_schedule.cooperative_fetch" && value.kind == Value::kNumber) {
      on.block->fetch = value.number;
      on.block->warps = whole_warps_ ? warps_ : 0;
      fetched_.push_back(on.block);
    }
    whole_warps_ |= key == "warp_execution";
    if (key == "meta_schedule.auto_tensorize") on.block->wanted = Text(Input(1));
    if (key == "meta_schedule.auto_tensorize_init") on.block->wanted_init = Text(Input(1));
    if (Number* asked = asked_.At(key))
      *asked = value.kind == Value::kNumber ? value.number : kUnknown;
    else
      other_ |= key.rfind("meta_schedule.", 0) == 0 && key != "meta_schedule.tiling_structure" &&
                key != "meta_schedule.random_compute_producer";
  }

  void Locate(bool back) {
    Count(k_count_CA);
    Block* block = BlockOf(Input(0));
    Value where = Of(Input(1));
    if (where.kind == Value::kInline) return Inline(&nest, block);
    if (where.kind == Value::kRoot) return;
    if (where.kind != Value::kLoop) throw Unsupported();
    ComputeAt(&nest, block, where.loop, back);
  }

  void Cache() {
    Count(k_count_CHR);
    Vector<Block*> named;
    if (row_.inputs.size() > 1)
      for (const ffi::Any& block : List(Input(1))) named.push_back(BlockOf(block));
    GiveBlock(CacheRead(&nest, BlockOf(Input(0)), Integer(Attribute(0)), Text(Attribute(1)), named));
  }

  void CacheOutput() {
    Count(k_count_CHW);
    GiveBlock(CacheWrite(&nest, BlockOf(Input(0)), Text(Attribute(1))));
  }

  void Factor() {
    Count(k_count_RF);
    Number axis = row_.attributes.empty() ? 0 : Integer(Attribute(0));
    GiveBlock(RFactor(&nest, LoopOf(Input(0)), axis));
  }

  void Decompose() { GiveBlock(DecomposeReduction(&nest, BlockOf(Input(0)), LoopOf(Input(1)))); }

  // -- MetaSchedule's postprocessors

  static constexpr Number kUnknown = std::numeric_limits<Number>::min();
  static constexpr Number kWarp = 32;

  void Offset(const CpuProgram& cpu) {
    for (Block* block : nest.blocks) {
      if (size_t(block->stage) >= cpu.offsets.size()) throw Unsupported();
      const auto& offsets = cpu.offsets[size_t(block->stage)];
      if (offsets.size() != block->reads.size()) throw Unsupported();
      for (size_t k = 0; k < offsets.size(); ++k) block->reads[k].offsets = &offsets[k];
    }
  }

  bool PostprocessForCpu(Follower* exact) {
    for (Number value : {asked_.parallel, asked_.vectorize, asked_.unroll_explicit, asked_.unroll_implicit})
      other_ |= value < -1;
    if (other_) throw Unsupported();
    return CpuProcessors(&exact->nest, &nest, &columns, asked_, *exact->cpu_).Apply();
  }

  // -- MetaSchedule's CUDA postprocessors; they return whether the last step leaves the program unchanged

  bool Postprocess() {
    if (asked_.unroll_implicit != -1 || asked_.parallel != -1 || asked_.vectorize != -1) throw Unsupported();
    Number unroll = asked_.unroll_explicit;  // so far; below 0: no annotation
    for (Block* block : fetched_) FetchTogether(block);
    auto grid = [](const Loop* loop) { return IsGrid(loop->annotation); };
    for (const Block* block : nest.blocks)  // RewriteUnboundBlock would bind it
      if (!block->inlined && std::none_of(block->nest.begin(), block->nest.end(), grid)) throw Unsupported();
    bool pure = fetched_.empty();
    if (unroll >= 0) ++columns[k_steps];  // Unannotate
    Vector<Block*> reductions;
    for (Block* block : Live(nest.blocks)) {
      pure = pure || unroll >= 0;  // GetLoops
      if (!Reduces(block)) continue;
      reductions.push_back(block);
      if (unroll <= 0) continue;
      for (Block* each : nest.Under(block->nest.at(0))) each->unroll = std::max(each->unroll, unroll);
      columns[k_steps] += 2;  // two annotations: length, and explicit
      pure = false;
    }
    for (Block* block : reductions) {
      auto sums = [&](const Part& part) {
        if (part.iterator < 0) return true;
        return part.extent != 1 && block->iterators.at(size_t(part.iterator)).kind != 'S';
      };
      auto reduces = [&](const Loop* loop) {  // a loop fused with a reduction of one iteration does not
        return loop->kind == 'R' || (loop->kind == 'M' && std::any_of(loop->parts.begin(), loop->parts.end(), sums));
      };
      auto across = [&](const Loop* loop) { return reduces(loop) && IsBound(loop->annotation); };
      if (std::any_of(block->nest.begin(), block->nest.end(), across)) continue;  // cross-thread reduction
      auto first = std::find_if(block->nest.begin(), block->nest.end(), reduces);
      auto bound = [](const Loop* loop) { return IsBound(loop->annotation); };
      if (first == block->nest.end() || std::any_of(first, block->nest.end(), bound)) throw Unsupported();
      Block* init = DecomposeReduction(&nest, block, *first);
      ++columns[k_steps];
      pure = false;
      if (block->wanted.empty()) continue;
      if (block->wanted_init.empty()) throw Unsupported();
      init->wanted = block->wanted_init;
      columns[k_steps] += 4;  // of the annotations that the two blocks share
    }
    for (Block* block : Live(nest.blocks)) {  // RewriteTensorize
      if (block->wanted.empty()) continue;
      Tensorize(block, block->wanted);
      columns[k_steps] += 2;  // Unannotate and Tensorize
      pure = false;
    }
    return pure;
  }

  // RewriteCooperativeFetch: a block's threads share a copy, each with vectors of `fetch` elements if that divides it.
  void FetchTogether(Block* block) {
    if (block->nest.empty()) throw Unsupported();
    Number lanes = block->fetch, extent = block->nest.back()->extent;
    Vector<Number> sizes{0};
    if (whole_warps_) {  // an unknown extent is whole matrices of a warp, which the lanes divide
      if (block->warps == 0) throw Unsupported();
      sizes.push_back(block->warps);
      sizes.push_back(kWarp);
    } else {
      sizes.push_back(1);
      for (const Loop* loop : block->nest) {
        if (IsThread(loop->annotation) && loop->annotation != kThreadX) throw Unsupported();
        if (IsThread(loop->annotation)) sizes[1] = loop->extent;
      }
      if (extent == 0) throw Unsupported();
    }
    bool vector = lanes > 1 && extent % lanes == 0;
    if (vector) sizes.push_back(lanes);
    Count(k_count_SP);
    Loops parts = Split(&nest, block->nest.back(), sizes, 0);
    if (vector) parts.back()->annotation = kVectorize;
    if (whole_warps_) parts[1]->annotation = kThreadY;
    parts[whole_warps_ ? 2 : 1]->annotation = kThreadX;
    columns[k_count_AN] += 1 + whole_warps_ + vector;
    columns[k_steps] += 3 + whole_warps_ + vector;  // Unannotate, Split, Bind and Vectorize
  }

  void Layout() {
    Count(k_trace_layout);
    Block* block = BlockOf(Input(0));
    Number place = Integer(Attribute(0));
    bool writes = Integer(Attribute(1)) != 0;
    Buffer* buffer = writes ? block->writes : ReadAt(block, place - block->decomposed).buffer;
    IndexMapView map(ObjectOf(Input(1)));
    TransformLayout(&nest, buffer, map.Shape(buffer->shape), map.Order(), map.Variables());
  }

  void BlockLayout() {
    Count(k_trace_layout);
    Block* block = BlockOf(Input(0));
    IndexMapView map(ObjectOf(row_.attributes.empty() ? Input(1) : Attribute(0)));
    TransformBlock(&nest, block, map.Shape(ExtentsOf(block->iterators)), map.Variables());
  }

  void Reindex() {
    Count(k_trace_reindex);
    GiveBlock(ReIndex(&nest, BlockOf(Input(0)), Integer(Attribute(0)), Integer(Attribute(1)) != 0));
  }

  void Pad() {
    Vector<Number> padding;
    for (const ffi::Any& by : List(Attribute(0))) padding.push_back(Integer(by));
    PadEinsum(&nest, BlockOf(Input(0)), padding);
  }

  void Tensorize(Block* block, const String& intrinsic) {
    Count(k_trace_tensorized);
    for (Loop* loop : block->tail) loop->annotation = kTensorize;
    block->intrinsic = intrinsic;
  }
};

}  // namespace wmsched

#endif  // WMSCHED_FOLLOW_H_
