"""The kernel of an attention: its extents, strides and tiles as a TensorIR function around `attention.cuh`.

TVM 0.27's generator (`tvm.relax.frontend.nn.llm`) has neither tensor cores nor additive masks, and takes
operands in one layout. This one reads operands where they lie, as slices and transposes of other tensors.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

__all__ = ["KINDS", "MAX_SHARED_BYTES", "Attention", "View", "attention_kernel", "tiled"]

#: Types of a product as the kernel names them; "tf32" is float32 multiplied on tensor cores.
KINDS = {"float32": "WM_F32", "tf32": "WM_TF32", "float16": "WM_F16", "bfloat16": "WM_BF16"}
MASKS = {"": "WM_NO_MASK", "float32": "WM_F32_MASK", "float16": "WM_F16_MASK", "bfloat16": "WM_BF16_MASK"}
MAX_SHARED_BYTES = 48 * 1024  # of a block, without asking the driver for more
WARP_ROWS = 16  # queries of a warp
#: Warps and keys of a tile, the best first: the first is taken whose shared memory is there.
TILES = ((4, 64), (4, 32), (2, 64), (2, 32), (2, 16), (1, 32), (1, 16))
SOURCES = ("instructions.cuh", "attention.cuh")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class View:
    """Where a tensor of batches, heads, rows and columns lies within another.

    Parameters
    ----------
    shape : tuple of int
        Of the tensor that it lies in.
    dtype : str
    strides : tuple of int
        In elements: of a batch, a head, a row and a column.
    offset : int
        Of its first element.
    """

    shape: Shape
    dtype: str
    strides: tuple[int, int, int, int]
    offset: int = 0

    def at(self, *index: Any) -> Any:
        """Return the place of an element."""
        place: Any = self.offset
        for each, stride in zip(index, self.strides, strict=True):
            if stride:
                place = place + each * stride
        return place


@dataclass(frozen=True, kw_only=True)
class Attention:
    """softmax(q k^T * scale + mask) v.

    Parameters
    ----------
    batch, heads, rows, keys, width : int
        Rows are queries; the width is a head's.
    kind : str
        Of `KINDS`: how products are computed. Sums and the softmax are float32.
    q, k, v, out : View
    mask : View, optional
        Added to the scaled scores; a stride of 0 repeats it.
    scale : float
    causal : int, optional
        How many keys after its own row a query sees: 0 of a decoder's. None: all.
    is_safe : bool
        Whether a row without a key is zeros, as in PyTorch, and not NaN.
    warps, tile : int
        Of a block, and keys of a tile; 0: as `tiled` finds them.
    """

    batch: int
    heads: int
    rows: int
    keys: int
    width: int
    kind: str
    q: View
    k: View
    v: View
    out: View
    mask: View | None = None
    scale: float
    causal: int | None = None
    is_safe: bool = False
    warps: int = 0
    tile: int = 0

    @property
    def padded(self) -> int:
        """A head's width in shared memory, a multiple of a tensor core's terms."""
        return -(-self.width // 16) * 16

    @property
    def blocks(self) -> int:
        return self.batch * self.heads * -(-self.rows // (WARP_ROWS * self.warps))

    @property
    def shared_bytes(self) -> int:
        """What `attention.cuh` takes of a block's shared memory."""
        if self.kind == "float32":
            rows = WARP_ROWS * self.warps
            return 4 * (2 * self.tile + rows) * (self.padded + 4)
        if self.kind == "tf32":
            return 4 * self.tile * (2 * self.padded + 12)
        return 2 * self.tile * 2 * (self.padded + 8)

    @property
    def operations(self) -> float:
        seen = self.keys if self.causal is None else min(self.keys, self.causal + (self.rows + 1) / 2)
        return 4.0 * self.batch * self.heads * self.rows * seen * self.width

    @property
    def words(self) -> str:
        """What it computes, for reports."""
        more = ", causal" if self.causal is not None else ", masked" if self.mask is not None else ""
        return f"attention of {self.heads} heads of {self.width}, {self.rows} rows, {self.keys} keys{more}"


