"""MetaSchedule traces: lossless steps, resolved texts, loops as TVM has them; hostile input refused or kept.

``tests/data/traces.json.gz`` holds candidates of the stock spaces (llvm, cuda, tensor cores), and for each
the loops of its blocks as TVM 0.27's own schedule has them.
"""

from __future__ import annotations

import gzip
import json

import checkout
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wmsched.base.errors import LogError
from wmsched.schedules import any_steps
from wmsched.schedules.trace_nest import TraceNest
from wmsched.schedules.traces import check_steps, decode_steps, encode_actions, is_trace, steps_of, trace_of
from wmsched.schedules.types import Workload

DATA = json.loads(gzip.decompress((checkout.DATA / "traces.json.gz").read_bytes()))
STAGES = {name: Workload.stages_from_json(text) for name, text in DATA["stages"].items()}
CANDIDATES = DATA["candidates"]
NAMES = [f"{c['target']}-{c['workload']}-{k}" for k, c in enumerate(CANDIDATES)]
# Regions that the nest does not infer: a tensor core's layout, and a block with consumers in two nests.
INFERRED = [
    c for c in CANDIDATES if c["workload"] != "softmax" and (c["target"], c["workload"]) != ("cuda", "mm16")
]


@pytest.mark.parametrize("candidate", CANDIDATES, ids=NAMES)
def test_a_trace_comes_back_whole_and_so_does_every_prefix(candidate: dict) -> None:
    trace = candidate["trace"]
    steps = steps_of(trace)
    assert is_trace(steps)
    assert trace_of(steps) == trace
    actions = decode_steps(steps, STAGES[candidate["workload"]])
    assert encode_actions(actions) == steps
    assert len(actions) == len(steps) < len(trace[0])
    assert all(action.text and action.code == step[0] for action, step in zip(actions, steps))
    for cut in (0, 1, len(steps) // 2):
        instructions = trace_of(steps[:cut])[0]
        assert instructions == trace[0][: len(instructions)]
    any_steps.check_steps(steps)
    assert any_steps.decode_steps(steps) == decode_steps(steps)


@pytest.mark.parametrize("candidate", INFERRED)
def test_loops_are_those_of_the_scheduled_program(candidate: dict) -> None:
    nest = TraceNest(STAGES[candidate["workload"]])
    for step in steps_of(candidate["trace"]):
        nest.apply(step)
    found = [[b.name, [x.extent for x in b.nest]] for b in nest.blocks if not b.inlined]
    assert found == candidate["loops"]


def test_blocks_of_every_candidate_are_named_in_order() -> None:
    for candidate in CANDIDATES:
        nest = TraceNest(STAGES[candidate["workload"]])
        for step in steps_of(candidate["trace"]):
            nest.apply(step)
        assert [b.name for b in nest.blocks if not b.inlined] == [name for name, _ in candidate["loops"]]


TRACE = [
    [
        ["GetSBlock", [], ["C", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
        ["SamplePerfectTile", ["l1"], [2, 64], ["v4", "v5"]],
        ["Split", ["l1", "v4", "v5"], [True, False], ["l6", "l7"]],
        ["Split", ["l3", "None", 16], [True, False], ["l8", "l9"]],
        ["Fuse", ["l6", "l2"], [1], ["l10"]],
        ["Parallel", ["l10"], [], []],
        ["CacheWrite", ["b0", []], [0, "global"], ["b11"]],
        ["ReverseComputeAt", ["b11", "l10"], [1, -1], []],
        ["Annotate", ["b0", '"x y"'], ["who.knows"], []],
        ["Conjure", ["b0", "l9", 3], ["out of nothing", [1, None]], ["b12", "l13", "v14"]],
        ["Vectorize", ["l13"], [], []],
    ],
    [[2, [32, 4]]],
]


def test_texts_name_blocks_loops_and_extents() -> None:
    texts = [action.text for action in decode_steps(steps_of(TRACE), STAGES["mm"])]
    assert texts[0] == "split C x0 128 by 32 4"
    assert texts[1] == "split C r2 128 by 8 16"
    assert texts[2] == "fuse C 2 loops to 4096"
    assert texts[3] == "parallel C fused 4096"
    assert texts[4] == "cache_write C global"
    assert texts[5] == "compute_at C_global C 1 of 4 4096"
    assert texts[6] == "annotate C who.knows x y"
    assert texts[7] == "Conjure C C r2 16 3 out of nothing 1 None"
    without = [action.text for action in decode_steps(steps_of(TRACE))]
    assert without[0] == "split C fused 128 by 32 4"  # the extent is the decision's product


def test_lookups_at_the_end_are_a_step_of_their_own() -> None:
    trace = [TRACE[0][:3], [[2, [32, 4]]]]
    steps = steps_of(trace)
    assert [step[0] for step in steps] == ["SamplePerfectTile"] and trace_of(steps) == trace
    assert steps_of([[], []]) == []


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("[]", "pair"),
        ([[]], "pair"),
        ([[], {}], "lists"),
        ([[["Split", [], []]], []], "instruction 0"),
        ([[["Split", [], [], [3]]], []], "instruction 0"),
        ([[[3, [], [], []]], []], "instruction 0"),
        ([TRACE[0], [[99, 1]]], "decision"),
        ([TRACE[0], [[2, 1], [2, 1]]], "decision"),
        ([TRACE[0], [["2", 1]]], "decision"),
        ([[["GetSBlock", [], ["C", "main"], ["b0"]]] * 9000, []], "9000 instructions"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_place(trace: object, message: str) -> None:
    with pytest.raises(LogError, match=f"db.json:7: .*{message}"):
        steps_of(trace, place="db.json:7")


@pytest.mark.parametrize(
    "steps",
    [{}, [["Split"]], [["Split", []]], [["Fuse", [["Split", [], [], []]]]], [["Split", [["Split", [], []]]]],
     [["Split", [["Fuse", [], [], []], ["Split", [], [], []]]]]],
)  # fmt: skip
def test_steps_that_no_trace_gives_are_refused(steps: object) -> None:
    with pytest.raises(LogError):
        check_steps(steps)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2000) | st.floats(allow_nan=False)
    | st.sampled_from(["b0", "l1", "l2", "l3", "v4", "None", '"', '"x"', "root", "C"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip
KINDS = sorted({row[0] for c in CANDIDATES for row in c["trace"][0]})
ROWS = st.tuples(
    st.sampled_from([*KINDS, "Unknown"]), st.lists(JSON, max_size=4), st.lists(JSON, max_size=4),
    st.lists(st.sampled_from(["b0", "l1", "v4", "b9", "l9"]), max_size=3),
).map(list)  # fmt: skip


@settings(max_examples=150)
@example(rows=[["Blockize", ["l1"], [], []]], decision=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=12), decision=JSON)
def test_no_instruction_raises_and_all_come_back(rows: list, decision: object) -> None:
    trace = [TRACE[0][:4] + rows, [[2, [32, 4]], [4, decision]]]
    steps = steps_of(trace)
    actions = decode_steps(steps, STAGES["mm"])
    assert trace_of(encode_actions(actions)) == trace
    assert all(action.text for action in actions)
