"""TpuGraphs' raw records, protocol buffers of an autotuner, as graphs of the npz format.

Follows ``proto/tuning.proto``, ``featurizers.h`` and ``hlo_encoder.cc`` of google-research-
datasets/tpu_graphs (Apache-2.0) and XLA's ``hlo.proto``: those fields that the 140 columns need.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wmsched.graph.packing import pack_configs
from wmsched.graph.tpugraphs import NODE_COLUMNS, LayoutGraph, TileGraph

OPCODE_NAMES = """
abs add add-dependency after-all all-reduce all-to-all atan2 batch-norm-grad batch-norm-inference
batch-norm-training bitcast bitcast-convert broadcast call ceil cholesky clamp collective-permute
count-leading-zeros compare complex concatenate conditional constant convert convolution copy copy-done
copy-start cosine custom-call divide domain dot dynamic-slice dynamic-update-slice exponential
exponential-minus-one fft floor fusion gather get-dimension-size set-dimension-size get-tuple-element imag
infeed iota is-finite log log-plus-one and not or xor map maximum minimum multiply negate outfeed pad
parameter partition-id popcnt power real recv recv-done reduce reduce-precision reduce-window remainder
replica-id reshape reverse rng rng-get-and-update-state rng-bit-generator round-nearest-afz rsqrt scatter
select select-and-scatter send send-done shift-left shift-right-arithmetic shift-right-logical sign sine
slice sort sqrt subtract tanh trace transpose triangular-solve tuple tuple-select while cbrt all-gather
collective-permute-start collective-permute-done logistic dynamic-reshape all-reduce-start all-reduce-done
reduce-scatter all-gather-start all-gather-done opt-barrier async-start async-update async-done
round-nearest-even stochastic-convert tan
"""
OPCODE_IDS = {name: number for number, name in enumerate(OPCODE_NAMES.split(), start=1)}
ELEMENT_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17)  # in the columns' order


class Message:
    """A protocol buffer's fields by number, undecoded: integers, and bytes of strings and messages."""

    def __init__(self, data: bytes = b"") -> None:
        self.fields: dict[int, list[Any]] = {}
        place = 0
        while place < len(data):
            key, place = _varint(data, place)
            number, wire = key >> 3, key & 7
            if wire == 0:
                value, place = _varint(data, place)
            elif wire == 2:
                size, place = _varint(data, place)
                value, place = data[place : place + size], place + size
            elif wire in (1, 5):
                size = 8 if wire == 1 else 4
                value, place = (
                    struct.unpack("<q" if wire == 1 else "<i", data[place : place + size])[0],
                    place + size,
                )
            else:
                raise ValueError(f"wire type {wire} at byte {place}")
            self.fields.setdefault(number, []).append(value)

    def integers(self, number: int) -> list[int]:
        """Repeated integers, packed or not."""
        found: list[int] = []
        for value in self.fields.get(number, []):
            if isinstance(value, bytes):
                place = 0
                while place < len(value):
                    one, place = _varint(value, place)
                    found.append(_signed(one))
            else:
                found.append(_signed(value))
        return found

    def integer(self, number: int) -> int:
        return (self.integers(number) or [0])[-1]

    def text(self, number: int) -> str:
        return self.fields.get(number, [b""])[-1].decode()

    def messages(self, number: int) -> list[Message]:
        return [Message(value) for value in self.fields.get(number, [])]

    def message(self, number: int) -> Message:
        return (self.messages(number) or [Message()])[-1]


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def read_layout_record(path: Path) -> tuple[LayoutGraph, np.ndarray]:
    """A layout graph with the runs that did not fail, and the packed configurations of all runs."""
    record = Message(path.read_bytes())
    nodes = _Nodes(record.message(1))
    runs = record.messages(3)
    rows = [[_tensors(node) for node in run.message(2).message(1).messages(1)] for run in runs]
    configs = pack_configs(np.array(rows, np.int8))
    is_good = np.array([not run.integer(3) and _nanoseconds(run) > 0 for run in runs])
    graph = LayoutGraph(
        name=path.stem,
        node_feat=nodes.features,
        node_opcode=nodes.opcodes,
        edge_index=nodes.edges,
        # places among the instructions, not their ids
        node_config_ids=np.array(record.integers(4), np.int32),
        configs=configs[is_good],
        config_runtime=np.array([_nanoseconds(run) for run in runs], np.int64)[is_good],
        node_splits=nodes.splits,
    )
    return graph, configs


