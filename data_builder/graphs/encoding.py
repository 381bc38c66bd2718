"""A Relax graph and its configurations in the columns of TpuGraphs' layout files.

Nodes are the inputs and operators of a graph; constants are none, their shapes are columns of their readers.
``node_feat`` has TpuGraphs' columns where an operator has what they hold, and zeros elsewhere. Opcodes are no
HLO ids: `OPCODES` begins beyond those. Configurable nodes are the sites.

Configurations have 24 columns. The first 18 are the layouts of output, input and kernel, six places each,
minor to major: today all configurations have the same. The last six are choices, -1 where a site has none:
algorithm (`ALGORITHMS`), elementwise chain (0 fused, 1 apart), concatenation (0 fused, 1 copied), whether the
option is the rules' own (1 if so), and two unused ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.graph.tpugraphs import NODE_COLUMNS

__all__ = [
    "CONFIG_COLUMNS",
    "OPCODES",
    "Encoded",
    "Node",
    "configurations",
    "encode",
    "nodes_of",
    "option_codes",
]

FIRST_OPCODE = 121  # HLO's ids end before
NAMES = (
    "input", "call_tir", "tuple", "tuple_get_item", "other", "nn.conv2d", "nn.conv2d_transpose",
    "matmul", "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "sqrt", "rsqrt",
    "exp", "erf", "tanh", "sigmoid", "clip", "negative", "abs", "nn.relu", "nn.relu6", "nn.silu",
    "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.softmax", "nn.layer_norm", "nn.batch_norm",
    "nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d", "nn.pad", "mean", "sum", "max",
    "reshape", "permute_dims", "concat", "split", "strided_slice", "expand_dims", "squeeze",
    "broadcast_to", "astype", "layout_transform", "take", "nn.pixel_shuffle", "nn.group_norm",
    "nn.instance_norm", "image.resize2d",
)  # fmt: skip
OPCODES = {name: FIRST_OPCODE + number for number, name in enumerate(NAMES)}
CONFIG_COLUMNS = 24
ALGORITHMS = {"direct": 0, "product": 1, "winograd2": 2, "winograd4": 3, "kernel": 4}
CHAINS, CONCATS = {"fused": 0, "apart": 1}, {"fused": 0, "copied": 1}

# Columns of node_feat, as TpuGraphs' documentation numbers them.
IS_ROOT, FLOAT32, INT64, OTHER_TYPE = 0, 13, 7, 2
SHAPE, SHAPE_SUM, SHAPE_PRODUCT = 21, 27, 28
DIMENSIONS = 31  # of the operation: here the shape of a constant operand
WINDOW, STRIDE, PADDING_LOW, PADDING_HIGH, DILATION = 37, 45, 53, 61, 69  # six, their sum and their product
GROUPS = 107  # feature_group_count
LAYOUT = 134
PLACES = 6


@dataclass(frozen=True)
class Node:
    """An input or operator of a graph.

    Parameters
    ----------
    opcode : int
    feat : tuple of (int, float)
        Columns of ``node_feat`` that are not zero.
    reads : tuple of int
        Which nodes.
    rank : int
        Dimensions of the output; 0 for several outputs.
    """

    opcode: int
    feat: tuple[tuple[int, float], ...]
    reads: tuple[int, ...]
    rank: int


@dataclass(frozen=True)
class Encoded:
    """Arrays of a graph in the files' format, without its configurations."""

    node_feat: NDArray[np.float32]
    node_opcode: NDArray[np.uint8]
    edge_index: NDArray[np.int64]
    node_config_ids: NDArray[np.int64]


def encode(nodes: Sequence[Node], sites: Sequence[int]) -> Encoded:
    """Return the arrays of a graph whose sites are some of its nodes."""
    feat = np.zeros((len(nodes), NODE_COLUMNS), np.float32)
    for number, node in enumerate(nodes):
        for column, value in node.feat:
            feat[number, column] = value
    edges = [(number, read) for number, node in enumerate(nodes) for read in node.reads]
    return Encoded(
        node_feat=feat,
        node_opcode=np.array([node.opcode for node in nodes], np.uint8),
        edge_index=np.array(edges, np.int64).reshape(-1, 2),
        node_config_ids=np.array(sites, np.int64),
    )


def configurations(options: Sequence[Sequence[str]], chosen: Sequence[Sequence[int]]) -> NDArray[np.int8]:
    """Return ``node_config_feat`` int8 [c, k, 24].

    Parameters
    ----------
    options : of each site, those of `wmsched.relax.choices.configuration.Site`
    chosen : of each configuration, the number of an option for each site
    """
    found = np.full((len(chosen), len(options), CONFIG_COLUMNS), -1, np.int8)
    for site, names in enumerate(options):
        rows = [(*_choice(names, number), int(number == 0)) for number in range(len(names))]
        rank = 4 if rows[0][0] >= 0 else 0
        for place in range(rank):  # channels last, and filters with their output channels last
            found[:, site, place::PLACES][:, :3] = rank - 1 - place
        numbers = np.array([configuration[site] for configuration in chosen])
        found[:, site, 18:22] = np.array(rows, np.int8)[numbers]
    return found


