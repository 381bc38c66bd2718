// Access to TVM's traces in place, by field names: needs the headers of TVM's FFI only.
#ifndef WMSCHED_OBJECTS_H_
#define WMSCHED_OBJECTS_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/accessor.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "arena.h"
#include "number.h"

namespace wmsched {

namespace ffi = tvm::ffi;

// The elements of an FFI array in place, without reference counts or copies.
struct List {
  const ffi::Any* first = nullptr;
  size_t count = 0;

  List() = default;
  explicit List(const ffi::Object* array) {
    if (array == nullptr || array->type_index() != ffi::TypeIndex::kTVMFFIArray) throw Unsupported();
    auto* elements = static_cast<const ffi::ArrayObj*>(array);
    first = elements->begin();
    count = elements->size();
  }
  explicit List(const ffi::Any& any) : List(any.as<ffi::Object>()) {}

  const ffi::Any* begin() const { return first; }
  const ffi::Any* end() const { return first + count; }
  size_t size() const { return count; }
  bool empty() const { return count == 0; }
  const ffi::Any& operator[](size_t k) const {
    if (k >= count) throw Unsupported();
    return first[k];
  }
};

// A field that refers to another object; a reference is a pointer (`ffi::ObjectRef`).
class ObjectField {
 public:
  ObjectField(std::string_view type, const char* name) {
    const TVMFFIFieldInfo* info = ffi::reflection::GetFieldInfo(type, name);
    if (info->size != int64_t(sizeof(void*))) TVM_FFI_THROW(TypeError) << type << "." << name << " is no reference";
    offset_ = info->offset;
  }
  const ffi::Object* operator()(const ffi::Object* object) const {
    return *reinterpret_cast<const ffi::Object* const*>(reinterpret_cast<const char*>(object) + offset_);
  }

 private:
  int64_t offset_;
};

// The fields that this reader uses; throws if this TVM lacks one.
struct Fields {
  ObjectField schedule{"s_tir.meta_schedule.MeasureCandidate", "sch"};
  ObjectField instructions{"s_tir.Trace", "insts"}, decisions{"s_tir.Trace", "decisions"};
  ObjectField kind{"s_tir.Instruction", "kind"}, inputs{"s_tir.Instruction", "inputs"};
  ObjectField attributes{"s_tir.Instruction", "attrs"}, outputs{"s_tir.Instruction", "outputs"};
  ffi::reflection::FieldGetter name{"s_tir.InstructionKind", "name"};
  ffi::reflection::FieldGetter value{"ir.IntImm", "value"}, real_value{"ir.FloatImm", "value"};
  ObjectField initial{"tirx.IndexMap", "initial_indices"}, final{"tirx.IndexMap", "final_indices"};
  ffi::Function trace = ffi::Function::GetGlobalRequired("s_tir.schedule.ScheduleGetTrace");
  int32_t integer = Index("ir.IntImm"), real = Index("ir.FloatImm"), map = Index("tirx.IndexMap");
  struct Binary {
    int32_t type;
    ObjectField a, b;
  };
  int32_t cast = Index("prim.Cast");
  ObjectField cast_of{"prim.Cast", "value"};
  Binary add = Of("prim.Add"), mul = Of("prim.Mul"), div = Of("prim.FloorDiv"), mod = Of("prim.FloorMod");

  static int32_t Index(std::string_view key) {
    int32_t index;
    TVMFFIByteArray name{key.data(), key.size()};
    TVM_FFI_CHECK_SAFE_CALL(TVMFFITypeKeyToIndex(&name, &index));
    return index;
  }

  static Binary Of(std::string_view key) { return {Index(key), ObjectField(key, "a"), ObjectField(key, "b")}; }

