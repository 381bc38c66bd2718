// Kinds of a trace's instructions, and its random variables.
#ifndef WMSCHED_KINDS_H_
#define WMSCHED_KINDS_H_

#include <unordered_map>
#include <vector>

#include "objects.h"

namespace wmsched {

// Kinds of instructions, with the sampling ones together; only Python knows a kOther.
#define WMSCHED_KINDS(X)                                                                                           \
  X(GetSBlock) X(GetBlock) X(GetLoops) X(GetChildBlocks) X(GetProducers) X(GetConsumers) X(SampleCategorical)       \
  X(SamplePerfectTile) X(SamplePartitionedTile) X(SampleComputeLocation) X(EnterPostproc) X(Split) X(Fuse)         \
  X(Reorder) X(Parallel) X(Vectorize) X(Unroll) X(Annotate) X(Unannotate) X(ComputeAt) X(ReverseComputeAt)         \
  X(ComputeInline) X(ReverseComputeInline) X(CacheRead) X(CacheWrite) X(RFactor) X(DecomposeReduction)             \
  X(TransformLayout) X(Bind) X(SetScope) X(StorageAlign) X(ReIndex) X(TransformBlockLayout) X(PadEinsum)            \
  X(Blockize) X(Tensorize)

enum class Kind {
#define WMSCHED_ENUM(name) name,
  WMSCHED_KINDS(WMSCHED_ENUM)
#undef WMSCHED_ENUM
      kOther
};

// TVM has one object a kind, so each name is read once.
inline Kind KindOf(const ffi::Object* kind) {
  thread_local std::unordered_map<const ffi::Object*, Kind> known;
  auto found = known.find(kind);
  if (found != known.end()) return found->second;
  Kind named = Kind::kOther;
  const String name = Text(Fields::Get().name(kind));
#define WMSCHED_NAMED(each) \
  if (name == #each) named = Kind::each;
  WMSCHED_KINDS(WMSCHED_NAMED)
#undef WMSCHED_NAMED
  return known[kind] = named;
}

// Value of a random variable.
struct Value {
  enum Kind { kBlock, kLoop, kNumber, kRoot, kInline, kNone, kOther } kind = kNone;
  Block* block = nullptr;
  Loop* loop = nullptr;
  Number number = 0;
};

// Random variables of a trace by object, numbered in the order of their definition.
class Variables {
 public:
  // The variable's number; -1 if the object is none.
  int Find(const ffi::Object* object) const {
    if (object == nullptr) return -1;
    size_t at = Slot(object);
    return slots_[at].object == object ? slots_[at].number : -1;
  }

  const Value& operator[](int number) const { return values_[number]; }

  void Set(const ffi::Object* object, const Value& value) {
    if (object == nullptr) throw Unsupported();
    if (values_.size() * 2 >= slots_.size()) Grow();
    Named& named = slots_[Slot(object)];
    if (named.object == nullptr) {
      named = {object, int(values_.size())};
      values_.push_back(value);
    }
    values_[named.number] = value;
  }

 private:
  struct Named {
    const ffi::Object* object = nullptr;
    int number = -1;
  };
  size_t Slot(const ffi::Object* object) const {
    size_t at = (reinterpret_cast<uintptr_t>(object) >> 4) * 0x9e3779b97f4a7c15ull >> shift_;
    while (slots_[at].object != nullptr && slots_[at].object != object) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void Grow() {
    Vector<Named> before(slots_.size() * 2);
    before.swap(slots_);
    --shift_;
    for (const Named& named : before)
      if (named.object != nullptr) slots_[Slot(named.object)] = named;
  }
  int shift_ = 64 - 9;
  Vector<Named> slots_ = Vector<Named>(size_t(1) << 9);
  Vector<Value> values_;
};

// Decisions that replace a trace's own, one after the other; a tile has one a factor.
struct Drawn {
  Number* next = nullptr;
  Number* end = nullptr;

  Number* Take(size_t count) {
    if (size_t(end - next) < count) throw Unsupported();
    Number* taken = next;
    next += count;
    return taken;
  }
};

// An instruction of a trace, and its decision (null for none).
struct Instruction {
  Kind kind = Kind::kOther;
  List inputs, attributes, outputs;
  const ffi::Any* decision = nullptr;
  Number* drawn = nullptr;  // replaces the decision; null: the trace's own

  bool Decided() const { return drawn != nullptr || !IsNone(*decision); }

  Number Choice() const { return drawn != nullptr ? *drawn : Integer(*decision); }

  // The factors of a tile, at least one an output.
  Vector<Number> Tile() const {
    if (drawn != nullptr) return Vector<Number>(drawn, drawn + outputs.size());
    Vector<Number> sizes;
    for (const ffi::Any& size : List(*decision)) sizes.push_back(Integer(size));
    return sizes;
  }

  void Draw(Drawn* from) {
    if (kind == Kind::SamplePerfectTile)
      drawn = from->Take(outputs.size());
    else if (kind == Kind::SampleCategorical || kind == Kind::SampleComputeLocation)
      drawn = from->Take(1);
    else if (kind == Kind::SamplePartitionedTile)
      throw Unsupported();  // the choices depend on the program at that point
  }
};

// The instructions of a trace.
class Instructions {
 public:
  explicit Instructions(const ffi::Object* trace)
      : all_(Fields::Get().instructions(trace)), decisions_(Fields::Get().decisions(trace)) {
    // Prefetch the next instructions: a search's candidates are scattered in memory.
    const Fields& fields = Fields::Get();
    const ObjectField* const lists[] = {&fields.inputs, &fields.attributes, &fields.outputs};
    for (const ffi::Any& each : all_) __builtin_prefetch(ObjectOf(each));
    for (const ffi::Any& each : all_)
      for (const ObjectField* field : lists) __builtin_prefetch((*field)(ObjectOf(each)));
    for (const ffi::Any& each : all_)
      for (const ObjectField* field : lists) __builtin_prefetch(List((*field)(ObjectOf(each))).begin());
  }

  size_t size() const { return all_.size(); }

  Instruction operator[](size_t k) const {
    static const ffi::Any none;
    const Fields& fields = Fields::Get();
    const ffi::Object* object = ObjectOf(all_[k]);
    Instruction row{KindOf(fields.kind(object)), List(fields.inputs(object)), List(fields.attributes(object)),
                    List(fields.outputs(object)), &none};
    if (row.kind >= Kind::SampleCategorical && row.kind <= Kind::SampleComputeLocation) {
      auto* decisions = static_cast<const ffi::MapObj*>(decisions_);
      auto found = decisions->find(all_[k]);
      if (found != decisions->end()) row.decision = &(*found).second;
    }
    return row;
  }

 private:
  List all_;
  const ffi::Object* decisions_;
};

// The instructions of a trace that many rows of decisions are read with, without its own decisions.
inline std::vector<Instruction> InstructionsOf(const ffi::Object* trace) {
  Instructions instructions(trace);
  std::vector<Instruction> found;
  for (size_t k = 0; k < instructions.size(); ++k) found.push_back(instructions[k]);
  return found;
}

}  // namespace wmsched

#endif  // WMSCHED_KINDS_H_
