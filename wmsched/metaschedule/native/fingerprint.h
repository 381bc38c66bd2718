// Hashes of a trace and of its family (`search/diversity.py`).
#ifndef WMSCHED_FINGERPRINT_H_
#define WMSCHED_FINGERPRINT_H_

#include <cmath>
#include <cstring>

#include "kinds.h"

namespace wmsched {

// Two independent 64-bit hashes of a sequence.
class Digest {
 public:
  void Add(uint64_t x) {
    a_ = Mix((a_ ^ x) + 0x9e3779b97f4a7c15ull);
    b_ = Mix((b_ + x) * 0xff51afd7ed558ccdull ^ 0xc4ceb9fe1a85ec53ull);
  }
  void Add(const char* text, size_t size) {
    Add(size);
    for (size_t k = 0; k < size; k += 8) {
      uint64_t word = 0;
      std::memcpy(&word, text + k, std::min<size_t>(8, size - k));
      Add(word);
    }
  }
  void Write(int64_t* out) const {
    out[0] = int64_t(a_);
    out[1] = int64_t(b_);
  }

 private:
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }
  uint64_t a_ = 1, b_ = 2;
};

class Fingerprint {
 public:
  explicit Fingerprint(const Variables& variables) : variables_(variables) {}

  // Add the next instruction, after its outputs have numbers.
  void Add(const Instruction& row) {
    digest_.Add(uint64_t(row.kind));
    Add(row.inputs);
    Add(row.attributes);
    digest_.Add(row.outputs.size());
    AddDecision(row);
    if (row.kind == Kind::EnterPostproc) entered_ = true;  // the rest only carries out earlier annotations
    if (entered_) return;
    if (row.kind == Kind::SamplePerfectTile) AddTile(row.Tile());
    if (row.kind < Kind::SampleComputeLocation || row.kind == Kind::Split || row.kind == Kind::Annotate) return;
    Vector<uint64_t> part{uint64_t(row.kind)};
    if (row.kind == Kind::SampleComputeLocation) {
      part.push_back(uint64_t(std::min<Number>(0, row.Decided() ? row.Choice() : 0)));
    } else {
      for (const ffi::Any& x : row.inputs) {
        int number = variables_.Find(ObjectOf(x));
        if (number >= 0 && variables_[number].kind == Value::kBlock) part.push_back(uint64_t(number));
      }
    }
    structure_.insert(std::move(part));
  }

  void Trace(int64_t* out) const { digest_.Write(out); }

  void Family(int64_t* out) const {
    Digest digest;
    for (const auto& part : structure_) {
      digest.Add(part.size());
      for (uint64_t x : part) digest.Add(x);
    }
    for (double x : Tile()) digest.Add(uint64_t(int64_t(x)));
    digest.Write(out);
  }

 private:
  void Add(const ffi::Any& x) {
    digest_.Add(uint64_t(x.type_index()));
    int variable = variables_.Find(ObjectOf(x));
    if (variable >= 0) return digest_.Add(uint64_t(variable));
    if (auto number = IntegerOf(x)) return digest_.Add(uint64_t(*number));
    if (x.type_index() == ffi::TypeIndex::kTVMFFIArray) return Add(List(x));
    if (x.type_index() == ffi::TypeIndex::kTVMFFIFloat) return AddReal(x.cast<double>());
    if (auto text = x.as<ffi::String>()) return digest_.Add(text->data(), text->size());
    if (IsNone(x)) return;
    // Other values cannot be compared: memory is reused, so an address identifies nothing.
    const ffi::Object* object = ObjectOf(x);
    if (object == nullptr) throw Unsupported();
    if (object->type_index() == Fields::Get().map) {
      IndexMapView map(object);
      digest_.Add(map.final().size());
      for (const ffi::Any& expression : map.final()) AddExpression(map, ObjectOf(expression));
      return;
    }
    if (object->type_index() != Fields::Get().real) throw Unsupported();
    AddReal(Fields::Get().real_value(object).cast<double>());
  }

  void AddReal(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    digest_.Add(bits);
  }

  void Add(const List& list) {
    digest_.Add(list.size());
    for (const ffi::Any& x : list) Add(x);
  }

  void AddExpression(const IndexMapView& map, const ffi::Object* expression) {
    expression = IndexMapView::Uncast(expression);
    if (expression == nullptr) throw Unsupported();
    digest_.Add(uint64_t(expression->type_index()));
    int place = map.Place(expression);
    if (place >= 0) return digest_.Add(uint64_t(place));
    int variable = variables_.Find(expression);  // a tile's factor
    if (variable >= 0) return digest_.Add(~uint64_t(variable));
    if (auto number = IntegerOf(expression)) return digest_.Add(uint64_t(*number));
    const Fields::Binary* binary = IndexMapView::BinaryOf(expression);
    if (binary == nullptr) throw Unsupported();
    AddExpression(map, binary->a(expression));
    AddExpression(map, binary->b(expression));
  }

  void AddDecision(const Instruction& row) {
    if (row.drawn == nullptr) return Add(*row.decision);
    size_t count = row.kind == Kind::SamplePerfectTile ? row.outputs.size() : 1;
    for (size_t k = 0; k < count; ++k) digest_.Add(uint64_t(row.drawn[k]));
  }

  void AddTile(Vector<Number> factors) {
    for (Number& factor : factors) factor = std::max<Number>(1, factor);
    if (!factors.empty()) tiles_.push_back(std::move(factors));
  }

  // The four numbers of the tiles, as `diversity._tile`; none without a tile.
  Vector<double> Tile() const {
    if (tiles_.empty()) return {};
    auto inside = [](const Vector<Number>& factors) {
      return factors.size() > 1 ? Vector<Number>(factors.begin() + 1, factors.end()) : factors;
    };
    size_t levels = 0;
    for (const auto& factors : tiles_) levels = std::max(levels, inside(factors).size());
    double inner = 1, outer = 1, vector = 1, reduced = 1;
    for (const auto& factors : tiles_) {
      auto lengths = inside(factors);
      double innermost = double(lengths.back());
      if (lengths.size() != levels) {
        reduced *= innermost;
        continue;
      }
      Number extent = 1, within = 1;
      for (Number factor : factors) extent = Times(extent, factor);
      for (Number length : lengths) within = Times(within, length);
      vector = innermost;
      inner *= innermost;
      outer *= double(std::max<Number>(1, extent / within));
    }
    auto rough = [](double number, int bits) { return number > 1 ? std::nearbyint(std::log2(number) / bits) : 0.0; };
    return {rough(inner, 3), rough(outer, 4), rough(vector, 2), rough(reduced, 3)};
  }

  const Variables& variables_;
  Digest digest_;
  bool entered_ = false;
  Set<Vector<uint64_t>> structure_;
  Vector<Vector<Number>> tiles_;
};

}  // namespace wmsched

#endif  // WMSCHED_FINGERPRINT_H_
