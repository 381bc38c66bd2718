// Columns of MetaSchedule's candidates: those of `trace_features` that differ between the schedules of an operation.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/tvm_ffi.h>

#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "follow.h"
#include "gpu.h"
#include "kernel.h"

namespace wmsched {
namespace {

constexpr size_t kShare = 32;  // minimum candidates of a thread

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
    source.bytes = Integer(row[6]);
    sources.push_back(std::move(source));
  }
  return sources;
}

// Output arrays of the candidates; the shapes are [N], [N, kColumns] and [N, 4].
struct Out {
  ffi::TensorView stages, columns, hashes;

  template <typename T>
  static T* At(const ffi::TensorView& tensor, size_t n, size_t width) {
    return static_cast<T*>(tensor.data_ptr()) + n * width;
  }

  void Check(int64_t count) const {
    auto is = [&](const ffi::TensorView& x, int dimensions, int64_t last, DLDataTypeCode code) {
      return x.ndim() == dimensions && x.size(0) == count && x.size(dimensions - 1) == last && x.dtype().code == code &&
             x.dtype().bits == 64 && x.IsContiguous();
    };
    if (!is(stages, 1, count, kDLInt) || !is(columns, 2, kColumns, kDLFloat) || !is(hashes, 2, 4, kDLInt))
      TVM_FFI_THROW(ValueError) << "the arrays to be filled have other shapes or types than documented";
  }
};

// Facts for the CPU postprocessors, [stages of arguments, offsets of all reads]; none for a GPU.
std::unique_ptr<const CpuProgram> CpuProgramOf(const ffi::Any& given) {
  if (IsNone(given)) return nullptr;
  List parts(given);
  auto program = std::make_unique<CpuProgram>();
  for (const ffi::Any& stage : List(parts[0])) program->rewritten.push_back(int(Integer(stage)));
  for (const ffi::Any& stage : List(parts[1])) {
    program->offsets.emplace_back();
    for (const ffi::Any& read : List(stage)) program->offsets.back().push_back(NumbersOf(read));
  }
  return program;
}

template <typename Trace>
void FillFrom(const std::vector<Source>& sources, const Machine& machine, const Trace& trace, Drawn* drawn,
              const CpuProgram* cpu, size_t n, const Out& out, const Fixed* fixed = nullptr,
              std::optional<Fixed>* common = nullptr) {
  Arena::Scope memory;
  std::optional<Follower> exact;
  if (cpu != nullptr) {
    Drawn again = *drawn;
    exact.emplace(sources, trace, &again, cpu);
  }
  Follower followed(sources, trace, drawn, nullptr, exact ? &*exact : nullptr, fixed);
  if (common != nullptr) *common = followed.fingerprint.Common();
  View view(followed.nest);
  const StageView* main = view.Heaviest();
  if (main == nullptr || main->block->vague) throw Unsupported();
  FillGpu(followed.nest, *view.Fill(main, machine.cores, machine.threads, &followed.columns), machine, &followed.columns);
  Kernel(*main).Fill(&followed.columns);
  std::copy(followed.columns.begin(), followed.columns.end(), Out::At<double>(out.columns, n, kColumns));
  int64_t* hashes = Out::At<int64_t>(out.hashes, n, 4);
  followed.fingerprint.Trace(hashes);
  followed.fingerprint.Family(hashes + 2);
  *Out::At<int64_t>(out.stages, n, 1) = main->block->stage;
}

ffi::Array<ffi::String> ColumnNames() {
  ffi::Array<ffi::String> names;
  for (const char* name : kColumnNames) names.push_back(name);
  return names;
}

// Call `fill` for the rows of `count` candidates in up to `threads` threads, which mostly wait for TVM's objects to
// come from memory.
template <typename Fill>
void FillAll(size_t count, size_t threads, const Out& out, const Fill& fill) {
  size_t shares = std::max<size_t>(1, std::min(threads, count / kShare));
  std::vector<std::thread> others;
  others.reserve(shares);
  auto share = [&](size_t k) {
    for (size_t n = count * k / shares; n < count * (k + 1) / shares; ++n) {
      *Out::At<int64_t>(out.stages, n, 1) = -1;
      try {
        fill(n);
      } catch (const Unsupported&) {
      } catch (const std::exception&) {  // a field of an unexpected type
      }
    }
  };
  for (size_t k = 1; k < shares; ++k) try {
      others.emplace_back(share, k);
    } catch (const std::system_error&) {  // the system refuses more threads
      share(k);
    }
  share(0);
  for (std::thread& other : others) other.join();
}

