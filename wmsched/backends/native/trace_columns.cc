// Candidates of MetaSchedule's search to numbers: what `trace_features` computes of each by itself, and the loops of
// its heaviest stage, from which `phi_columns` computes the rest of phi for all together.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/tvm_ffi.h>

#include <memory>
#include <thread>
#include <vector>

#include "follow.h"

namespace wmsched {
namespace {

constexpr int kState = 4, kLoop = 4;  // numbers of a candidate in `state`, of a loop in `loops`
constexpr size_t kShare = 32;         // candidates that are worth a thread

Dims DimsOf(const ffi::Any& rows) {
  Dims dims;
  for (const ffi::Any& row : List(rows)) {
    dims.emplace_back();
    for (const ffi::Any& pair : List(row)) {
      List parts(pair);
      dims.back().push_back({int(Integer(parts[0])), Integer(parts[1])});
    }
  }
  return dims;
}

Vector<Number> NumbersOf(const ffi::Any& row) {
  Vector<Number> numbers;
  for (const ffi::Any& x : List(row)) numbers.push_back(Integer(x));
  return numbers;
}

// `types.Workload.stages_json`, parsed: [name, kind, iterators, reads, operations, shape, bytes] each.
std::vector<Source> SourcesOf(const List& stages) {
  std::vector<Source> sources;
  for (const ffi::Any& entry : stages) {
    List row(entry);
    Source source;
    source.name = Text(row[0]);
    source.placeholder = Text(row[1]) == "placeholder";
    for (const ffi::Any& it : List(row[2])) {
      List parts(it);
      source.iterators.push_back({Integer(parts[1]), Text(parts[2]) == "R" ? 'R' : 'S'});
    }
    for (const ffi::Any& access : List(row[3])) {
      List parts(access);
      source.reads.push_back({int(Integer(parts[0])), DimsOf(parts[1]), NumbersOf(parts[2])});
    }
    source.shape = NumbersOf(row[5]);
    sources.push_back(std::move(source));
  }
  return sources;
}

// Where the numbers of the candidates go; the shapes are [N, kState], [N, kColumns], [N, D, kLoop], [N, D, I], [N, 4].
struct Out {
  ffi::TensorView state, columns, loops, tiles, hashes;

  template <typename T>
  static T* At(const ffi::TensorView& tensor, int64_t n, int64_t width) {
    return static_cast<T*>(tensor.data_ptr()) + n * width;
  }

