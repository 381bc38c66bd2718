"""Tensor-core spaces searched in the model: rows of decisions are read as TVM would make them."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest
import tvm
from tvm.s_tir import meta_schedule as ms

from benchmarks.gpu.compile_kinds import context_of
from benchmarks.gpu.drawn_speed import compare
from benchmarks.gpu.kinds import SMALL, Kind
from wmsched.features.trace_features import trace_features
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.design_space import DrawnSpaces
from wmsched.metaschedule.native.library import library
from wmsched.metaschedule.native.reader import TraceReader
from wmsched.metaschedule.rules.tensor_cores import MAX_REGISTERS, is_tensor_core, registers_of
from wmsched.metaschedule.search_strategy import drawn_search
from wmsched.metaschedule.trace_reader import steps_of_schedule
from wmsched.metaschedule.workload import workload_of
from wmsched.search.evolution import Evolution
from wmsched.toolchain.targets import target_text

BOARD = "RTX 4090"
KINDS = {kind.name: kind for kind in SMALL}
QUICK = (
    "odd",
    "conv-1x1-bf16",
    "renamed",
)  # padded products, and convolutions as products; the others are slow


class Renamed(Kind):
    """A kind whose sums are written to a tensor of another name than the block's, as Relax has it."""

    def function(self):
        text = tvm.IRModule({"main": super().function().with_attr("global_symbol", "main")}).script()
        renamed = re.sub(r'(?<!")\bC\b(?!")', "C_intermediate", text)
        assert renamed != text
        return tvm.script.from_source(renamed)["main"]


RENAMED = Renamed(name="renamed", shape=(1, 64, 64, 64), transposed=True)


def begun(name):
    """A kind's spaces and its reader."""
    context, designs = context_of(KINDS.get(name, RENAMED), BOARD)
    workload = workload_of(context.mod, target_text(context.target))
    return DrawnSpaces(context, designs), TraceReader(library(), workload), workload


def check(name, count):
    """Random rows of all spaces of a kind, as rows, as TVM's schedules in C++, and as these in Python."""
    spaces, reader, workload = begun(name)
    assert sum(map(is_tensor_core, spaces.traces)) == 3  # copies at once, and one or two steps ahead
    tried = spaces.random(count, np.random.default_rng(2))
    made = [spaces.candidate(one, checked=False) for one in tried]
    assert None not in made and len(made) == count * len(spaces)
    ours, theirs = spaces.read(reader, tried)[0], reader(made)
    assert ours.fine.all() and theirs.fine.all()
    np.testing.assert_array_equal(ours.columns, theirs.columns)
    assert ours.families(range(len(made))) == theirs.families(range(len(made)))
    phi, extra, _ = trace_features([steps_of_schedule(one.sch) for one in made], workload)
    for found, expected in zip(ours.phi(range(len(made))), (phi, extra), strict=True):
        np.testing.assert_array_equal(found, expected)
    share = ours.columns[:, reader.names.index("gpu_shared_share")]
    assert (share > 0).all() and len(set(share.tolist())) > 1  # the copies' sizes are known


@pytest.mark.parametrize("name", QUICK)
def test_rows_are_read_as_tvm_makes_them(name) -> None:
    check(name, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_rows_of_every_kind_are_read_as_tvm_makes_them(name) -> None:
    check(name, 4)


def test_no_row_has_more_sums_than_registers_or_more_threads_than_a_block() -> None:
    spaces, _, _ = begun("dense")
    for which, row in spaces.random(64, np.random.default_rng(3)):
        slots = [slot for slot in spaces.draws[which].slots if slot.parts == 5]
        tiles = [list(row[slot.start : slot.start + 5]) for slot in slots]
        warps = np.prod([tile[2] for tile in tiles])
        assert len(tiles) == 2 and registers_of(tiles) <= MAX_REGISTERS and 32 * warps <= spaces.threads


def test_the_search_in_the_model_takes_them(caplog) -> None:
    """A round of it; TVM's own search would fail."""
    model = WorldModelCostModel("cuda-meta", round_size=4)
    small = Evolution(population=64, generations=2)
    context, designs = context_of(KINDS["dense"], BOARD)
    strategy = drawn_search(model, evolution=small, stock=lambda designs: 1 / 0)
    strategy._initialize_with_tune_context(context)
    with caplog.at_level(logging.DEBUG):
        strategy.pre_tuning(8, 4, designs, ms.database.MemoryDatabase(), model)
        candidates = strategy.generate_measure_candidates()
    assert len(candidates) == 4 and model.problems == {}
    assert all(is_tensor_core(one.sch.trace) for one in candidates)


@pytest.mark.slow
def test_the_command_says_how_many_a_second() -> None:
    """And that they are the same as TVM's."""
    line = compare(KINDS["dense"], BOARD, rows=64, made=3)
    assert line["equal"] and line["rows"] == 64 * line["spaces"] and line["made"] == 3
    assert line["rows_a_second"] > line["made_a_second"] > 0
