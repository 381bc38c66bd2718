"""Inputs of an ONNX graph that say how large something is, and graphs with such inputs as constants.

A program here has fixed shapes: axes, shapes, pads and scales must be known when it is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import numpy_helper

from wmsched.relax.importers.onnx_fold import graphs_in

#: Inputs, by operator, whose values the shape of an output or the form of a program hangs on.
PORTS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "If": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **{
        f"Reduce{kind}": (1,)
        for kind in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
    },
}
SHAPE_ONLY = ("Shape", "Size", "ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike")


def inputs_to_bind(model: Any) -> list[str]:
    """Return the inputs of a graph that a port hangs on, directly or through other operators, in order."""
    wanted: set[str] = set()
    _seek(model.graph, wanted)
    return [value.name for value in model.graph.input if value.name in wanted]


def _seek(graph: Any, wanted: set[str]) -> None:
    for node in reversed(graph.node):
        if node.domain in ("", "ai.onnx"):
            for place in PORTS.get(node.op_type, ()):
                if place < len(node.input) and node.input[place]:
                    wanted.add(node.input[place])
        for inner in graphs_in(node):
            _seek(inner, wanted)
        if wanted.intersection(node.output) and node.op_type not in SHAPE_ONLY:
            wanted.update(name for name in node.input if name)
            for inner in graphs_in(node):  # what its branches give may be what is wanted
                wanted.update(value.name for value in inner.output)
                _seek(inner, wanted)


def bound(model: Any, values: Mapping[str, Any]) -> Any:
    """Return the model with inputs as constants; the model itself without `values`."""
    if not values:
        return model
    made = type(model)()
    made.CopyFrom(model)
    left = [value for value in made.graph.input if value.name not in values]
    del made.graph.input[:]
    made.graph.input.extend(left)
    made.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    return made
