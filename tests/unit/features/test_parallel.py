"""What threads cost: reckoned from a schedule, and taken off by the ranker, which has not learnt it."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from matmul_columns import MATMUL, column
from rank_groups import SMALL, make_groups

from wmsched.features.hardware import hardware_features, run_threads
from wmsched.features.parallel import SLOWDOWN
from wmsched.features.step_features import FEATURE_NAMES, features
from wmsched.learn.evaluate.metrics import pairwise_accuracy
from wmsched.learn.training.adaptation import continued
from wmsched.model.external_memory import stored
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import MARGIN_PER_DOUBLING, Ranker
from wmsched.model.rows import RowBuilder
from wmsched.model.world_model import WorldModel
from wmsched.schedules.types import Access, Iter, Stage, Workload

PARALLEL_ROWS = [["AN", 2, 0, 3]]  # 64 iterations


def slowdown(steps: list, threads: int, workload: Workload = MATMUL) -> float:
    phi, _ = features([steps], workload, threads=threads)
    return float(2.0 ** phi[0, FEATURE_NAMES.index(SLOWDOWN)])


@pytest.mark.parametrize("threads, times", [(1, 1), (16, 1), (48, 1.5), (64, 1), (128, 2)])
def test_a_parallel_loop_is_over_when_the_fullest_thread_is(threads: int, times: float) -> None:
    assert slowdown(PARALLEL_ROWS, threads) == pytest.approx(times)


def test_without_a_parallel_loop_one_thread_does_it_all() -> None:
    assert slowdown([], 16) == pytest.approx(16)
    assert column(SLOWDOWN, []) == 0  # of one thread


TWO = Workload(
    "two",
    stages=(
        Stage("A", "placeholder", shape=(60, 64)),
        Stage(
            "pad",
            "compute",
            (Iter("a", 60, "S"), Iter("b", 64, "S")),
            (Access(0, (), (60, 64)),),
            (),
            (60, 64),
        ),
        Stage(
            "C",
            "compute",
            (Iter("i", 60, "S"), Iter("j", 64, "S"), Iter("k", 9, "R")),
            (Access(1, (((0, 1),), ((1, 1),)), (60, 64)),),
            (("Add", 1), ("Reduce", 1)),
            (60, 64),
        ),
    ),
)


def test_a_stage_beside_counts_by_its_work() -> None:
    """One tenth of the work is not parallel: 16 threads take 0.1 + 0.9 / 15 of it (60 rows, four each)."""
    assert slowdown([["AN", 2, 0, 3]], 16, TWO) == pytest.approx(16 * (0.1 + 0.9 * 4 / 60), rel=1e-6)


def test_a_stage_is_shared_where_it_is_computed() -> None:
    inside = [["AN", 2, 0, 3], ["CA", 1, 2, 0]]
    assert slowdown(inside, 15, TWO) == pytest.approx(1)


def test_vectors_are_less_work() -> None:
    """The pad in vectors of 16 is a sixteenth of what it was."""
    found = slowdown([["AN", 2, 0, 3], ["SP", 1, 1, 64, [16], 1], ["AN", 1, 2, 2]], 60, TWO)
    assert found == pytest.approx(60 * (1 / 16 + 9 / 60) / (9 + 1 / 16), rel=1e-6)


@pytest.mark.parametrize(
    "target, key, hardware, threads",
    [
        ("llvm -num-cores=32", "[]", (16, 64), 16),  # what AutoScheduler's log says TVM ran
        ("llvm -num-cores=32", "[]", (), 1),
        ('{"kind":"llvm","mcpu":"znver4","num-cores":32}', '["tir",1]', (32, 64), 16),
        ('{"kind":"llvm","mtriple":"aarch64-linux-gnu","num-cores":32}', '["tir",1]', (32, 64), 32),
        ('{"kind":"llvm","num-cores":2}', '["tir",1]', (2, 64), 1),
        ("cuda -arch=sm_89", "[]", (-1, 16), 1),
        ('{"kind":"cuda","arch":"sm_89"}', '["tir",1]', (128, 16), 1),
    ],
)
def test_how_many_threads(target: str, key: str, hardware: tuple[int, ...], threads: int) -> None:
    assert run_threads(Workload(key, target, hardware)) == threads


def test_all_else_is_seen_as_the_ranker_learnt_it() -> None:
    """A bundle of one-core records meets 32 cores: the one column that differs is the slowdown's."""
    candidates = [PARALLEL_ROWS, [], [["SP", 2, 0, 64, [8], 1], ["AN", 2, 0, 3]]]
    found = {}
    for cores in (1, 32):
        workload = dataclasses.replace(MATMUL, target="llvm", hardware=(cores, 64, 64))
        builder = RowBuilder(state="none")
        rows = builder.rows(workload, builder.initial(""), hardware_features(workload), candidates)
        found[cores] = dict(zip(builder.columns, rows.T))
    differ = {
        name for name in found[1] if not np.array_equal(found[1][name], found[32][name], equal_nan=True)
    }
    assert differ == {SLOWDOWN, "h.cores"}
    np.testing.assert_allclose(found[32][SLOWDOWN], [0, 5, 2])


