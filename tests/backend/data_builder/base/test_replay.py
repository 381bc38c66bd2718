"""Every prefix of a schedule as TensorIR, against golden files.

A golden file holds the program before any step, then each step with what it changed. To refresh them after an
intended change: WMSCHED_UPDATE_GOLDEN=1, then read the diff.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
from dataclasses import replace

import checkout
import pytest
import tvm
from tvm import auto_scheduler, te

from data_builder.base import replay
from data_builder.base.prefixes import ReplayError
from data_builder.base.replay import Replay, dag_of, prefix_text
from wmsched.base.errors import WmschedError
from wmsched.schedules.types import Measurement, Record

GOLDEN = checkout.GOLDEN / "replay"
CUDA = "cuda -arch=sm_80"
CPU = "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=2"


def matmul():
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    return [a, b, te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def matmul_relu():
    a, b, c = matmul()
    return [a, b, te.compute((64, 64), lambda i, j: te.max(c[i, j], 0.0), name="D")]


def row_sum():
    a = te.placeholder((4, 512), name="A")
    k = te.reduce_axis((0, 512), name="k")
    return [a, te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="S")]


def chain():
    a = te.placeholder((32, 32), name="A")
    b = te.compute((32, 32), lambda i, j: a[i, j] + 1.0, name="B")
    return [a, te.compute((32, 32), lambda i, j: b[i, j] * 2.0, name="C")]


# Sketches of the search itself, chosen so that every step code occurs.
CASES = {
    "matmul_cpu": (matmul_relu, CPU, [
        ["SP", 2, 0, 64, [2, 32, 1], 1], ["SP", 2, 4, 64, [4, 1, 4], 1], ["SP", 2, 8, 64, [16], 1],
        ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]], ["FSP", 3, 0, 0, 2], ["FSP", 3, 3, 1, 2],
        ["RE", 3, [0, 3, 1, 4, 2, 5]], ["CA", 2, 3, 3], ["FU", 3, [0, 1, 2, 3]], ["AN", 3, 0, 3],
        ["PR", 2, 0, "auto_unroll_max_step$64"], ["AN", 2, 9, 2], ["AN", 3, 2, 2],
    ]),
    "matmul_cuda": (matmul, CUDA, [
        ["CHW", 2, "local"], ["SP", 2, 0, 64, [8, 8, 1, 1], 1], ["SP", 2, 5, 64, [1, 16, 1, 1], 1],
        ["SP", 2, 10, 64, [4, 16], 1], ["RE", 2, [0, 5, 1, 6, 2, 7, 10, 11, 3, 8, 12, 4, 9]],
        ["FSP", 3, 0, 1, 3], ["FSP", 3, 4, 2, 3], ["RE", 3, [0, 4, 1, 5, 2, 6, 3, 7]], ["CA", 2, 3, 5],
        ["CHR", 1, "shared", [2]], ["CA", 2, 3, 6], ["CHR", 0, "shared", [3]], ["CA", 1, 4, 6],
        ["FU", 5, [0, 1]], ["AN", 5, 0, 5], ["FU", 5, [1, 2]], ["AN", 5, 1, 4], ["FU", 5, [2, 3]],
        ["AN", 5, 2, 6], ["FU", 3, [0, 1]], ["SP", 3, 0, 64, [1], 1], ["AN", 3, 1, 2],
        ["FFSP", 3, 0, [2, 1], 1, 1], ["AN", 3, 1, 6], ["FU", 1, [0, 1]], ["SP", 1, 0, 64, [1], 1],
        ["AN", 1, 1, 2], ["FFSP", 1, 0, [2, 1], 1, 1], ["AN", 1, 1, 6],
        ["PR", 4, 0, "auto_unroll_max_step$0"],
    ]),
    "row_sum_rfactor": (row_sum, CPU, [
        ["SP", 1, 1, 512, [64], 1], ["RF", 1, 2, 1], ["RE", 1, [0, 2, 1]], ["CR", 2], ["CA", 1, 2, 0],
        ["AN", 2, 0, 3], ["PR", 1, 0, "auto_unroll_max_step$64"], ["PR", 2, 0, "auto_unroll_max_step$64"],
    ]),
    "chain_inline": (chain, CPU, [
        ["CI", 1], ["FU", 2, [0, 1]], ["SP", 2, 0, 1024, [16], 1], ["AN", 2, 1, 2],
    ]),
    "chain_align": (chain, CPU, [["CA", 1, 2, 0], ["SA", 1, 0, 8, 4], ["AN", 2, 0, 3]]),
}  # fmt: skip


def record(steps, target: str = CPU) -> Record:
    return Record("key", target, (2, 64, 64, 49152, 2147483647, 1024, 8, 32), 0, steps, Measurement((1e-3,)))


def replayed(dag, what: Record) -> list[str]:
    texts: dict[str, str] = {}
    hashes = Replay(dag, on_text=texts.__setitem__)(what)
    return [texts[name] for name in hashes]


def test_the_cases_have_every_step_code() -> None:
    from wmsched.schedules.steps import STEP_FIELDS

    assert {step[0] for _, _, steps in CASES.values() for step in steps} == set(STEP_FIELDS)


@pytest.mark.parametrize("name", CASES)
def test_each_step_changes_what_it_changed(name: str) -> None:
    tensors, target, steps = CASES[name]
    texts = replayed(auto_scheduler.ComputeDAG(tensors()), record(steps, target))
    parts = [texts[0] + "\n"]
    for step, (before, after) in zip(steps, itertools.pairwise(texts), strict=True):
        diff = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm=""))[2:]
        parts.append("\n".join([f"=== {json.dumps(step)}", *(line for line in diff if line[:2] != "@@"), ""]))
    found = "".join(parts)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("WMSCHED_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found)
    assert found == path.read_text()


@pytest.mark.parametrize("hardware", [(), (16, 64, 64, 0, 0, 0, 0, 0)])
def test_a_target_that_this_tvm_does_not_know_is_no_hindrance(hardware) -> None:
    """TenSet's have `-link-params`, which TVM has dropped since; TVM 0.7 wrote no hardware."""
    tensors, target, steps = CASES["matmul_cpu"]
    dag, old = auto_scheduler.ComputeDAG(tensors()), "llvm -keys=cpu -link-params=0 -mcpu=skylake-avx512"
    with pytest.raises(Exception, match="link-params"):
        tvm.target.Target(old)
    wanted = replayed(dag, record(steps, target))
    assert replayed(dag, replace(record(steps, old), hardware=hardware)) == wanted


