// Hashes of a trace and of its family (`search/diversity.py`).
#ifndef WMSCHED_FINGERPRINT_H_
#define WMSCHED_FINGERPRINT_H_

#include <cmath>
#include <cstring>
#include <vector>

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

// What the hashes of one trace have in common, whatever is decided.
struct Fixed {
  Digest digest;
  std::vector<std::vector<uint64_t>> structure;  // ascending
};

class Fingerprint {
 public:
  // `fixed` spares the hashing of what it has.
  explicit Fingerprint(const Variables& variables, const Fixed* fixed = nullptr)
      : variables_(variables), fixed_(fixed) {}

  // Add the next instruction, after its outputs have numbers.
  void Add(const Instruction& row) {
    if (fixed_ == nullptr) {
      digest_.Add(uint64_t(row.kind));
      Add(row.inputs);
      Add(row.attributes);
      digest_.Add(row.outputs.size());
    }
    if (row.kind >= Kind::SampleCategorical && row.kind <= Kind::SampleComputeLocation) AddDecision(row);
    if (row.kind == Kind::EnterPostproc) entered_ = true;  // the rest only carries out earlier annotations
    if (entered_) return;
    if (row.kind == Kind::SamplePerfectTile) AddTile(row.Tile());
    if (row.kind < Kind::SampleComputeLocation || row.kind == Kind::Split || row.kind == Kind::Annotate) return;
    Vector<uint64_t> part{uint64_t(row.kind)};
    if (row.kind == Kind::SampleComputeLocation) {
      part.push_back(uint64_t(std::min<Number>(0, row.Decided() ? row.Choice() : 0)));
      decided_.insert(std::move(part));
      return;
    }
    if (fixed_ != nullptr) return;
    for (const ffi::Any& x : row.inputs) {
      int number = variables_.Find(ObjectOf(x));
      if (number >= 0 && variables_[number].kind == Value::kBlock) part.push_back(uint64_t(number));
    }
    structure_.insert(std::move(part));
  }

  // What other rows of the same trace may be given, after the last instruction.
  Fixed Common() const {
    Fixed fixed{digest_, {}};
    for (const auto& part : structure_) fixed.structure.emplace_back(part.begin(), part.end());
    return fixed;
  }

  void Trace(int64_t* out) const {
    int64_t decisions[2];
    decisions_.Write(decisions);
    Digest digest = fixed_ != nullptr ? fixed_->digest : digest_;
    for (int64_t word : decisions) digest.Add(uint64_t(word));
    digest.Write(out);
  }

  void Family(int64_t* out) const {
    Digest digest;
    auto add = [&](const auto& part) {
      digest.Add(part.size());
      for (uint64_t x : part) digest.Add(x);
    };
    if (fixed_ != nullptr)
      for (const auto& part : fixed_->structure) add(part);
    for (const auto& part : structure_) add(part);
    for (const auto& part : decided_) add(part);  // their kind is in no other part
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
    if (row.drawn == nullptr) {
      if (IsNone(*row.decision)) return decisions_.Add(0);
      if (row.kind != Kind::SamplePerfectTile && row.kind != Kind::SamplePartitionedTile)
        return decisions_.Add(uint64_t(row.Choice()));
    }
    for (Number factor : row.kind == Kind::SampleCategorical || row.kind == Kind::SampleComputeLocation
                             ? Vector<Number>{row.Choice()}
                             : row.Tile())
      decisions_.Add(uint64_t(factor));
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
  const Fixed* fixed_;
  Digest digest_, decisions_;
  bool entered_ = false;
  Set<Vector<uint64_t>> structure_, decided_;
  Vector<Vector<Number>> tiles_;
};

}  // namespace wmsched

#endif  // WMSCHED_FINGERPRINT_H_
