// Columns of the heaviest stage's loops: `step_features._main` and `features/kernel.py` in C++, explained there.
#ifndef WMSCHED_KERNEL_H_
#define WMSCHED_KERNEL_H_

#include <numeric>

#include "columns.h"

namespace wmsched {

class Kernel {
 public:
  explicit Kernel(const StageView& main) : source_(*main.block->source), unroll_(main.block->unroll) {
    for (const Loop* loop : main.loops) {
      if (loop->extent <= 0 || loop->parts.empty()) throw Unsupported();
      if (loop->annotation == kVectorize) {
        if (marked_ != nullptr) throw Unsupported();
        marked_ = loop;
      }
      if (loop->extent != 1) loops_.push_back(loop);
    }
    if (main.loops.empty()) throw Unsupported();
    if (marked_ != nullptr && marked_->extent != 1) {
      vector_ = marked_;
      lanes_ = double(vector_->extent);
      axis_ = vector_->parts.back().iterator;
    }
    registers_ = std::ceil(lanes_ / kLanes);
    for (const Source::Access& read : source_.reads) reads_.push_back(&read);
    auto elements = [](const Source::Access* read) {
      return std::accumulate(read->shape.begin(), read->shape.end(), 1.0, [](double a, Number b) { return a * b; });
    };
    std::stable_sort(reads_.begin(), reads_.end(), [&](auto* a, auto* b) { return elements(a) > elements(b); });
    block_ = Suffix(loops_.size(), 'S');
    reduction_ = Suffix(block_, 'R');
    body_ = loops_.size();
    while (body_ > 0) {
      const Loop* loop = loops_[body_ - 1];
      if (loop->annotation != kVectorize) {
        if (statements_ * double(loop->extent) > double(std::max<Number>(unroll_, 1)) && loop->annotation != kUnroll)
          break;
        statements_ *= double(loop->extent);
      }
      --body_;
    }
  }

  void Fill(Columns* out) const {
    Shape(out);
    Traffic(out);
    Block(out);
    Body(out);
  }

 private:
  using Tile = Vector<double>;
  static constexpr double kLanes = 16, kPage = 4096, kLeast = 1e-4;
  static constexpr double kCaches[] = {32 << 10, 1 << 20, 16 << 20};

  // Start of the innermost loops of one kind, among those before `end`.
  size_t Suffix(size_t end, char kind) const {
    while (end > 0 && loops_[end - 1]->kind == kind) --end;
    return end;
  }

  double Product(size_t from, size_t to) const {
    return StageView::Volume(loops_.begin() + from, loops_.begin() + to);
  }

  // Extent of each iterator within the loops from a place on.
  Tile Within(size_t from) const {
    Tile tile(source_.iterators.size(), 1.0);
    for (size_t k = from; k < loops_.size(); ++k) Run(loops_[k], &tile);
    return tile;
  }

  void Run(const Loop* loop, Tile* tile) const {
    for (const Part& part : loop->parts)
      if (part.iterator >= 0 && size_t(part.iterator) < tile->size() && part.extent > 1) {
        double& runs = (*tile)[part.iterator];
        runs = std::min(runs * double(part.extent), double(source_.iterators[part.iterator].extent));
      }
  }

  static double Extent(const std::pair<int, Number>* first, size_t count, const Tile& tile) {
    double extent = 1.0;
    for (size_t k = 0; k < count; ++k)
      extent += double(std::max<Number>(1, std::abs(first[k].second))) * (tile.at(size_t(first[k].first)) - 1);
    return extent;
  }

  void Shape(Columns* out) const {
    Columns& row = *out;
    double inner = Product(block_, loops_.size());
    // As in `step_features`: of the vectorized loop even if its extent is 1.
    double marked = marked_ == nullptr ? 0.0 : double(marked_->extent), lanes = std::max(1.0, marked);
    row[k_unroll_main] = Log(double(unroll_));
    row[k_main_loops] = double(loops_.size());
    row[k_main_vector] = Log(marked);
    row[k_main_vector_full] = marked_ != nullptr && marked_->extent % Number(kLanes) == 0;
    row[k_main_inner_spatial] = Log(inner);
    row[k_main_registers] = Log(inner / lanes * std::ceil(lanes / kLanes));
    row[k_main_reduce_inner] = Log(Product(reduction_, block_));
    row[k_unrolled_body] = Log(statements_);
    row[k_unroll_saturates] = statements_ * lanes >= inner;
    for (size_t k = 0; k < 8; ++k) {
      const Loop* loop = k < loops_.size() ? loops_[loops_.size() - 1 - k] : nullptr;
      row[k_main_extent_0 + k] = loop == nullptr ? kMissing : Log(double(loop->extent));
      if (k < 4) row[k_main_reduction_0 + k] = loop == nullptr ? kMissing : double(loop->kind == 'R');
    }
    for (size_t k = 0; k < 2; ++k) {
      row[k_main_vector_read0 + k] = kMissing;
      if (k < reads_.size())
        row[k_main_vector_read0 + k] = marked_ == nullptr ? -1.0 : Role(*reads_[k], marked_->parts.back().iterator);
    }
  }

