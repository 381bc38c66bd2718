"""Table of ONNX's operators: who converts each, and what is refused at sight.

An operator is in one of four places: a converter of ours (`OURS`), TVM's (`TRUSTED`), a body of other
operators (`onnx_rewrites`), or `REFUSED`, with why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wmsched.relax.importers.operators import (
    casts,
    elementwise,
    indexing,
    normalization,
    pooling,
    reductions,
    resize,
    sequences,
    transforms,
)
from wmsched.relax.importers.operators.node import Node
from wmsched.relax.importers.operators.recurrent import OPERATORS as RECURRENT
from wmsched.relax.importers.operators.stock import STOCK, stock

MICROSOFT = "com.microsoft"


def _recurrent(name: str) -> Callable[[Node], Any]:
    def convert(node: Node) -> Any:
        return RECURRENT[name].get_converter(node.opset)(
            node.builder, node.inputs, node.attributes, node.params
        )

    return convert


OURS: dict[str, Callable[[Node], Any]] = {
    **casts.CONVERTERS,
    **elementwise.CONVERTERS,
    **indexing.CONVERTERS,
    **normalization.CONVERTERS,
    **pooling.CONVERTERS,
    **reductions.CONVERTERS,
    **resize.CONVERTERS,
    **sequences.CONVERTERS,
    **transforms.CONVERTERS,
    **{name: _recurrent(name) for name in RECURRENT},
}
#: Operators of Microsoft's domain that TVM converts.
OF_MICROSOFT = (
    "Attention", "BiasGelu", "EmbedLayerNormalization", "FastGelu", "Gelu", "MatMulInteger16",
    "SkipLayerNormalization",
)  # fmt: skip
#: TVM's converters that ONNX's operator sets do not have under these names, or that are Microsoft's.
NOT_ONNX = ("AllClassNMS", "Attention", "BiasGelu", "EmbedLayerNormalization", "FastGelu", "MatMulInteger16",
            "SkipLayerNormalization")  # fmt: skip
RANDOM = "it draws random numbers"
DATA = "how many elements it finds hangs on data, and programs have fixed shapes"
TRAINING = "it trains; models run here"
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            "Bernoulli",
            "Multinomial",
            "RandomNormal",
            "RandomNormalLike",
            "RandomUniform",
            "RandomUniformLike",
        ),
        RANDOM,
    ),
    "NonMaxSuppression": DATA,
    "ImageDecoder": "it reads compressed images",
}


def converter(domain: str, name: str) -> Callable[[Node], Any] | str:
    """Return the converter of an operator, or why there is none."""
    if domain == MICROSOFT:
        return (
            stock(name)
            if name in OF_MICROSOFT
            else f"operators of {MICROSOFT} are supported by name, and not this"
        )
    if domain not in ("", "ai.onnx"):
        if domain == "ai.onnx.preview.training":
            return TRAINING
        return f"it is an operator of {domain!r}, which is not known here"
    if name in REFUSED:
        return REFUSED[name]
    if name in OURS:
        return OURS[name]
    if name in STOCK and name not in NOT_ONNX:
        return stock(name)
    return "it is not supported"
