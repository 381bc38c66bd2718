"""Tensor-core spaces for NVIDIA GPUs: float16, bfloat16 or TF32 in, sums in float32, any type out.

MetaSchedule's rule `MultiLevelTilingTensorCore` tiles a product for a warp's matrix operations. It reads
batched products and convolutions as products of matrices, and pads what 16 does not divide. This rule runs
it with what it lacks:

- intrinsics for bfloat16 and TF32, and rows of shared memory that are padded for them as for float16;
- one space for a matrix's layout, in place of two of which one reads memory across its rows;
- asynchronous copies into two or three sets of shared memory, from compute capability 8.0.

Works around apache-tvm 0.27 in one more place: its CUDA code for eight half floats from eight places does not
compile, so only matrices whose rows are read along memory have vectors of eight.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

from tvm.ir.utils import derived_object
from tvm.s_tir import TensorIntrin
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.postproc import PyPostproc
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule

from wmsched.codegen.tf32 import SHAPE
from wmsched.features.gpus import TENSOR_CORES
from wmsched.metaschedule.rules.block_loops import BlockLoops
from wmsched.search.decision_space import DecisionSpace, Row

__all__ = [
    "FitsRegisters",
    "TensorCores",
    "intrinsic_group",
    "is_tensor_core",
    "register_intrinsics",
    "sums_fit",
]

SIZE = (16, 16, 16)  # rows, columns and terms of a warp's matrix operation; of TF32 `tf32.SHAPE`
SUMS, SHARED = "float32", "shared.dyn"
SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}
TF32 = "float32"  # in memory
ASYNC_CAPABILITY = 8.0  # compute capability from which copies are asynchronous
PIPELINE_STAGES = (2, 3)  # sets of shared memory that asynchronous copies fill in turn
MAX_INNERMOST = 4  # matrix operations of a warp along a dimension; as in MetaSchedule's own rule
ALONG_ROWS, ACROSS_ROWS = (1, 2, 4, 8), (1, 2, 4)  # elements of a vector load, of 16 bytes at most
ROW_ALIGN = {"axis": -2, "factor": 32, "offset": 8}  # of shared memory, against bank conflicts
FETCH_KEY, TENSORIZE_KEY = "meta_schedule.cooperative_fetch", "meta_schedule.auto_tensorize"
TILING_KEY = "meta_schedule.tiling_structure"
WARP = 32
REGISTERS, MAX_REGISTERS = 65536, 255  # of a multiprocessor, and of a thread
SUM_REGISTERS = 8  # of a thread, for 16 x 16 sums of its warp
OPERAND_SHARE, OTHER_REGISTERS = 1.5, 40  # sums and operands to sums alone; addresses and the like


@derived_object
class TensorCores(PyScheduleRule):
    """Schedule rule for products on tensor cores, for MetaSchedule's `PostOrderApply`, before its own tiling.

    >>> rules = [TensorCores(8.9), *ms.ScheduleRule.create("cuda")]
    >>> postprocs = [*ms.Postproc.create("cuda"), ms.postproc.RewriteTensorize()]

    Parameters
    ----------
    capability : float
        Compute capability of the GPU.
    tf32 : bool
        Whether products of float32 may be computed in TF32.
    """

    def __init__(self, capability: float, *, tf32: bool = False) -> None:
        super().__init__()
        self.capability, self.tf32 = capability, tf32
        self.context: Any = None
        self.made: dict[Product, Any] = {}

    def _initialize_with_tune_context(self, context: Any) -> None:
        self.context, self.made = context, {}

    def apply(self, sch: Any, block: Any) -> list[Any]:
        product = Product.of(sch, block)
        if product is None or self.capability < TENSOR_CORES[product.dtype]:
            return [sch]
        if product.dtype == TF32 and not self.tf32:
            return [sch]
        if product not in self.made:
            register_intrinsics()
            self.made[product] = _tiling(product)
            self.made[product]._initialize_with_tune_context(self.context)
        tiled = [one for one in self.made[product].apply(sch, block) if is_tensor_core(one.trace)]
        found = []
        for one in tiled:
            copies = _copies(one, product.dtype)
            if product.dtype != "float16":  # whose rows MetaSchedule's rule pads
                for copy in copies:
                    one.storage_align(copy, 0, ROW_ALIGN["axis"], ROW_ALIGN["factor"], ROW_ALIGN["offset"])
            found.append(one)
            if self.capability >= ASYNC_CAPABILITY:
                found += [_with_async_copies(one.copy(), product.dtype, stages) for stages in PIPELINE_STAGES]
        return found or [sch]

    def clone(self) -> Any:
        return TensorCores(self.capability, tf32=self.tf32)


@derived_object
class FitsRegisters(PyPostproc):
    """Postprocessor that refuses tensor-core schedules whose sums do not fit the registers.

    MetaSchedule's `VerifyGPUCode` does not count them, and NVRTC then keeps the sums in memory. This looks at
    the schedule's numbers alone, so it stands before `VerifyGPUCode`, which lowers the program.
    """

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, sch: Any) -> bool:
        if not is_tensor_core(sch.trace):
            return True
        return registers_of([tile for tile in _tiles(sch) if len(tile) == SPATIAL_LEVELS]) <= MAX_REGISTERS

    def clone(self) -> Any:
        return FitsRegisters()


SPATIAL_LEVELS = 5  # of SSSRRSRS: grid's two, warps, and two within a warp


def registers_of(tiles: list[list[int]]) -> float:
    """Return about how many registers a thread needs for its warp's sums and operands.

    It is infinite where a multiprocessor has too few for a block.
    """
    warps = math.prod(tile[2] for tile in tiles)
    sums = math.prod(tile[3] * tile[4] for tile in tiles)
    needed = OPERAND_SHARE * SUM_REGISTERS * sums + OTHER_REGISTERS
    return needed if needed * WARP * warps <= REGISTERS else math.inf


def sums_fit(space: DecisionSpace, row: Row) -> bool:
    """Return whether the registers hold the sums of a row of a tensor-core space; as `FitsRegisters`."""
    tiles = [
        list(row[slot.start : slot.start + slot.parts])
        for slot in space.slots
        if slot.parts == SPATIAL_LEVELS
    ]
    return registers_of(tiles) <= MAX_REGISTERS


def _tiles(schedule: Any) -> list[list[int]]:
    """Return the tiles that a schedule has drawn, in their order."""
    decisions = schedule.trace.decisions
    drawn = [inst for inst in schedule.trace.insts if inst.kind.name == "SamplePerfectTile"]
    return [[int(factor) for factor in decisions[inst]] for inst in drawn]


class Product(NamedTuple):
    """Sum of products of half floats or of TF32, in float32.

    Parameters
    ----------
    dtype : str
        Type of both operands.
    transposed : bool
        Whether the second operand's rows in memory run along the sum.
    along_rows : bool
        Whether both operands are read along their rows in memory.
    """

    dtype: str
    transposed: bool
    along_rows: bool

    @staticmethod
    def of(schedule: Any, block: Any) -> Product | None:
        """Return the product that a block computes; None if it is none or is scheduled already."""
        loops = BlockLoops.of(schedule, block)
        if loops is None or len(loops.stated.writes) != 1 or TILING_KEY in loops.stated.annotations:
            return None
        written = loops.stated.writes[0].source
        operands = [region for region in loops.stated.reads if not region.source.same_as(written)]
        types = {str(region.source.dtype) for region in operands}
        if len(operands) != 2 or len(types) != 1 or str(written.dtype) != SUMS:
            return None
        (dtype,) = types
        if dtype not in TENSOR_CORES or not all(len(region.region) for region in operands):
            return None
        first, second = (region.region[-1].min for region in operands)
        reduced = [loops.names[k] for k in loops.reduced]

        def along_sum(index: Any) -> bool:
            return any(index.same_as(name) for name in reduced)

        plain = any(second.same_as(name) for name in loops.names)
        return Product(dtype, along_sum(second), along_sum(first) and plain)


def _tiling(product: Product) -> Any:
    """Return MetaSchedule's rule for a product."""
    return ms.schedule_rule.MultiLevelTilingTensorCore(
        intrin_groups=[intrinsic_group(product.dtype, transposed=product.transposed)],
        structure="SSSRRSRS",
        tile_binds=["blockIdx.y", "blockIdx.x", "threadIdx.y"],
        max_innermost_factor=MAX_INNERMOST,
        vector_load_lens=list(ALONG_ROWS if product.along_rows and product.dtype != TF32 else ACROSS_ROWS),
        reuse_read=ms.schedule_rule.ReuseType(req="must", levels=[4], scope=SHARED),
        reuse_write=ms.schedule_rule.ReuseType(req="must", levels=[2], scope=SHARED),
    )