  // How a vector along an iterator reads a tensor: 0 broadcast, 1 contiguous, 2 strided.
  static double Role(const Source::Access& read, int iterator) {
    for (size_t k = read.dims.size(); k-- > 0;)
      for (auto [it, coefficient] : read.dims[k])
        if (it == iterator) return k + 1 == read.dims.size() && std::abs(coefficient) == 1 ? 1.0 : 2.0;
    return 0.0;
  }

  // Bytes that the stage touches while its iterators run through a tile.
  double WorkingSet(const Tile& tile) const {
    double total = 0.0;
    auto limited = [](double extent, Number most) { return most ? std::min(extent, double(most)) : extent; };
    auto lines = [](double extent) { return std::ceil(extent / kLanes) * kLanes; };
    for (const Source::Access& read : source_.reads) {
      double size = 1.0;
      for (size_t k = 0; k < read.dims.size(); ++k) {
        double extent = Extent(read.dims[k].data(), read.dims[k].size(), tile);
        if (k < read.shape.size()) extent = limited(extent, read.shape[k]);
        size *= k + 1 == read.dims.size() ? lines(extent) : extent;
      }
      total += size * 4;
    }
    double size = 1.0, last = 1.0;
    for (size_t k = 0; k < tile.size(); ++k) {
      if (source_.iterators[k].kind != 'S') continue;
      size *= last;
      last = limited(tile[k], source_.iterators[k].extent);
    }
    bool any = std::any_of(source_.iterators.begin(), source_.iterators.end(), [](auto& it) { return it.kind == 'S'; });
    return total + (any ? size * lines(last) : 1.0) * 4;
  }

  void Traffic(Columns* out) const {
    Columns& row = *out;
    Tile tile(source_.iterators.size(), 1.0);
    double iterations = 1.0, inside[3], size[3], touched = WorkingSet(tile);
    for (int c = 0; c < 3; ++c) inside[c] = 1.0, size[c] = touched;
    for (size_t k = loops_.size(); k-- > 0;) {
      Run(loops_[k], &tile);
      iterations *= double(loops_[k]->extent);
      touched = WorkingSet(tile);
      for (int c = 0; c < 3; ++c)
        if (touched <= kCaches[c]) inside[c] = iterations, size[c] = touched;
    }
    for (int c = 0; c < 3; ++c) {
      row[k_fit_iterations_l1 + c] = Log(inside[c]);
      row[k_traffic_l1 + c] = Log(size[c] * std::max(1.0, iterations / inside[c]) / 64);
      row[k_traffic_per_iteration_l1 + c] = std::log2(size[c] / inside[c]);
    }
  }

  // Register loads of a read for a block, common ones once; and the gathering ones.
  std::pair<double, double> Loads(const Source::Access& read, const Tile& tile) const {
    double count = 1.0;
    bool gathers = false;
    for (size_t k = 0; k < read.dims.size(); ++k)
      for (auto [it, coefficient] : read.dims[k]) {
        double runs = tile.at(size_t(it));
        if (it == axis_) {
          gathers = !(k + 1 == read.dims.size() && std::abs(coefficient) == 1);
          if (!gathers) runs = std::max(1.0, runs / kLanes / registers_) * registers_;
        }
        count *= runs;
      }
    return {count, gathers ? count : 0.0};
  }

  // Bytes between neighbours in each dimension of a tensor stored row by row.
  static Vector<Number> Strides(const Source::Access& read) {
    Vector<Number> strides(std::min(read.shape.size(), read.dims.size()));
    Number step = 4;
    for (size_t k = strides.size(); k-- > 0;) {
      strides[k] = step;
      step = Times(step, std::max<Number>(1, read.shape[k]));
    }
    return strides;
  }

  static double Stride(const Source::Access& read, int iterator) {
    auto strides = Strides(read);
    for (size_t k = 0; k < strides.size(); ++k)
      for (auto [it, coefficient] : read.dims[k])
        if (it == iterator) return double(strides[k]) * double(std::max<Number>(1, std::abs(coefficient)));
    return 0.0;
  }

  // Lines of a block that compete for one set of the first cache, and pages it touches.
  static std::pair<double, double> Sets(const Source::Access& read, const Tile& tile) {
    double conflict = 1.0, pages = 1.0;
    auto strides = Strides(read);
    for (size_t k = 0; k < strides.size(); ++k) {
      double extent = Extent(read.dims[k].data(), read.dims[k].size(), tile);
      if (read.shape[k]) extent = std::min(extent, double(read.shape[k]));
      if (extent <= 1 || strides[k] < 64) continue;
      double common = double(std::gcd(strides[k], Number(kPage)));
      conflict *= std::max(1.0, extent * common / kPage);
      pages *= double(strides[k]) >= kPage ? extent : std::max(1.0, extent * double(strides[k]) / kPage);
    }
    return {conflict, pages};
  }