def read_tile_records(path: Path) -> list[TileGraph]:
    """The kernels that have at least two runs that did not fail."""
    graphs = []
    for record in Message(path.read_bytes()).messages(1):
        runs = [run for run in record.messages(3) if not run.integer(3) and _nanoseconds(run) > 1]
        if len(runs) < 2:
            continue
        default = next((_nanoseconds(run) for run in runs if run.integer(5)), _nanoseconds(runs[0]))
        nodes = _Nodes(record.message(1))
        graphs.append(
            TileGraph(
                name=record.message(1).text(1),
                node_feat=nodes.features,
                node_opcode=nodes.opcodes,
                edge_index=nodes.edges,
                config_feat=np.array([_tile(run.message(1).message(1)) for run in runs], np.float32),
                config_runtime=np.array([_nanoseconds(run) for run in runs], np.int64),
                config_runtime_normalizers=np.full(len(runs), default, np.int64),
            )
        )
    return graphs


def _nanoseconds(run: Message) -> int:
    return run.message(4).integer(5)  # ExecutionProfile.compute_time_ns


def _tensors(node: Message) -> list[int]:
    places = [-1] * 18
    for number, tensor in enumerate(node.messages(1)):
        dims = tensor.integers(1)[:6]
        places[6 * number : 6 * number + len(dims)] = dims
    return places


def _tile(config: Message) -> list[float]:
    return [x for field in (1, 2, 3) for x in _sequence(config.integers(field), 6, empty_product=0.0)]


def _sequence(values: Sequence[int], size: int, *, empty_product: float = 1.0) -> list[float]:
    """Leading values padded with 0, their sum and their product."""
    leading = _leading(values, size)
    return [
        *leading,
        float(sum(values)),
        float(np.prod(values, dtype=np.float64)) if values else empty_product,
    ]


def _leading(values: Sequence[int], size: int) -> list[float]:
    return [float(x) for x in [*values, *[0] * size][:size]]


class _Nodes:
    """All instructions of a module, in the order of the file."""

    def __init__(self, module: Message) -> None:
        computations = module.messages(3)
        roots = {computation.integer(5): computation.integer(6) for computation in computations}
        instructions, splits, of_root = [], [0], []
        for computation in computations:
            own = computation.messages(2)
            instructions += own
            of_root += [computation.integer(6)] * len(own)
            if re.search("cluster|while|cond", computation.text(1)):
                splits.append(len(instructions))
        if splits[-1] < len(instructions):
            splits.append(len(instructions))
        self.splits = np.array(splits, np.int64)
        self.number = {instruction.integer(35): i for i, instruction in enumerate(instructions)}
        self.opcodes = np.array([OPCODE_IDS.get(i.text(2), 0) for i in instructions], np.int32)
        self.features = np.array([_columns(i, root) for i, root in zip(instructions, of_root)], np.float32)
        edges = [
            (self.number[instruction.integer(35)], self.number[other])
            for instruction in instructions
            for other in [
                *sorted(set(instruction.integers(36))),
                *(roots[called] for called in instruction.integers(38)),
            ]
        ]
        self.edges = np.array(edges, np.int32).reshape(-1, 2)


def _columns(instruction: Message, root: int) -> list[float]:
    shape, window = instruction.message(3), instruction.message(15).messages(1)
    convolution, slices = instruction.message(16), instruction.messages(17)
    padding = instruction.message(21).messages(1)
    reversal = [int(bool(dim.integer(7))) for dim in window]
    columns = [
        float(instruction.integer(35) == root),
        0.0,
        *(float(shape.integer(2) == kind) for kind in ELEMENT_TYPES),
        *_sequence(shape.integers(3), 6),
        float(len(shape.fields.get(4, []))),
        float(instruction.integer(9)),
        *_leading(instruction.integers(14), 6),
        *(x for field in (1, 2, 3, 4, 5, 6) for x in _sequence([dim.integer(field) for dim in window], 6)),
        *_leading(reversal, 6),
        float(sum(reversal)),
        float(len(reversal) - sum(reversal)),
        float(convolution.integer(7)),
        float(convolution.integer(8)),
        *_leading(convolution.integers(11), 4),
        float(convolution.integer(3)),
        float(convolution.integer(4)),
        *_leading(convolution.integers(6), 4),
        float(convolution.integer(9)),
        float(convolution.integer(10)),
        float(instruction.integer(50)),
        float(instruction.integer(58)),
        *(x for field in (1, 3, 2) for x in _sequence([s.integer(field) for s in slices], 2)),
        *_sequence(instruction.integers(20), 2),
        *(x for field in (1, 2) for x in _sequence([p.integer(field) for p in padding], 2)),
        float(bool(instruction.integer(60))),
        *_leading(shape.message(5).integers(1), 6),
    ]
    assert len(columns) == NODE_COLUMNS
    return columns