def is_tensor_core(trace: Any) -> bool:
    """Return whether a trace is of a schedule for tensor cores."""
    return any(inst.kind.name == "Annotate" and str(inst.attrs[0]) == TENSORIZE_KEY for inst in trace.insts)


def _copies(schedule: Any, dtype: str) -> list[Any]:
    """Return the blocks that copy the operands to shared memory."""
    found = []
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        stated = schedule.get(block)
        (written,) = [region.source for region in stated.writes]
        fetched = FETCH_KEY in stated.annotations
        if fetched and str(written.scope()) == SHARED and str(written.dtype) == dtype:
            found.append(block)
    return found


def _with_async_copies(schedule: Any, dtype: str, stages: int) -> Any:
    """Return the schedule with asynchronous copies that run `stages` - 1 steps of the sum ahead."""
    copies = _copies(schedule, dtype)
    step = schedule.get_loops(copies[0])[-2]  # the copies' own loop is fused
    schedule.annotate(step, "software_pipeline_stage", [0] * len(copies) + [stages - 1])
    schedule.annotate(step, "software_pipeline_order", list(range(len(copies) + 1)))
    schedule.annotate(step, "software_pipeline_async_stages", [0])
    return schedule


def intrinsic_group(dtype: str, *, transposed: bool) -> dict[str, str]:
    """Return names of the intrinsics for products of a type, as MetaSchedule's rule takes them.

    Parameters
    ----------
    dtype : "float16", "bfloat16" or "float32", which is multiplied as TF32
    transposed : bool
        Whether the second operand's rows in memory run along the sum.
    """
    kind, trans, shape = SHORT[dtype], "_trans" if transposed else "", "x".join(map(str, size_of(dtype)))
    sums, scope = SHORT[SUMS], SHARED.replace(".", "_")
    return {
        "init": f"wmma_fill_{shape}_{sums}",
        "load_a": f"wmma_load_{shape}_{kind}_a_{scope}",
        "load_b": f"wmma_load_{shape}_{kind}_b{trans}_{scope}",
        "compute": f"wmma_sync_{shape}_{kind}{kind}{sums}{trans}",
        "store": f"wmma_store_{shape}_{sums}_{scope}",
    }


def size_of(dtype: str) -> tuple[int, int, int]:
    """Return rows, columns and terms of a warp's matrix operation."""
    return SHAPE if dtype == TF32 else SIZE


@functools.cache
def register_intrinsics() -> None:
    """Register the intrinsics that TVM lacks, in this process."""
    from tvm.s_tir.tensor_intrin import cuda  # slow, unless `metaschedule.intrinsics` has imported it

    for dtype, transposed in itertools.product(TENSOR_CORES, (False, True)):
        names = intrinsic_group(dtype, transposed=transposed)
        load, sync, size = cuda.get_wmma_load_intrin, cuda.get_wmma_sync_intrin, size_of(dtype)
        made = {
            "init": functools.partial(cuda.get_wmma_fill_intrin, *size, SUMS),
            "load_a": functools.partial(load, *size, dtype, SHARED, False, False),
            "load_b": functools.partial(load, *size, dtype, SHARED, True, transposed),
            "compute": functools.partial(sync, *size, dtype, SUMS, transposed),
            "store": functools.partial(cuda.get_wmma_store_intrin, *size, SUMS, SHARED),
        }
        for part, make in made.items():
            if TensorIntrin.get(names[part], allow_missing=True) is None:
                TensorIntrin.register(names[part], *make())
