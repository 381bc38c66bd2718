"""Names of fields: they are those of the codec's table, and a step's list comes back from them."""

from __future__ import annotations

from hypothesis import given
from step_lists import steps

from wmsched.schedules.grammar import ABSENT, STEPS, Instruction, SplitStep, splits, typed
from wmsched.schedules.steps import STEP_FIELDS


def test_each_code_has_a_type_with_a_name_for_each_field_that_is_checked() -> None:
    assert STEPS.keys() == STEP_FIELDS.keys()
    for code, kind in STEPS.items():
        assert kind._fields[:2] == ("code", "stage")
        assert len(kind._fields) == 1 + len(STEP_FIELDS[code])


@given(steps)
def test_a_steps_list_comes_back(found: list) -> None:
    assert [[*typed(step)] for step in found] == found
    assert [[*split] for split in splits(found)] == [step for step in found if step[0] == "SP"]


def test_a_split_says_what_tvm_writes() -> None:
    split = typed(["SP", 2, 4, 128, [4, 8], 1])
    assert split == SplitStep("SP", stage=2, loop=4, extent=128, lengths=[4, 8], inner_to_outer=1)


def test_a_decision_of_null_is_a_decision() -> None:
    sample = ["SamplePerfectTile", ["l2"], [2, 64], ["v5", "v6"]]
    assert Instruction(*sample).decision is ABSENT and Instruction(*sample).decided(-1) == -1
    assert Instruction(*sample, None).decided(-1) is None
    assert Instruction(*sample, [8, 2]).decided() == [8, 2]