def test_shared_beginnings_are_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(dag, what, length):
        calls.append(tuple(map(str, what.steps[:length])))
        return prefix_text(dag, what, length)

    monkeypatch.setattr(replay, "prefix_text", counted)
    tensors, _, steps = CASES["matmul_cpu"]
    told = []
    one = Replay(auto_scheduler.ComputeDAG(tensors()), on_text=lambda name, text: told.append(name))
    first = one(record(steps))
    assert len(calls) == len(steps) + 1
    changed = [*steps[:-1], ["AN", 3, 2, 1]]
    second = one(record(changed))
    assert len(calls) == len(set(calls)) == len(steps) + 2
    assert first[:-1] == second[:-1] and first[-1] != second[-1]
    assert one(record(steps)) == first and len(calls) == len(steps) + 2
    assert len(told) == len(set(told)) and set(told) == {*first, *second}


@pytest.mark.parametrize(
    "bad",
    [["SP", 99, 0, 64, [4], 1], ["AN", 2, 50, 3], ["FSP", 2, 0, 77, 2], ["CA", 2, 1, 0], ["RE", 2, [0, 0, 0]],
     ["SP", -1, 0, 64, [4], 1], ["RF", 2, 0, 0], ["SP", 2, 0, 64, [0], 1]],
)  # fmt: skip
def test_a_step_that_tvm_refuses_is_named_and_what_came_before_is_kept(bad) -> None:
    told = []
    one = Replay(auto_scheduler.ComputeDAG(matmul_relu()), on_text=lambda name, text: told.append(text))
    good = CASES["matmul_cpu"][2][:1]
    with pytest.raises(ReplayError, match=r"step 2 cannot be replayed: .") as caught:
        one(record([*good, bad]))
    assert caught.value.step == 2 and len(str(caught.value)) < 400
    assert len(told) == 2
    assert len(one(record(good))) == 2  # and goes on


@pytest.mark.parametrize("tensors", [None, {}, "x", {"root": 1, "nodes": []}, []])
def test_a_row_without_a_graph_is_refused(tensors) -> None:
    with pytest.raises(WmschedError, match="make no compute DAG"):
        dag_of({"tensors": tensors})