def tiled(given: Attention, multiprocessors: int = 0) -> Attention:
    """Return an attention with its tiles.

    Parameters
    ----------
    multiprocessors : int
        Of the GPU. Blocks have fewer rows where there would not be one for each; 0: unknown.
    """
    found = None
    for warps, tile in TILES:
        option = replace(given, warps=warps, tile=tile)
        if option.shared_bytes > MAX_SHARED_BYTES:
            continue
        found = found or option
        wasted = warps > 1 and given.rows <= WARP_ROWS * warps // 2
        if not wasted and (warps <= 2 or option.blocks >= multiprocessors):
            return option
    if found is None:
        raise ValueError(f"heads of {given.width} in {given.kind} take over {MAX_SHARED_BYTES} bytes")
    return found


def attention_kernel(given: Attention) -> Any:
    """Return the TensorIR function (q, k, v[, mask], out) of a `tiled` attention, as it is scheduled."""
    from tvm.backend.cuda.op import cuda_func_call
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    from wmsched.relax.int8.product import ATTRIBUTES
    from wmsched.relax.passes.describe import OPERATIONS, WHAT

    views = {"q": given.q, "k": given.k, "v": given.v}
    if given.mask is not None:
        views["mask"] = given.mask
    views["out"] = given.out
    name, source = _source(given)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("fused_attention")
        T.func_attr(ATTRIBUTES | {WHAT: given.words, OPERATIONS: given.operations})
        buffers = {key: T.arg(key, T.buffer(view.shape, view.dtype)) for key, view in views.items()}
        with T.sblock("root"):
            T.reads()
            T.writes()
            with (
                T.thread_binding(0, given.blocks, thread="blockIdx.x"),
                T.thread_binding(0, 32 * given.warps, thread="threadIdx.x"),
            ):
                pointers = [buffer.data for buffer in buffers.values()]
                T.evaluate(cuda_func_call(name, *pointers, source_code=source))
    return builder.get()


@functools.cache
def _common() -> str:
    return "".join((Path(__file__).parent / one).read_text(encoding="utf-8") for one in SOURCES)


def _source(given: Attention) -> tuple[str, str]:
    """Return the name of an attention's device function, and its source."""
    numbers: dict[str, int | str] = {
        "kind": KINDS[given.kind],
        "out": KINDS[given.out.dtype],
        "mask": MASKS[given.mask.dtype if given.mask is not None else ""],
        "causal": int(given.causal is not None),
        "offset": given.causal or 0,
        "safe": int(given.is_safe),
        "heads": given.heads,
        "rows": given.rows,
        "keys": given.keys,
        "width": given.width,
        "padded": given.padded,
        "threads": 32 * given.warps,
        "tile": given.tile,
    }
    parts = ("batch", "head", "row", "key")
    for key in ("q", "k", "v", "mask", "out"):
        view: View | None = getattr(given, key)
        strides: Sequence[int] = view.strides if view is not None else (0, 0, 0, 0)
        numbers |= {f"{key}_{part}": stride for part, stride in zip(parts, strides)}
        numbers[f"{key}_start"] = view.offset if view is not None else 0
    body = "".join(f"  static constexpr int {key} = {value};\n" for key, value in numbers.items())
    body += f"  static __device__ constexpr float scale() {{ return {_literal(given.scale)}; }}\n"
    name = f"wm_attention_{hashlib.sha256(body.encode()).hexdigest()[:12]}"
    mask, passed = ("const void* mask, ", "mask") if given.mask is not None else ("", "(const void*)0")
    taken = f"const void* q, const void* k, const void* v, {mask}void* out"
    return name, (
        f"{_common()}\nstruct {name}_shape {{\n{body}}};\n"
        f"__device__ __forceinline__ void {name}({taken}) {{\n"
        f"  wm_attention<{name}_shape>(q, k, v, {passed}, out);\n}}\n"
    )


def _literal(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"an attention's scale is {value}")
    text = repr(value)
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"
