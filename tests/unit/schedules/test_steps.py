"""The AutoScheduler codec: round trips, refusals, and references resolved."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_lists import steps

from wmsched.base.errors import LogError
from wmsched.schedules.steps import (
    MAX_LINE_BYTES,
    check_sizes,
    check_steps,
    decode_steps,
    dump_record,
    encode_actions,
    parse_record,
    plain_steps,
)
from wmsched.schedules.types import Iter, Measurement, Record, Stage, Workload

times = st.floats(1e-9, 1.0)


def record(found_steps: list, costs: tuple[float, ...] = (0.5,)) -> Record:
    return Record(
        '["k", [1, 2]]', "llvm -keys=cpu", (2, 64, 64, 0, 0, 0, 0, 0), 2, found_steps, Measurement(costs)
    )


@given(steps, st.lists(times, min_size=1, max_size=3))
def test_a_record_survives_the_line(found, costs):
    original = record(found, tuple(costs))
    assert parse_record(dump_record(original)) == original


@given(steps)
def test_actions_give_their_steps_back(found):
    actions = decode_steps(found)
    assert encode_actions(actions) == found
    assert all(a.text for a in actions)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_log_error(line):
    with pytest.raises(LogError):
        parse_record(line)


def broken(change) -> str:
    row = json.loads(dump_record(record([["CI", 1]])))
    change(row)
    return json.dumps(row)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: r["i"][1][1].append(["XX", 1]), "unknown code"),
        (lambda r: r["i"][1][1].append(["CI", 1, 2]), "2 fields"),
        (lambda r: r["i"][1][1].append(["CI", 1 << 40]), "bad field"),
        (lambda r: r["i"][1][1].append(["CI", True]), "bad field"),
        (lambda r: r["i"][0].pop(), None),
        (lambda r: r.pop("r"), "no AutoScheduler record"),
        (lambda r: r["r"].__setitem__(0, []), "non-empty"),
        (lambda r: r["i"][0].__setitem__(4, 9), "layout_rewrite"),
    ],
)
def test_a_bad_part_is_named(change, reason):
    line = broken(change)
    if reason is None:
        assert parse_record(line).input_names == ()
    else:
        with pytest.raises(LogError, match=f"x.json:7.*{reason}"):
            parse_record(line, place="x.json:7")


def test_a_huge_line_is_refused_unread():
    with pytest.raises(LogError, match="refused unread"):
        parse_record(b"[" * (MAX_LINE_BYTES + 1))


@pytest.mark.parametrize(
    ("measurement", "kind"),
    [
        (Measurement((0.0,)), "unmeasured"),
        (Measurement((1e10,), 2), "compile_host"),
        (Measurement((float("nan"),)), "bad_time"),
        (Measurement((float("inf"),)), "bad_time"),
        (Measurement((1e-3, 3e-3)), "ok"),
    ],
)
def test_only_times_are_times(measurement, kind):
    assert measurement.kind == kind
    assert measurement.ok == (kind == "ok")
    assert measurement.seconds == (
        pytest.approx(2e-3) if kind == "ok" else pytest.approx(float("nan"), nan_ok=True)
    )


def matmul() -> tuple[Stage, ...]:
    axes = (Iter("i", 64, "S"), Iter("j", 32, "S"), Iter("k", 16, "R"))
    return (Stage("A", "placeholder", shape=(64, 16)), Stage("C", "compute", axes, shape=(64, 32)))


def test_references_are_resolved():
    found = [
        ["SP", 1, 0, 64, [4, 8], 1],
        ["CHW", 1, "local"],
        ["FSP", 2, 0, 0, 1],
        ["FFSP", 2, 2, [0], 1, 1],
        ["AN", 1, 4, 2],
    ]
    texts = [a.text for a in decode_steps(found, matmul())]
    assert texts[0] == "split C x0 64 by 2 4 8"
    assert texts[1] == "cache_write C local"
    # FSP takes the product of all lengths of step 0, FFSP the length at level 1: they carry no numbers.
    assert texts[2].endswith("by 1 32")
    assert texts[3].split(" by ")[1].split()[1] == "8"
    assert texts[4] == "vectorize C.local r2 16"


def test_stages_survive_json():
    stages = matmul()
    w = Workload("k", stages=stages)
    assert Workload.stages_from_json(w.stages_json()) == stages
    assert Workload.stages_from_json("") == ()


odd = st.one_of(
    st.integers(-3, 3), st.integers(-(2**40), 2**40), st.none(), st.booleans(), st.floats(),
    st.text(max_size=3), st.lists(st.one_of(st.integers(-2, 9), st.none(), st.just(2**31)), max_size=3),
    st.just({}), st.just([[1]]),
)  # fmt: skip


@given(steps, st.lists(st.tuples(st.integers(0, 24), st.integers(0, 7), odd), max_size=3))
def test_the_quick_look_passes_nothing_that_the_codec_refuses(found, changes):
    found = [list(step) for step in found]
    for place, field, value in changes:
        if place < len(found):
            found[place][field : field + 1] = [value]
    if plain_steps(found):
        check_steps(found)  # does not raise
    elif not changes and all(type(f) is not list or None not in f for step in found for f in step):
        assert any(None in step for step in found)  # what is left to the slow look, of right steps


def test_the_quick_look_spares_nearly_all_real_steps(shared_data):
    lines = [
        line
        for path in sorted(shared_data.rglob("measure_records/*.gz"))[::8]
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    passed = sum(plain_steps(json.loads(line)["i"][1][1]) for line in lines)
    assert passed == len(lines) > 500


def test_splits_beyond_any_program_are_refused() -> None:
    fine = [["SP", 1, 0, 1 << 30, [1 << 30], 1], ["SP", 2, 0, 1 << 30, [1 << 30, None], 1]] * 3
    check_sizes(fine)
    with pytest.raises(LogError, match=r"log:3: step 0 \(SP\): .* stage 1 is split by multiply to 2\^1240"):
        check_sizes([["SP", 1, 0, 64, [(1 << 31) - 1] * 40, 1]], place="log:3")