  void Check(int64_t count) const {
    auto is = [&](const ffi::TensorView& x, int dimensions, int64_t last, DLDataTypeCode code) {
      return x.ndim() == dimensions && x.size(0) == count && (last < 0 || x.size(dimensions - 1) == last) &&
             x.dtype().code == code && x.dtype().bits == 64 && x.IsContiguous();
    };
    bool fine = is(state, 2, kState, kDLInt) && is(columns, 2, kColumns, kDLFloat) && is(loops, 3, kLoop, kDLInt) &&
                is(tiles, 3, -1, kDLFloat) && is(hashes, 2, 4, kDLInt) && tiles.size(1) == loops.size(1);
    if (!fine) TVM_FFI_THROW(ValueError) << "the arrays to be filled have other shapes or types than documented";
  }
};

void FillLoops(const StageView& main, int64_t n, const Out& out) {
  int64_t depth = out.loops.size(1), iterators = out.tiles.size(2), vectors = 0;
  if (main.loops.empty() || int64_t(main.loops.size()) > depth) throw Unsupported();
  if (int64_t(main.block->source->iterators.size()) > iterators) throw Unsupported();
  int64_t* row = Out::At<int64_t>(out.loops, n, depth * kLoop);
  double* tiles = Out::At<double>(out.tiles, n, depth * iterators);
  std::fill(tiles, tiles + depth * iterators, 1.0);
  for (int64_t d = 0; d < depth; ++d, row += kLoop, tiles += iterators) {
    row[0] = 1, row[1] = row[2] = row[3] = 0;
    if (d >= int64_t(main.loops.size())) continue;
    const Loop* loop = main.loops[main.loops.size() - 1 - d];  // innermost first
    vectors += loop->annotation == kVectorize;
    if (loop->extent <= 0 || loop->parts.empty() || vectors > 1) throw Unsupported();
    row[0] = loop->extent;
    row[1] = loop->kind == 'S' ? 0 : loop->kind == 'R' ? 1 : 2;
    row[2] = loop->annotation;
    row[3] = loop->parts.back().iterator;
    for (const Part& part : loop->parts)
      if (part.iterator >= 0 && part.iterator < int(main.block->source->iterators.size()) && part.extent > 1)
        tiles[part.iterator] *= double(part.extent);
  }
}

void FillOne(const std::vector<Source>& sources, double cores, const ffi::Any& candidate, int64_t n, const Out& out) {
  Arena::Scope memory;
  const Fields& fields = Fields::Get();
  ffi::Any trace = fields.trace(fields.schedule(ObjectOf(candidate)));
  if (ObjectOf(trace) == nullptr) throw Unsupported();
  Follower followed(sources, ObjectOf(trace));
  View view(followed.nest);
  const StageView* main = view.Heaviest();
  if (main == nullptr || main->block->vague) throw Unsupported();
  view.Fill(main, cores, &followed.columns);
  FillLoops(*main, n, out);
  std::copy(followed.columns.begin(), followed.columns.end(), Out::At<double>(out.columns, n, kColumns));
  int64_t* hashes = Out::At<int64_t>(out.hashes, n, 4);
  followed.fingerprint.Trace(hashes);
  followed.fingerprint.Family(hashes + 2);
  int64_t* state = Out::At<int64_t>(out.state, n, kState);
  state[0] = 1;
  state[1] = main->block->stage;
  state[2] = int64_t(main->loops.size());
  state[3] = main->block->unroll;
}

ffi::Array<ffi::String> ColumnNames() {
  return {
#define WMSCHED_NAME(name) ffi::String(#name),
      WMSCHED_COLUMNS(WMSCHED_NAME)
#undef WMSCHED_NAME
  };
}

void FillRange(const std::vector<Source>& sources, double cores, const List& candidates, size_t from, size_t to,
               const Out& out) {
  for (size_t n = from; n < to; ++n) {
    *Out::At<int64_t>(out.state, int64_t(n), kState) = 0;
    try {
      FillOne(sources, cores, candidates[n], int64_t(n), out);
    } catch (const Unsupported&) {
    } catch (const std::exception&) {  // a field of another type than this TVM's has
    }
  }
}

// A function of candidates and arrays to fill, for the candidates of one workload. A candidate whose first number in
// `state` is 0 afterwards is one that only Python knows; its other numbers mean nothing. Most of the time goes into
// waiting for TVM's objects to come from memory, so `threads` share a batch.
ffi::Function Reader(ffi::Array<ffi::Any> stages, double cores, int64_t threads) {
  auto sources = std::make_shared<const std::vector<Source>>(SourcesOf(List(stages.get())));
  Fields::Get();
  return ffi::Function::FromTyped([sources, cores, threads](ffi::Array<ffi::Any> given, ffi::TensorView state,
                                                            ffi::TensorView columns, ffi::TensorView loops,
                                                            ffi::TensorView tiles, ffi::TensorView hashes) {
    List candidates(given.get());
    Out out{state, columns, loops, tiles, hashes};
    out.Check(int64_t(candidates.size()));
    size_t shares = std::max<size_t>(1, std::min(size_t(threads), candidates.size() / kShare));
    std::vector<std::thread> others;
    auto share = [&](size_t k) {
      size_t count = candidates.size();
      FillRange(*sources, cores, candidates, count * k / shares, count * (k + 1) / shares, out);
    };
    for (size_t k = 1; k < shares; ++k) others.emplace_back(share, k);
    share(0);
    for (std::thread& other : others) other.join();
  });
}

}  // namespace
}  // namespace wmsched

TVM_FFI_DLL_EXPORT_TYPED_FUNC(column_names, wmsched::ColumnNames);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(reader, wmsched::Reader);