def shared(count: int, *, threads: bool, seed: int = 0) -> list[RankGroup]:
    """Groups whose last column is the slowdown: 0 with one thread; else it is in the times as well."""
    rng = np.random.default_rng(seed)
    groups = []
    for group in make_groups(count, seed=seed):
        extra = rng.integers(0, 6, 40).astype(np.float32) if threads else np.zeros(40, np.float32)
        rows = np.concatenate([group.rows, extra[:, None]], axis=1)
        seconds = group.seconds * 2.0**extra
        groups.append(dataclasses.replace(group, rows=rows, seconds=seconds, slowdown=5))
    return groups


def pairs(ranker: Ranker, groups: list[RankGroup]) -> float:
    return float(np.mean([pairwise_accuracy(ranker.margins(g.rows), g.seconds) for g in groups]))


def test_records_of_one_core_order_those_of_many() -> None:
    """Times are exp of a normal column and 2 to the power of the slowdown, of which training saw nothing."""
    ranker = Ranker.fit(shared(9, threads=False), SMALL)
    many = shared(4, threads=True, seed=1)
    blind = [dataclasses.replace(g, rows=np.where(np.arange(6) == 5, 0, g.rows)) for g in many]
    assert pairs(ranker, many) > 0.8
    assert pairs(ranker, many) > pairs(ranker, blind) + 0.15
    rows = many[0].rows.copy()
    rows[:, 5] += 1
    np.testing.assert_allclose(
        ranker.margins(many[0].rows) - ranker.margins(rows), MARGIN_PER_DOUBLING, rtol=1e-4
    )


def test_records_of_many_cores_teach_what_is_left_of_their_times(tmp_path) -> None:
    """Trees fitted to times with the slowdown in them are those of the times without it."""
    one, many = shared(6, threads=False), shared(6, threads=True)
    fits = [Ranker.fit(one, SMALL), Ranker.fit(many, SMALL)]
    rows = shared(1, threads=False, seed=2)[0].rows
    np.testing.assert_array_equal(*[ranker.margins(rows) for ranker in fits])
    kept = [stored(group, tmp_path / f"{number}.npy") for number, group in enumerate(many)]
    assert pairs(Ranker.fit(kept, SMALL), shared(4, threads=True, seed=1)) > 0.8
    adapted = continued(fits[0], shared(6, threads=True, seed=3))
    assert adapted.slowdown == 5 and pairs(adapted, shared(4, threads=True, seed=1)) > 0.8


def test_a_saved_ranker_takes_it_off_too_and_an_older_one_knows_none(tmp_path) -> None:
    ranker = Ranker.fit(shared(4, threads=False), SMALL)
    ranker.save(tmp_path)
    rows = shared(1, threads=True)[0].rows
    again = Ranker.load(tmp_path)
    assert again.width == 6
    np.testing.assert_array_equal(again.margins(rows), ranker.margins(rows))
    header = json.loads(ranker.boosters[0].attr("wmsched"))
    del header["slowdown"]
    ranker.boosters[0].set_attr(wmsched=json.dumps(header))
    ranker.boosters[0].save_model(tmp_path / "ranker.ubj")
    older = Ranker.load(tmp_path)
    assert older.slowdown == -1 and older.width == 5


def test_the_shipped_bundles_prefer_more_threads_at_work() -> None:
    """Of 64 cores, one in each of the shipped AutoScheduler bundles' eyes is as bad as it is."""
    workload = dataclasses.replace(MATMUL, target="llvm -mcpu=znver4 -num-cores=64", hardware=(64, 64, 64))
    for name in ("x86-avx512", "x86-avx512-paper"):
        model = WorldModel.from_pretrained(name)
        assert model.cores == 1 and model.columns[-1] == SLOWDOWN
        serial, parallel = model.task(workload, "").margins([[], PARALLEL_ROWS])
        alone = dataclasses.replace(workload, hardware=(1, 64, 64))
        base = model.task(alone, "").margins([[], PARALLEL_ROWS])
        gain = (parallel - serial) - (base[1] - base[0])
        assert gain == pytest.approx(MARGIN_PER_DOUBLING * math.log2(64), rel=1e-3)
