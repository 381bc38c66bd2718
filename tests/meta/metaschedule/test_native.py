"""The C++ reader of traces: the same numbers as Python's, and a search that does without it where it must."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import orjson
import programs as P
import pytest
from stock_spaces import CPUS, CUDA, rows
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from benchmarks import suites
from benchmarks.tune.meta import workloads
from wmsched.features.table import FEATURE_NAMES, FEATURE_TABLE, TRACE_NAMES
from wmsched.features.trace_features import TraceBatch, trace_features
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.native import library
from wmsched.metaschedule.native.reader import TraceReader
from wmsched.metaschedule.trace_reader import steps_of_schedule
from wmsched.metaschedule.workload import workload_of
from wmsched.schedules.index_maps import map_shape
from wmsched.search.diversity import signature
from wmsched.toolchain.targets import target_text


def sampled(func, target, space="", count=24):
    with Target(target):
        context = P.context(func(), target, space) if space else P.context(func(), target, population=count)
        return context, P.sampled(context, count)


def compared(context, candidates) -> float:
    """Everything that both readers say of candidates; the share that C++ read."""
    workload = workload_of(context.mod, target_text(context.target))
    read = TraceReader(library.library(), workload, threads=24)(candidates)
    places = np.flatnonzero(read.fine)
    if len(places):
        steps = [steps_of_schedule(candidates[place].sch) for place in places]
        phi, extra, _ = trace_features(steps, workload, worded=False, threads=24)
        for names, ours, theirs in zip((FEATURE_NAMES, TRACE_NAMES), read.phi(places), (phi, extra)):
            differs = ~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs))).all(axis=0)
            assert not differs.any(), [name for name, bad in zip(names, differs) if bad]
        alike({read.keys()[p] for p in places}, {orjson.dumps(s) for s in steps})
        pairs = set(zip(read.families(places), map(signature, steps)))
        alike({native for native, _ in pairs}, {python for _, python in pairs})
        alike(pairs, {native for native, _ in pairs})
    return len(places) / len(candidates)


def alike(some, others) -> None:
    assert len(some) == len(others)


@pytest.mark.parametrize("kind", sorted(suites.BY_TYPE))
def test_the_benchmarks_programs(kind) -> None:
    assert compared(*sampled(lambda: workloads.module(kind), P.CPU)) > 0.8


LATE = ("hexagon matmul", "risc-v matmul")


@pytest.mark.parametrize(
    "name, func, target, intrinsic",
    [pytest.param(*row, id=row[0], marks=pytest.mark.slow if row[0] in LATE else ()) for row in CPUS],
)
def test_processors(name, func, target, intrinsic) -> None:
    share = compared(*sampled(func, target))
    tensorized = intrinsic or any(word in name for word in ("winograd", "hexagon", "risc-v"))
    assert share > 0.8 or tensorized  # Python's, as layout transformations of blocks are


@pytest.mark.parametrize(("func", "target", "space", "intrinsic", "compiles"), rows(CUDA))
def test_gpus(func, target, space, intrinsic, compiles) -> None:
    share = compared(*sampled(func, target, space, 8))
    assert share == 1 if intrinsic else share > 0.8 or func in (P.winograd, P.softmax)


def test_tensor_cores_are_scored_as_by_pythons_reader(bundle) -> None:
    func, target, space = next(row[1:4] for row in CUDA if row[3] == "cuda-tensorcore")
    context, candidates = sampled(func, target, space, 8)
    assert compared(context, candidates) == 1
    with_it, without = WorldModelCostModel(bundle), WorldModelCostModel(bundle, native=False)
    np.testing.assert_array_equal(with_it.predict(context, candidates), without.predict(context, candidates))
    assert with_it.problems == without.problems == {}


def test_layouts_of_a_relax_program_s_weights_are_read() -> None:
    """Their maps are of casts, for which every candidate of a whole model went to Python."""
    context, candidates = sampled(P.relax_dense, P.CPU)
    assert compared(context, candidates) == 1
    for candidate in candidates:
        (layout,) = (
            row for _, rows in steps_of_schedule(candidate.sch) for row in rows if row[0] == "TransformLayout"
        )
        assert "Cast" in layout[1][1]
        assert map_shape(layout[1][1], (64, 32)) == tuple(int(n) for n in candidate.args_info[1].shape)


def odd_one():
    """A candidate with an instruction that C++ does not know."""
    schedule = Schedule(P.module(P.matmul()))
    schedule.add_unit_loop(schedule.get_loops(schedule.get_sblock("C"))[1])
    return ms.MeasureCandidate(schedule, [])


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("online", [False, True])
def test_scores_are_those_of_pythons_reader(bundle, online, odd) -> None:
    """Over the batches of two rounds, with candidates that come again. Where Python has to read some of the
    first batch, the map to scores is fitted to the others: scores differ a little, in the same order."""
    context, candidates = sampled(P.matmul, P.CPU, count=40)
    known = TraceReader(library.library(), workload_of(context.mod, target_text(context.target)))
    assert not known([odd_one()]).fine.any() and known(candidates).fine.all()
    batches = [[*candidates[:20], *([odd_one()] if odd else [])], [*candidates[10:40], candidates[0]]]
    models = [WorldModelCostModel(bundle, online=online, native=native) for native in (True, False)]
    for turn in range(2):
        for batch in batches:
            first, second = (model.predict(context, batch) for model in models)
            np.testing.assert_allclose(first, second, rtol=0.05 if odd else 0)
        seconds = np.linspace(1e-3, 2e-3, 12) * (1 + turn)
        results = [ms.runner.RunnerResult([second], None) for second in seconds]
        for model in models:
            model.update(context, candidates[:12], results)
    assert all(model.problems == {} for model in models)


def test_a_trace_made_again_is_the_same_one() -> None:
    """Other objects, other variables: keys and families go by what a trace says."""
    context, candidates = sampled(P.dense, P.CPU, count=12)
    again = []
    for candidate in candidates:
        schedule = Schedule(context.mod)
        candidate.sch.trace.apply_to_schedule(schedule, remove_postproc=False)
        again.append(ms.MeasureCandidate(schedule, []))
    reader = TraceReader(library.library(), workload_of(context.mod, target_text(context.target)))
    first, second = reader(candidates), reader(again)
    assert first.fine.any() and len(set(first.keys())) > 1
    np.testing.assert_array_equal(first.fine, second.fine)
    fine = np.flatnonzero(first.fine)
    assert [first.keys()[p] for p in fine] == [second.keys()[p] for p in fine]
    assert first.families(fine) == second.families(fine)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty folder for compiled libraries; what was loaded is forgotten before and after."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.library.cache_clear()
    yield tmp_path / "wmsched"
    library.library.cache_clear()


def test_without_a_compiler_python_reads(bundle, elsewhere, monkeypatch, caplog) -> None:
    monkeypatch.setattr(library.cc, "get_cc", lambda: None)
    with caplog.at_level(logging.WARNING, "wmsched"):
        model = WorldModelCostModel(bundle)
    assert "no C++ compiler" in caplog.text and "several times slower" in caplog.text
    context, candidates = sampled(P.matmul, P.CPU, count=6)
    assert len(set(model.predict(context, candidates).tolist())) > 1
    assert model.problems == {}


def test_a_failing_compiler_is_quoted(elsewhere, monkeypatch, caplog) -> None:
    monkeypatch.setattr(library, "OPTIONS", ("-no-such-option",))
    with caplog.at_level(logging.WARNING, "wmsched"):
        assert library.library() is None
    assert "no-such-option" in caplog.text
    assert list(elsewhere.iterdir()) == []  # nothing half-made is left


@pytest.mark.slow
def test_a_damaged_library_is_made_anew(elsewhere, caplog) -> None:
    kept = Path(library._kept())
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"no library")
    with caplog.at_level(logging.WARNING, "wmsched"):
        assert library.library() is not None
    assert caplog.text == "" and kept.stat().st_size > 10_000
    assert [path.name for path in elsewhere.iterdir()] == [kept.name]


def test_the_compiled_columns_are_those_of_the_table() -> None:
    names = [str(name) for name in library.library()["column_names"]()]
    assert names == [column.name for column in FEATURE_TABLE if column.native]


def test_columns_that_are_not_known_are_refused() -> None:
    context, _ = sampled(P.matmul, P.CPU, count=2)
    workload = workload_of(context.mod, target_text(context.target))
    with pytest.raises(ValueError, match="no_such_column"):
        TraceBatch(workload, ["stages", "no_such_column"])


def test_arrays_of_other_shapes_are_refused() -> None:
    context, candidates = sampled(P.matmul, P.CPU, count=2)
    reader = TraceReader(library.library(), workload_of(context.mod, target_text(context.target)))
    wrong = [np.zeros((len(candidates), 3)) for _ in range(3)]
    with pytest.raises(ValueError, match="other shapes"):
        reader._read(candidates, *wrong)
