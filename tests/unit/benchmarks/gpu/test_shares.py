"""What is said of kinds without a GPU: a kind that is missing, or half there, is short."""

from __future__ import annotations

import json

import pytest

from benchmarks.gpu.attentions import ATTENTIONS, SMALL_ATTENTIONS
from benchmarks.gpu.compile_kinds import BOARDS, is_expected, is_whole
from benchmarks.gpu.kinds import KINDS, SMALL
from benchmarks.gpu.programs import PROGRAMS, SMALL_PROGRAMS
from benchmarks.gpu.right_kinds import ARCH, is_right
from benchmarks.scoreboard import gpu

COMPILED = {"valid": 1, "compiled": 1, "within_limits": True}
NONE = {"valid": 0, "compiled": 0, "within_limits": True}


def test_a_product_compiles_in_all_spaces_and_another_program_in_those_that_have_a_schedule() -> None:
    product, program = KINDS[0], PROGRAMS[0]
    assert is_whole(product, [COMPILED]) and is_whole(program, [COMPILED, NONE])
    for lines in ([], [COMPILED, NONE], [COMPILED | {"compiled": 0}], [COMPILED | {"within_limits": False}]):
        assert not is_whole(product, lines)
    assert not is_whole(program, [NONE])
    assert is_whole(ATTENTIONS[0], [COMPILED]) and not is_whole(ATTENTIONS[0], [NONE])


def test_a_kind_is_right_if_each_space_with_a_schedule_is() -> None:
    product, program = SMALL[0], SMALL_PROGRAMS[0]
    right, none = {"valid": 1, "right": True}, {"valid": 0}
    assert is_right(product, [right, right]) and is_right(program, [none, right])
    assert (
        not is_right(product, [right, none]) and not is_right(program, [none]) and not is_right(product, [])
    )
    assert not is_right(program, [right, right | {"right": False}])


def test_types_are_expected_from_the_architectures_that_multiply_them() -> None:
    types = {kind.name: kind for kind in KINDS}
    assert is_expected(types["dense"], "sm_75") and is_expected(types["dense-bf16"], "sm_120")
    assert not is_expected(types["dense-bf16"], "sm_75") and not is_expected(types["dense-tf32"], "sm_75")
    assert all(is_expected(program, arch) for program in PROGRAMS for arch in BOARDS)
    attentions = {kind.name: kind for kind in ATTENTIONS}
    assert is_expected(attentions["attention"], "sm_75") and is_expected(
        attentions["attention-fp32"], "sm_75"
    )
    for name in ("attention-bf16", "attention-tf32"):
        assert is_expected(attentions[name], "sm_80") and not is_expected(attentions[name], "sm_75")


def test_a_kind_without_a_line_makes_the_share_short(tmp_path) -> None:
    kinds = (*SMALL, *SMALL_PROGRAMS, *SMALL_ATTENTIONS)
    lines = [{"kind": kind.name, "arch": ARCH, "valid": 1, "right": True} for kind in kinds]

    def share(some) -> float:
        (tmp_path / gpu.RIGHT).write_text("".join(json.dumps(line) + "\n" for line in some))
        return gpu._right(tmp_path).value

    assert share(lines) == 1.0
    assert share(lines[1:]) == share([{**lines[0], "right": False}, *lines[1:]]) == 1 - 1 / len(lines)


def test_rows_that_are_read_otherwise_have_no_speed(tmp_path) -> None:
    line = {"kind": "dense", "rows_a_second": 100, "equal": True}
    (tmp_path / gpu.DRAWN).write_text(json.dumps(line) + "\n")
    assert gpu._drawn(tmp_path) == (100, 100, 100)
    (tmp_path / gpu.DRAWN).write_text(json.dumps(line | {"equal": False}) + "\n")
    with pytest.raises(ValueError, match="not read as TVM"):
        gpu._drawn(tmp_path)