  static const Fields& Get() {
    static const Fields fields;
    return fields;
  }
};

inline const ffi::Object* ObjectOf(const ffi::Any& any) { return any.as<ffi::Object>(); }

inline std::optional<Number> IntegerOf(const ffi::Object* object) {
  if (object == nullptr || object->type_index() != Fields::Get().integer) return std::nullopt;
  return Fields::Get().value(object).cast<int64_t>();
}

// An integer, TVM's or the FFI's; none for anything else.
inline std::optional<Number> IntegerOf(const ffi::Any& any) {
  switch (any.type_index()) {
    case ffi::TypeIndex::kTVMFFIInt:
    case ffi::TypeIndex::kTVMFFIBool:
      return any.cast<int64_t>();
  }
  return IntegerOf(ObjectOf(any));
}

inline Number Integer(const ffi::Any& any) {
  auto found = IntegerOf(any);
  if (!found) throw Unsupported();
  return *found;
}

inline bool IsNone(const ffi::Any& any) { return any.type_index() == ffi::TypeIndex::kTVMFFINone; }

inline std::optional<String> TextOf(const ffi::Any& any) {
  auto found = any.as<ffi::String>();
  if (!found) return std::nullopt;
  return String(found->data(), found->size());
}

inline String Text(const ffi::Any& any) {
  auto found = TextOf(any);
  if (!found) throw Unsupported();
  return *found;
}

// An index map's new shape, and its permutation if it only reorders indices; see `wmsched/schedules/index_maps.py`.
class IndexMapView {
 public:
  explicit IndexMapView(const ffi::Object* map) {
    if (map == nullptr || map->type_index() != Fields::Get().map) throw Unsupported();
    initial_ = List(Fields::Get().initial(map));
    final_ = List(Fields::Get().final(map));
  }

  // Each expression at the largest indices, plus one; 0: unknown.
  Vector<Number> Shape(const Vector<Number>& shape) const {
    Vector<Number> sizes;
    for (const ffi::Any& expression : final_) {
      auto top = Top(ObjectOf(expression), shape);
      sizes.push_back(top ? *top + 1 : 0);
    }
    return sizes;
  }

  Vector<int> Order() const {
    if (final_.size() != initial_.size()) return {};
    Vector<int> order;
    Vector<bool> seen(initial_.size());
    for (const ffi::Any& expression : final_) {
      int place = Place(ObjectOf(expression));
      if (place < 0 || seen[place]) return {};
      seen[place] = true;
      order.push_back(place);
    }
    return order;
  }

  // The old indices that are in each new one, in their order.
  Vector<Vector<int>> Variables() const {
    Vector<Vector<int>> found;
    for (const ffi::Any& expression : final_) {
      Vector<bool> seen(initial_.size());
      See(ObjectOf(expression), &seen);
      found.emplace_back();
      for (size_t k = 0; k < seen.size(); ++k)
        if (seen[k]) found.back().push_back(int(k));
    }
    return found;
  }

  const List& final() const { return final_; }

  // Index of the map's variable that the expression is, ignoring casts; Relax's shapes have 64 bits.
  int Place(const ffi::Object* expression) const {
    expression = Uncast(expression);
    for (size_t k = 0; k < initial_.size(); ++k)
      if (ObjectOf(initial_[k]) == expression) return int(k);
    return -1;
  }

  static const ffi::Object* Uncast(const ffi::Object* expression) {
    const Fields& fields = Fields::Get();
    while (expression != nullptr && expression->type_index() == fields.cast)
      expression = ObjectOf(fields.cast_of(expression));
    return expression;
  }

  // The kind of a binary expression; null for any other.
  static const Fields::Binary* BinaryOf(const ffi::Object* expression) {
    const Fields& fields = Fields::Get();
    for (const Fields::Binary* binary : {&fields.add, &fields.mul, &fields.div, &fields.mod})
      if (expression->type_index() == binary->type) return binary;
    return nullptr;
  }

 private:
  void See(const ffi::Object* expression, Vector<bool>* seen) const {
    expression = Uncast(expression);
    if (expression == nullptr) return;
    int place = Place(expression);
    if (place >= 0) (*seen)[size_t(place)] = true;
    const Fields::Binary* binary = place >= 0 ? nullptr : BinaryOf(expression);
    if (binary == nullptr) return;
    See(binary->a(expression), seen);
    See(binary->b(expression), seen);
  }

  std::optional<Number> Top(const ffi::Object* expression, const Vector<Number>& shape) const {
    expression = Uncast(expression);
    if (expression == nullptr) return std::nullopt;
    int place = Place(expression);
    if (place >= 0) {
      if (size_t(place) < shape.size()) return shape[place] - 1;
      return std::nullopt;
    }
    if (auto value = IntegerOf(expression)) return value;
    const Fields::Binary* binary = BinaryOf(expression);
    if (binary == nullptr) return std::nullopt;
    auto a = Top(binary->a(expression), shape), b = Top(binary->b(expression), shape);
    if (!a || !b) return std::nullopt;
    if (*a < 0 || *b < 0) throw Unsupported();
    const Fields& fields = Fields::Get();
    if (binary == &fields.add) return *a + *b;
    if (binary == &fields.mul) return Times(*a, *b);
    return binary == &fields.div ? *a / std::max<Number>(*b, 1) : std::min(*a, *b - 1);
  }

  List initial_, final_;
};

}  // namespace wmsched

#endif  // WMSCHED_OBJECTS_H_