  void Block(Columns* out) const {
    Columns& row = *out;
    double held = 1.0;
    bool within = false;
    const Loop *walk = nullptr, *beside = nullptr;
    for (const Loop* loop : loops_) {
      within |= loop->kind == 'R';
      if (loop->kind == 'R') walk = loop;
      if (within && loop->kind != 'R') held *= double(loop->extent);
    }
    for (size_t k = block_; k < loops_.size(); ++k)
      if (loops_[k] != vector_) beside = loops_[k];
    double fmas = std::max(1.0, Product(block_, loops_.size()) / lanes_ * registers_);
    Tile tile = Within(block_), deep = Within(reduction_);
    double loads = 0, gathers = 0, conflicts = 0, most = 0, pages = 0;
    for (const Source::Access* read : reads_) {
      auto [count, gathered] = Loads(*read, tile);
      auto [conflict, page] = Sets(*read, deep);
      loads += count, gathers += gathered, conflicts += conflict;
      most = std::max(most, conflict), pages = std::max(pages, page);
    }
    row[k_accumulators] = Log(held / lanes_ * registers_);
    row[k_accumulator_reuse] = Log(Product(reduction_, block_));
    row[k_block_loads] = Log(loads);
    row[k_block_loads_per_fma] = std::log2(std::max(loads, 1e-3) / fmas);
    row[k_block_gathers] = Log(gathers);
    row[k_set_conflict_max] = Log(most);
    row[k_set_conflict_sum] = Log(conflicts);
    row[k_pages_max] = Log(pages);
    row[k_vector_waste] = registers_ * kLanes / lanes_;
    for (size_t k = 0; k < 2; ++k) {
      auto stride = [&](const Loop* loop) {
        return loop == nullptr || k >= reads_.size() ? -1.0 : Log(Stride(*reads_[k], loop->parts.back().iterator));
      };
      row[k_reduce_stride_0 + k] = stride(walk);
      row[k_spatial_stride_0 + k] = stride(beside);
    }
  }

  // Iterations of the loops directly around the body that move none of these iterators.
  double Still(const Vector<int>& iterators) const {
    double runs = 1.0;
    for (size_t k = body_; k-- > 0; runs *= double(loops_[k]->extent))
      for (const Part& part : loops_[k]->parts)
        if (part.extent > 1 && std::find(iterators.begin(), iterators.end(), part.iterator) != iterators.end())
          return runs;
    return runs;
  }

  void Body(Columns* out) const {
    Columns& row = *out;
    Tile tile = Within(body_);
    double fmas = std::max(1.0, Product(body_, loops_.size()) / lanes_ * registers_);
    double loads = 0, gathers = 0, held = 0;
    for (const Source::Access* read : reads_) {
      Vector<int> iterators;
      for (const auto& dim : read->dims)
        for (auto [it, coefficient] : dim) iterators.push_back(it);
      double runs = Still(iterators);
      auto [count, gathered] = Loads(*read, tile);
      loads += count / runs;
      gathers += gathered / runs;
      if (runs > 1) held += gathered > 0 ? count * registers_ / lanes_ : count;
    }
    Vector<int> spatial;
    for (size_t k = 0; k < tile.size(); ++k)
      if (source_.iterators[k].kind == 'S') spatial.push_back(int(k));
    double runs = Still(spatial), stores = 1.0;
    for (int it : spatial) stores *= tile[it];
    if (std::find(spatial.begin(), spatial.end(), axis_) != spatial.end()) stores *= registers_ / lanes_;
    if (runs > 1) held += stores;
    row[k_body_loads_per_fma] = std::log2(std::max(loads / fmas, kLeast));
    row[k_body_gathers_per_fma] = std::log2(std::max(gathers / fmas, kLeast));
    row[k_body_stores_per_fma] = std::log2(std::max(stores / runs / fmas, kLeast));
    row[k_body_held] = Log(held);
  }

  static constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
  const Source& source_;
  Number unroll_;
  Vector<const Loop*> loops_;  // longer than one, outermost first
  const Loop *marked_ = nullptr, *vector_ = nullptr;  // the vectorized loop; vector_: if extent > 1
  double lanes_ = 1.0, registers_ = 1.0;              // of the vector, and how many registers they fill
  int axis_ = -1;
  Vector<const Source::Access*> reads_;  // the largest tensor first
  size_t block_ = 0, reduction_ = 0;     // starts of the innermost spatial loops, and of the reductions around them
  size_t body_ = 0;                      // start of the unrolled body
  double statements_ = 1.0;
};

}  // namespace wmsched

#endif  // WMSCHED_KERNEL_H_