// Functions that fill arrays with the columns of one workload's candidates. `stages` gets the number of the heaviest
// stage, or -1 if only Python knows the candidate, whose other numbers are then undefined. Programs run on
// `run_threads` threads; `threads` threads read.
struct Reading {
  std::vector<Source> sources;
  Machine machine;
  size_t threads;
};

std::shared_ptr<const Reading> ReadingOf(const ffi::Array<ffi::Any>& workload, double cores, double warp,
                                         double shared_limit, double run_threads, int64_t threads) {
  Fields::Get();
  return std::make_shared<const Reading>(
      Reading{SourcesOf(List(workload.get())), {cores, warp, shared_limit, run_threads}, size_t(threads)});
}

// Reader of `MeasureCandidate`s.
ffi::Function Reader(ffi::Array<ffi::Any> workload, double cores, double warp, double shared_limit, double run_threads,
                     int64_t threads) {
  auto how = ReadingOf(workload, cores, warp, shared_limit, run_threads, threads);
  return ffi::Function::FromTyped([how](ffi::Array<ffi::Any> given, ffi::TensorView stages, ffi::TensorView columns,
                                        ffi::TensorView hashes) {
    List candidates(given.get());
    Out out{stages, columns, hashes};
    out.Check(int64_t(candidates.size()));
    FillAll(candidates.size(), how->threads, out, [&](size_t n) {
      const Fields& fields = Fields::Get();
      ffi::Any trace = fields.trace(fields.schedule(ObjectOf(candidates[n])));
      if (ObjectOf(trace) == nullptr) throw Unsupported();
      FillFrom(how->sources, how->machine, Instructions(ObjectOf(trace)), nullptr, nullptr, n, out);
    });
  });
}

// Reader of decisions for traces without postprocessors: `which` int64 [N] is the index of the trace, `drawn`
// int64 [N, W] holds the decisions, one after the other, and `counts` int64 [N] the number of integers of each row.
// TVM's corrections of compute locations are written back to `drawn`.
ffi::Function DrawnReader(ffi::Array<ffi::Any> workload, double cores, double warp, double shared_limit,
                          double run_threads, int64_t threads) {
  auto how = ReadingOf(workload, cores, warp, shared_limit, run_threads, threads);
  return ffi::Function::FromTyped([how](ffi::Array<ffi::Any> given, ffi::TensorView which, ffi::TensorView counts,
                                        ffi::TensorView drawn, ffi::Any program, ffi::TensorView stages,
                                        ffi::TensorView columns, ffi::TensorView hashes) {
    List traces(given.get());
    auto cpu = CpuProgramOf(program);
    Out out{stages, columns, hashes};
    int64_t count = stages.size(0);
    out.Check(count);
    auto is = [&](const ffi::TensorView& x, int dimensions) {
      return x.ndim() == dimensions && x.size(0) == count && x.dtype().code == kDLInt && x.dtype().bits == 64 &&
             x.IsContiguous();
    };
    if (!is(which, 1) || !is(counts, 1) || !is(drawn, 2))
      TVM_FFI_THROW(ValueError) << "the decisions have other shapes or types than documented";
    int64_t width = drawn.size(1);
    std::vector<std::vector<Instruction>> decoded;
    for (const ffi::Any& trace : traces) decoded.push_back(InstructionsOf(ObjectOf(trace)));
    std::vector<std::optional<Fixed>> fixed(decoded.size());
    auto fill = [&](size_t n, bool first_of_trace) {
      Number* first = Out::At<int64_t>(drawn, n, size_t(width));
      Number own = *Out::At<int64_t>(counts, n, 1);
      size_t of = size_t(*Out::At<int64_t>(which, n, 1));
      if (own < 0 || own > width || of >= decoded.size()) throw Unsupported();
      Drawn decisions{first, first + own};
      const Fixed* known = first_of_trace || !fixed[of] ? nullptr : &*fixed[of];
      FillFrom(how->sources, how->machine, decoded[of], &decisions, cpu.get(), n, out, known,
               first_of_trace ? &fixed[of] : nullptr);
    };
    std::vector<bool> seen(decoded.size());
    for (size_t n = 0; n < size_t(count); ++n) {  // by one thread: the others read what it finds
      size_t of = size_t(*Out::At<int64_t>(which, n, 1));
      if (of >= decoded.size() || seen[of]) continue;
      seen[of] = true;
      try {
        fill(n, true);
      } catch (const Unsupported&) {
      } catch (const std::exception&) {  // as in FillAll
      }
    }
    FillAll(size_t(count), how->threads, out, [&](size_t n) { fill(n, false); });
  });
}

}  // namespace
}  // namespace wmsched

TVM_FFI_DLL_EXPORT_TYPED_FUNC(column_names, wmsched::ColumnNames);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(reader, wmsched::Reader);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(drawn_reader, wmsched::DrawnReader);
