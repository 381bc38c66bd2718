"""Rewrite of quantized networks: what is between two quantizations becomes one kernel on eight-bit numbers.

ONNX's quantizers and PyTorch's write each operator as float32 between dequantized inputs and a quantization
of its result. A convolution or product with constant weights becomes integer sums with the zero points folded
into their bias, and its bounds, rounding and residual follow in the same kernel. Images have their channels
last, from the first quantization to what leaves the quantized part.
"""

from __future__ import annotations

import logging
from typing import Any

from tvm import relax

from wmsched.relax.int8.constants import operator
from wmsched.relax.int8.dots import DOTS, PERMUTES, dot_of, permutes_bytes
from wmsched.relax.int8.emit import Emitter
from wmsched.relax.int8.function import Rewrite, rewritten
from wmsched.relax.int8.operators import HANDLERS

logger = logging.getLogger("wmsched")

QUANTIZE, DEQUANTIZE = "relax.quantize", "relax.dequantize"
CORES = "num-cores"


def eight_bits(module: Any, target: Any) -> Any:
    """Return a Relax module with its quantized parts computed in eight bits; the module itself without such.

    It also stays where the target has no dot products of eight or sixteen bits.
    """
    dot = dot_of(target)
    main = next((f for v, f in module.functions.items() if str(v.name_hint) == "main"), None)
    if dot is None or not isinstance(main, relax.Function) or not _is_quantized(main):
        return module
    threads, permuted = int(target.attrs.get(CORES, 1)), permutes_bytes(target)
    try:
        return rewritten(
            module,
            lambda function, builder: Rewrite(
                function, builder, Emitter(builder, dot, threads, permuted), HANDLERS
            ),
        )
    except Exception as error:  # TVM's builder does not expect some expression
        logger.warning("wmsched: quantized operators stay in float32: %s", str(error).strip()[-300:])
        return module


def instructions(module: Any, target: Any) -> list[str]:
    """Return the names in /proc/cpuinfo of what the eight-bit kernels of a module need; [] without such."""
    functions = [f for f in module.functions.values() if isinstance(f, relax.Function)]
    if not any(map(_is_quantized, functions)):
        return []
    found = (dot_of(target), dot_of(target, PERMUTES))
    return sorted({name for kind, needs in (*DOTS, *PERMUTES) if kind in found for name in needs.values()})


def _is_quantized(function: Any) -> bool:
    found: set[str] = set()
    relax.analysis.post_order_visit(function, lambda node: found.add(operator(node)))
    return {QUANTIZE, DEQUANTIZE} <= found
