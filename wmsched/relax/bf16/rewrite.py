"""Rewrite of float models: matrix products and convolutions in bfloat16, by a choice of the user.

A kernel rounds its operands to bfloat16 (8 bits of precision in place of 24) and sums their products in
float32. Everything else stays float32, so only products lose precision.
"""

from __future__ import annotations

import logging
from typing import Any

from tvm import relax

from wmsched.base.errors import WmschedError
from wmsched.relax.bf16.dots import BFLOAT16_DOTS, bfloat16_dot
from wmsched.relax.bf16.products import Products
from wmsched.relax.int8.function import rewritten
from wmsched.relax.int8.rewrite import CORES

logger = logging.getLogger("wmsched")


def bfloat16(module: Any, target: Any) -> Any:
    """Return a Relax module with its products in bfloat16 where that pays (`products.pays`).

    Raises
    ------
    WmschedError
        The target has no bfloat16 dot products, or TVM cannot rewrite the module.
    """
    check(target)
    main = next((f for v, f in module.functions.items() if str(v.name_hint) == "main"), None)
    dot, threads = bfloat16_dot(target), int(target.attrs.get(CORES, 1))
    if dot is None or not isinstance(main, relax.Function):
        return module
    try:
        return rewritten(module, lambda function, builder: Products(function, builder, dot, threads))
    except Exception as error:  # TVM's builder does not expect some expression
        raise WmschedError(
            f"--bf16: the model cannot be rewritten ({str(error).strip()[-300:]}); leave the option out"
        ) from error


def check(target: Any) -> None:
    """Raise WmschedError unless a target has bfloat16 dot products."""
    if bfloat16_dot(target) is None:
        wanted = " or ".join(" and ".join(sorted(needs.values())) for _, needs in BFLOAT16_DOTS)
        raise WmschedError(
            f"--bf16: {target} has no bfloat16 dot products, neither AMX's nor AVX-512's (they need {wanted} "
            "in /proc/cpuinfo); leave the option out, or name a --target that has them"
        )
