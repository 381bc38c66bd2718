"""Small tensor programs, their spaces, and builders and runners that need no compiler."""

from __future__ import annotations

import logging
import tempfile
import zlib
from pathlib import Path

import tvm
from tvm import te, topi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult
from tvm.target import Target
from tvm.topi.nn.winograd_util import winograd_transform_matrices

from wmsched.metaschedule.intrinsics import import_intrinsics

CPU = {"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 2}
VNNI = {"kind": "llvm", "mcpu": "cascadelake", "num-cores": 2}
SKYLAKE = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}
PLAIN = {"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2}
NEON = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"], "num-cores": 2}
SDOT = {**NEON, "mattr": ["+neon", "+v8.2a", "+dotprod"]}
HEXAGON = "qcom/hexagon-v68"
RISCV = {
    "kind": "llvm", "mtriple": "riscv64-linux-gnu", "mcpu": "generic-rv64", "mattr": ["+v"], "num-cores": 2
}  # fmt: skip
GPUS = {
    "RTX 4090": "nvidia/geforce-rtx-4090",
    "T4": "nvidia/nvidia-t4",
    "A100": "nvidia/nvidia-a100",
    "H100": "nvidia/nvidia-h100",
}
GPU = GPUS["A100"]


def fresh_loggers() -> None:
    """TVM names its loggers' handlers to set them up again; pytest's, which it finds there, have no name."""
    logging.getLogger("tvm.s_tir.meta_schedule").handlers.clear()


def matmul(n=64, *, dtype="float32", out="float32"):
    a, b = te.placeholder((n, n), dtype, "A"), te.placeholder((n, n), dtype, "B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k].astype(out) * b[k, j].astype(out), axis=k), name="C")
    return te.create_prim_func([a, b, c])


def conv():
    a, w = te.placeholder((1, 8, 8, 16), name="A"), te.placeholder((3, 3, 16, 32), name="W")
    return te.create_prim_func([a, w, topi.nn.relu(topi.nn.conv2d_nhwc(a, w, 1, 1, 1))])


def softmax():
    a = te.placeholder((32, 64), name="A")
    return te.create_prim_func([a, topi.nn.softmax(a)])


def vnni():
    """A dense layer of bytes in blocks of sixteen, the shape that VNNI's dot product has."""
    from tvm.s_tir.tensor_intrin.x86 import dot_product_16x4_u8i8i32_desc  # noqa: F401  registers it

    x, w = te.placeholder((32, 64), "uint8", "X"), te.placeholder((4, 16, 16, 4), "int8", "W")
    k = te.reduce_axis((0, 64), "k")
    y = te.compute(
        (32, 64),
        lambda i, j: te.sum(
            x[i, k].astype("int32") * w[j // 16, k // 4, j % 16, k % 4].astype("int32"), axis=k
        ),
        name="compute",
    )
    return te.create_prim_func([x, w, y])


def winograd():
    """A convolution by Winograd's transformation; its blocks name schedules of TVM's own for themselves.

    As in `topi`, but for weights that are transformed already: TVM 0.27 has a rule for these alone on CUDA.
    """
    height = width = 14
    tile, channels, across = 4, 16, 4
    size, tiles = tile + 2, across * across
    back, data_in, _ = winograd_transform_matrices(tile, 3, "float32")
    x = te.placeholder((1, height, width, channels), name="A")
    w = te.placeholder((size, size, channels, channels), name="W")
    padded = topi.nn.pad(x, (0, 1, 1, 0), (0, 3, 3, 0), name="data_pad", attrs={"schedule_rule": "None"})
    cut = te.compute(
        (size, size, tiles, channels),
        lambda e, n, p, c: padded[0, p // across * tile + e, p % across * tile + n, c],
        name="input_tile",
        attrs={"schedule_rule": "None"},
    )
    a, b = te.reduce_axis((0, size), "r_a"), te.reduce_axis((0, size), "r_b")
    packed = te.compute(
        (size, size, tiles, channels),
        lambda e, n, p, c: te.sum(cut[a, b, p, c] * data_in[a, e] * data_in[b, n], axis=[a, b]),
        name="data_pack",
        attrs={"schedule_rule": "conv2d_nhwc_winograd_data_pack"},
    )
    k = te.reduce_axis((0, channels), "ci")
    product = te.compute(
        (size, size, tiles, channels),
        lambda e, n, p, c: te.sum(packed[e, n, p, k] * w[e, n, c, k], axis=[k]),
        name="bgemm",
    )
    a, b = te.reduce_axis((0, size), "r_a"), te.reduce_axis((0, size), "r_b")
    inverse = te.compute(
        (tile, tile, tiles, channels),
        lambda y, z, p, c: te.sum(product[a, b, p, c] * back[a, y] * back[b, z], axis=[a, b]),
        name="inverse",
        attrs={"schedule_rule": "conv2d_nhwc_winograd_inverse"},
    )
    out = te.compute(
        (1, height, width, channels),
        lambda n, i, j, c: inverse[i % tile, j % tile, i // tile * across + j // tile, c],
        name="conv2d_winograd",
    )
    return te.create_prim_func([x, w, out])


def dense():
    """A dense layer whose weights may be laid out anew for the schedule."""
    a, w = te.placeholder((64, 64), name="A"), te.placeholder((32, 64), name="W")
    func = te.create_prim_func([a, w, topi.nn.relu(topi.nn.dense(a, w))])
    return func.with_attr("layout_free_buffers", [1])


def relax_dense():
    """`dense` as Relax has it: the extents are of 64 bits, the variables of a layout's map of 32."""
    n, m = tvm.tirx.const(64, "int64"), tvm.tirx.const(32, "int64")
    a, w = te.placeholder((n, n), name="A"), te.placeholder((n, m), name="W")
    k = te.reduce_axis((tvm.tirx.const(0, "int64"), n), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
    return te.create_prim_func([a, w, c]).with_attr("layout_free_buffers", [1])


def sdot():
    """A product of bytes in blocks of four by four, the shape that ARM's dot product has."""
    x, w = te.placeholder((32, 64), "int8", "X"), te.placeholder((8, 16, 4, 4), "int8", "W")
    k = te.reduce_axis((0, 64), "k")
    y = te.compute(
        (32, 32),
        lambda i, j: te.sum(
            x[i, k].astype("int32") * w[j // 4, k // 4, j % 4, k % 4].astype("int32"), axis=k
        ),
        name="compute",
    )
    return te.create_prim_func([x, w, y])


def constant():
    """Reads nothing, and has no loop worth a feature."""
    return te.create_prim_func([topi.full((2, 3), "float32", 1.0)])


def context(func, target, space="from-target", *, seed=1, population=0):
    """A tuning context of a stock space."""
    import_intrinsics(Target(target))  # of a processor not those of all GPUs
    generator = ms.space_generator.PostOrderApply(sch_rules=space, postprocs=space, mutator_probs=space)
    strategy = ms.search_strategy.EvolutionarySearch(
        population_size=population or 16, genetic_num_iters=1, init_min_unmeasured=population or 8
    )
    return ms.TuneContext(
        func,
        target=Target(target),
        space_generator=generator,
        search_strategy=strategy,
        num_threads=1,
        rand_state=seed,
        task_name="task",
    )


def sampled(ctx, count=8):
    """Candidates as the stock search proposes them, postprocessors applied."""
    ctx.pre_tuning(
        max_trials=count,
        num_trials_per_iter=count,
        design_spaces=ctx.generate_design_space(),
        database=ms.database.MemoryDatabase(),
        cost_model=ms.cost_model.RandomModel(seed=1),
    )
    found = list(ctx.generate_measure_candidates() or [])
    ctx.post_tuning()
    return found


def made_up_seconds(candidate_text: str) -> float:
    """A time that a schedule always has: any fixed function of its text."""
    return 1e-4 * (1 + zlib.crc32(candidate_text.encode()) % 1000)


@derived_object
class NoBuilder(PyBuilder):
    """Compiles nothing; each `every`-th candidate fails."""

    def __init__(self, *, every: int = 0) -> None:
        super().__init__()
        self.every, self.seen = every, 0

    def build(self, build_inputs):
        results = []
        for entry in build_inputs:
            self.seen += 1
            bad = self.every and self.seen % self.every == 0
            if bad:
                results.append(BuilderResult(None, "made to fail"))
                continue
            path = Path(tempfile.mkdtemp()) / "built.txt"  # the search removes it, and its folder
            path.write_text(entry.mod.script())
            results.append(BuilderResult(str(path), None))
        return results


@derived_object
class _Known(PyRunnerFuture):
    def __init__(self, seconds, error) -> None:
        super().__init__()
        self.seconds, self.error = seconds, error

    def done(self):
        return True

    def result(self):
        return RunnerResult(self.seconds, self.error)


@derived_object
class NoRunner(PyRunner):
    """Runs nothing; of every 30 candidates one fails, one times out and one is timed as NaN, where asked."""

    def __init__(self, *, faulty: bool = False) -> None:
        super().__init__()
        self.faulty, self.seen = faulty, 0

    def run(self, runner_inputs):
        found = []
        for entry in runner_inputs:
            self.seen += 1
            fate = self.seen % 30 if self.faulty else 0
            if fate == 7:
                found.append(_Known(None, "made to fail"))
            elif fate == 17:
                found.append(_Known(None, "LocalRunner: Timeout, killed after 10 seconds"))
            elif fate == 27:
                found.append(_Known([float("nan")], None))
            else:
                found.append(_Known([made_up_seconds(Path(str(entry.artifact_path)).read_text())], None))
        return found


def module(func):
    return tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