def option_codes(options: Sequence[Sequence[str]]) -> NDArray[np.int8]:
    """Return the code of each site's options in the column that they are told by: int8 [k, o], -1 beyond."""
    found = np.full((len(options), max(map(len, options))), -1, np.int8)
    for site, names in enumerate(options):
        found[site, : len(names)] = [max(_choice(names, number)) for number in range(len(names))]
    return found


def _choice(names: Sequence[str], number: int) -> tuple[int, int, int]:
    option = names[number]
    if "apart" in names:
        return -1, CHAINS[option], -1
    if "copied" in names:
        return -1, -1, CONCATS[option]
    return ALGORITHMS[option], -1, -1


def nodes_of(module: Any) -> tuple[list[Node], dict[int, int]]:
    """Return the nodes of a module as `sites` reads it, and which of them each place of ``main`` is."""
    from tvm import relax

    from wmsched.relax.choices.rewrite import Rewriter
    from wmsched.relax.passes.wide_fusion import shape_of

    graph = Rewriter(module)
    number: dict[Any, int] = {}
    nodes: list[Node] = []
    places: dict[int, int] = {}
    for one in graph.function.params:
        number[one] = len(nodes)
        nodes.append(_node("input", shape_of(one), str(getattr(one.ty, "dtype", "")), ()))
    for place, (variable, value) in enumerate(graph.bindings):
        reads: list[int] = []
        relax.analysis.post_order_visit(
            value, lambda node, reads=reads: reads.append(number[node]) if node in number else None
        )
        name = graph.operator(value).removeprefix("relax.")
        if isinstance(value, relax.TupleGetItem):
            name = "tuple_get_item"
        elif isinstance(value, relax.Tuple):
            name = "tuple"
        shape, kind = shape_of(value), str(getattr(value.ty, "dtype", ""))
        extra = _window(value) if name.startswith("nn.conv2d") else []
        extra += _weights(value, shape_of)
        root = None in graph.readers.get(variable, [])
        number[variable] = places[place] = len(nodes)
        nodes.append(_node(name, shape, kind, tuple(dict.fromkeys(reads)), root, extra))
    return nodes, places


def _node(
    name: str,
    shape: Sequence[int] | None,
    kind: str,
    reads: tuple[int, ...],
    root: bool = False,
    extra: Sequence[tuple[int, float]] = (),
) -> Node:
    sizes = [int(size) for size in shape or ()][:PLACES]
    feat = [(IS_ROOT, float(root)), ({"float32": FLOAT32, "int64": INT64}.get(kind, OTHER_TYPE), 1.0)]
    feat += _six(SHAPE, sizes)
    feat += [(LAYOUT + place, float(len(sizes) - 1 - place)) for place in range(len(sizes))]
    return Node(OPCODES.get(name, OPCODES["other"]), (*feat, *extra), reads, len(sizes))


def _six(first: int, values: Sequence[int]) -> list[tuple[int, float]]:
    """Return up to six values, their sum and their product."""
    found = [(first + place, float(value)) for place, value in enumerate(values[:PLACES])]
    return [*found, (first + 6, float(sum(values))), (first + 7, float(math.prod(values)))]


def _window(call: Any) -> list[tuple[int, float]]:
    """Return window, strides, padding, dilation and groups of a convolution."""
    attrs = call.attrs
    layout, shape = str(attrs.kernel_layout), [int(size) for size in call.args[1].ty.shape]
    padding = [int(size) for size in attrs.padding]
    found = _six(WINDOW, [shape[layout.index("H")], shape[layout.index("W")]])
    found += _six(STRIDE, [int(step) for step in attrs.strides])
    found += _six(PADDING_LOW, padding[:2]) + _six(PADDING_HIGH, padding[2:])
    found += _six(DILATION, [int(step) for step in attrs.dilation])
    return [*found, (GROUPS, float(int(attrs.groups)))]


def _weights(value: Any, shape_of: Any) -> list[tuple[int, float]]:
    """Return the shape of an operator's first constant that is more than one number."""
    import tvm

    for one in getattr(value, "args", ()):
        if isinstance(one, tvm.ir.Constant) and len(shape := shape_of(one) or ()) > 1:
            return [(DIMENSIONS + place, float(size)) for place, size in enumerate(shape[:PLACES])]
    return []
