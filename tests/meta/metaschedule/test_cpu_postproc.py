"""What postprocessors for a CPU make of schedules that TVM has not made, and the search on one."""

from __future__ import annotations

import logging
from collections import Counter

import numpy as np
import programs as P
import pytest
import tvm
from drawn import begun, context, draws_of, few, rows_of, started
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace
from tvm.target import Target

from benchmarks.tune.meta import workloads
from data_builder.metaschedule.sampling import TraceSampler
from wmsched.base.errors import LogError
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.design_space import DrawnSpaces
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.measure.builder import build
from wmsched.metaschedule.native.cpu_postproc import cpu_program
from wmsched.metaschedule.native.library import library
from wmsched.metaschedule.native.reader import TraceReader
from wmsched.metaschedule.search_strategy import drawn_search
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.metaschedule.workload import workload_of
from wmsched.search.evolution import Evolution
from wmsched.toolchain.targets import meta_host_target, target_text

# Padding, epilogues of one and of several stages, weights that may be laid out anew, caches, spaces that are
# reduced in parts, reductions in fused loops, stages that can be computed in many places.
KINDS = ("conv2d-pad-relu", "conv3d-bn-relu", "depthconv", "ffn", "attention-value", "softmax", "maxpool2d")
KINDS += ("avgpool2d", "layernorm-variance", "conv2d-stride-add")


def tensor(*shape, name="A"):
    return te.placeholder(shape, "float32", name)


def planes():
    """A convolution of planes, whose innermost loops are not the channels."""
    a, w = tensor(1, 16, 14, 14), tensor(32, 16, 3, 3, name="W")
    made = topi.nn.relu(topi.nn.conv2d_nchw(a, w, 1, 1, 1))
    return te.create_prim_func([a, w, made]).with_attr("layout_free_buffers", [1])


def pool():
    a = tensor(1, 16, 14, 14)
    return te.create_prim_func([a, topi.nn.pool2d(a, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max")])


def around():
    """Reductions of an input that the output needs too: they are put between each other."""
    a = tensor(1, 28, 28, 32)
    total, squares = (topi.sum(x, axis=3, keepdims=True) for x in (a, topi.multiply(a, a)))
    return te.create_prim_func([a, topi.divide(topi.subtract(a, total), topi.sqrt(squares))])


def reshaped():
    a = tensor(28, 24, 32)
    return te.create_prim_func([a, topi.transpose(topi.reshape(a, (28 * 24, 4, 8)), (1, 0, 2))])


def copied_weights():
    a, w = tensor(1, 8, 7, 7), tensor(8, 16, 4, 4, name="W")
    made = topi.nn.conv2d_transpose_nchw(a, w, (2, 2), (1, 1), "float32", (0, 0))
    return te.create_prim_func([a, w, made]).with_attr("layout_free_buffers", [1])


def one_row():
    """A product of few outputs: its sum is reduced in two steps, from weights whose layout is free."""
    a, b = tensor(1, 1280), tensor(1280, 4, name="B")
    return te.create_prim_func([a, b, topi.nn.matmul(a, b)]).with_attr("layout_free_buffers", [1])


def squeezed():
    """A 1x1 convolution of one pixel, whose fused reduction has one loop that counts."""
    a, w = tensor(1, 1, 1, 96), tensor(1, 1, 96, 8, name="W")
    made = topi.nn.relu(topi.nn.conv2d_nhwc(a, w, 1, 0, 1))
    return te.create_prim_func([a, w, made]).with_attr("layout_free_buffers", [1])


FUNCTIONS = (P.matmul, P.dense, P.relax_dense, P.sdot, P.winograd, planes, pool, around, reshaped)
FUNCTIONS += (one_row, squeezed)
LEAST_READ, MOST_UNKNOWN = {around: 0.3, squeezed: 0.7}, {pool: 0.3, squeezed: 0.3}


@pytest.fixture(scope="module")
def target():
    found = Target(P.CPU)
    import_intrinsics(found)
    return found


def spaces_of(mod, target):
    ctx = context(mod, target, "evolutionary")
    return DrawnSpaces(ctx, ctx.generate_design_space()), ctx


def reader_of(ctx):
    return TraceReader(library(), workload_of(ctx.mod, target_text(ctx.target)))


def made_by_tvm(spaces, ctx, count):
    """Candidates of TVM's own random decisions, and their rows."""
    made, drawn = [], []
    for number, trace in enumerate(spaces.traces):
        for seed in range(1, count + 1):
            schedule = Schedule(ctx.mod, seed=seed + 100 * number)
            Trace(trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
            drawn.append([number, spaces.draws[number].row_of(trace_json(schedule.trace))])
            schedule.enter_postproc()
            assert all(rule.apply(schedule) for rule in spaces.rules)
            made.append(ms.MeasureCandidate(schedule, []))
    return made, drawn


def check_alike(mod, target, *, least, most_unknown=0.0):
    """`least`: share that is read of what TVM made; `most_unknown`: share of it that is not followed."""
    spaces, ctx = spaces_of(mod, target)
    made, drawn = made_by_tvm(spaces, ctx, 8)
    reader = reader_of(ctx)
    theirs, (ours, fits) = reader(made), spaces.read(reader, drawn)
    at = np.flatnonzero(ours.fine)
    assert fits[at].all() and theirs.fine.mean() >= least and theirs.fine[at].all()
    assert len(at) >= (1 - most_unknown) * theirs.fine.sum()
    assert (ours.stages[at] == theirs.stages[at]).all()
    np.testing.assert_array_equal(ours.columns[at], theirs.columns[at])
    assert ours.families(at) == theirs.families(at)
    assert [spaces.settled(ours, n, drawn[n]) for n in at] == [drawn[n] for n in at]


@pytest.mark.parametrize("kind", KINDS)
def test_schedules_are_read_as_tvm_s_postprocessors_leave_them(kind, target) -> None:
    check_alike(workloads.module(kind), target, least=0.9, most_unknown=0.3 if kind == "maxpool2d" else 0)


@pytest.mark.parametrize("func", FUNCTIONS)
@pytest.mark.parametrize("machine", [P.CPU, P.PLAIN], ids=["avx512", "avx2"])
def test_those_of_small_programs_too(func, machine) -> None:
    """A machine without intrinsics has one postprocessor less."""
    found = Target(machine)
    import_intrinsics(found)
    check_alike(func(), found, least=LEAST_READ.get(func, 0.9), most_unknown=MOST_UNKNOWN.get(func, 0))


@pytest.mark.parametrize("kind", ["conv2d-pad-relu", "softmax", "maxpool2d"])
def test_stages_that_cannot_be_computed_there_are_moved_as_tvm_moves_them(kind, target) -> None:
    """Decisions without regard to the tiles become what the reader says."""
    spaces, ctx = spaces_of(workloads.module(kind), target)
    drawn = spaces.random(12, np.random.default_rng(5))
    reader = reader_of(ctx)
    read, _ = spaces.read(reader, drawn)
    fine = np.flatnonzero(read.fine).tolist()
    made = [spaces.candidate(drawn[n]) for n in fine]
    settled = [spaces.settled(read, n, drawn[n]) for n in fine]
    assert None not in made and len(fine) > len(drawn) / 3
    assert [spaces.of(trace_json(one.sch.trace)) for one in made] == settled
    assert settled != [drawn[n] for n in fine]
    np.testing.assert_array_equal(reader(made).columns, read.columns[fine])


def test_settled_spaces_have_the_places_that_tvm_allows(target) -> None:
    spaces, ctx = spaces_of(workloads.module("depthconv"), target)
    rng = np.random.default_rng(1)
    spaces.settle(reader_of(ctx), rng)
    for space in spaces.draws:
        (slot,) = space.places
        assert {-2, -1} < set(slot.choices) and max(slot.choices) < 20
    assert len(spaces.random(40, rng)) == 40 * len(spaces)


def test_what_a_program_asks_of_the_postprocessors(target) -> None:
    _, ctx = spaces_of(workloads.module("conv2d-pad-relu"), target)
    found = cpu_program(ctx.mod, ctx.space_generator.postprocs)
    stages = workload_of(ctx.mod, target_text(target)).stages
    assert [stages[n].name for n in found.rewritten] == ["p1"]
    padding = next(n for n, stage in enumerate(stages) if "pad" in stage.name.lower())
    assert found.offsets[padding] == ((0, -1, -1, 0),)
    assert len(found.offsets) == len(stages)


def test_other_postprocessors_are_not_taken_for_these(target) -> None:
    _, ctx = spaces_of(P.matmul(), target)
    rules = list(ctx.space_generator.postprocs)
    for others in ([*rules, ms.postproc.VerifyVTCMLimit()], rules[:-1], rules[::-1]):
        with pytest.raises(LogError, match="postprocessors"):
            cpu_program(ctx.mod, others)


def test_a_gpu_s_postprocessors_are_followed_where_no_cpu_is_named(target) -> None:
    """They are no guess by the annotations: of these decisions and annotations they know nothing."""
    for kind in ("depthconv", "attention-qk"):
        spaces, ctx = spaces_of(workloads.module(kind), target)
        drawn = spaces.random(2, np.random.default_rng(1))
        read = reader_of(ctx).drawn(spaces.traces, [n for n, _ in drawn], [row for _, row in drawn])
        assert not read.fine.any()


# -- the search


def refused(designs):
    raise AssertionError("TVM is asked to search")


@pytest.mark.parametrize("kind", ["conv2d-pad-relu", "softmax"])
def test_new_schedules_each_round_that_can_be_built(kind, target) -> None:
    model = WorldModelCostModel("x86-meta", round_size=6)
    ctx, strategy = begun(workloads.module(kind), target, model, count=6, trials=14, stock=refused)
    spaces = draws_of(ctx)
    seen = []
    for count in (6, 6, 2):
        candidates = ctx.generate_measure_candidates()
        assert len(candidates) == count
        seen += rows_of(spaces, candidates)
        results = [ms.runner.RunnerResult([1e-3], None) for _ in candidates]
        strategy.notify_runner_results(candidates, results)
        model.update(ctx, candidates, results)
    assert len(set(seen)) == 14 and ctx.generate_measure_candidates() is None
    assert model.problems == {}
    for candidate in candidates:
        assert build(candidate.sch.mod, target)


def test_candidates_are_measured_with_weights_as_they_are_laid_out() -> None:
    """Their arguments are those that the built function takes."""
    here = Target(meta_host_target())
    import_intrinsics(here)
    model = WorldModelCostModel("x86-meta", round_size=6)
    ctx, _ = begun(P.dense(), here, model, count=6, stock=refused)
    shapes = set()
    for candidate in ctx.generate_measure_candidates():
        given = [np.ones([int(n) for n in one.shape], "float32") for one in candidate.args_info]
        shapes.add(given[1].shape)
        tensors = [tvm.runtime.tensor(array) for array in given]
        build(candidate.sch.mod, here)["main"](*tensors)
        np.testing.assert_array_equal(tensors[-1].numpy(), np.full((64, 32), 64.0, "float32"))
    assert len(shapes) > 1


def test_it_finds_better_ones_than_it_draws(target) -> None:
    """By the model's own scores: what it proposes is above nearly all of what is drawn."""
    model = WorldModelCostModel("x86-meta", round_size=8, diversity=0.0)
    ctx, _ = begun(workloads.module("conv2d-pad-relu"), target, model, stock=refused)
    proposed = model.predict(ctx, ctx.generate_measure_candidates())
    spaces, scores = DrawnSpaces(ctx, ctx.generate_design_space()), model.scores(ctx)
    read, _ = spaces.read(scores.reader, spaces.random(80, np.random.default_rng(7)))
    random_ones = scores.shared([key for key in scores.take(read, read.fine) if key is not None])
    assert np.median(proposed) > np.quantile(random_ones, 0.95)


def with_a_liked_tile(kind, target, monkeypatch, diversity: float):
    """What proposes a round, where a model likes one tile best, and says how fast it was; that tile."""
    name = "x86-meta" if target.kind.name == "llvm" else "cuda-meta"
    model = WorldModelCostModel(name, diversity=diversity)
    strategy = drawn_search(model, evolution=Evolution(population=256, generations=2), stock=refused)
    ctx = started(context(workloads.module(kind), target, strategy), model, count=16)
    search = strategy._inst
    found = search._evolve()
    tiles = {row: search.spaces.register_tile(search.settled[row])[0] for row, _ in found}
    liked, count = Counter(tiles.values()).most_common(1)[0]
    assert count >= 16
    found.sort(key=lambda one: tiles[one[0]] != liked)
    monkeypatch.setattr(search, "_evolve", lambda *_: found)
    spaces = draws_of(ctx)

    def proposed(seconds: float = 1.0) -> Counter:
        candidates = ctx.generate_measure_candidates()
        of = [spaces[which].register_tile(row)[0] for which, row in rows_of(spaces, candidates)]
        results = [ms.runner.RunnerResult([seconds if tile == liked else 2.0], None) for tile in of]
        strategy.notify_runner_results(candidates, results)
        return Counter(of)

    return proposed, liked


@pytest.mark.parametrize(("diversity", "most"), [(0.0, 16), (1.0, 4)])
def test_a_round_is_shared_among_register_tiles(target, monkeypatch, diversity, most) -> None:
    proposed, liked = with_a_liked_tile("conv2d-pad-relu", target, monkeypatch, diversity)
    tiles = proposed()
    assert tiles[liked] == most == max(tiles.values()) and tiles.total() == 16


@pytest.mark.parametrize(("seconds", "fewest", "most"), [(1.0, 5, 10), (3.0, 0, 0)])
def test_a_later_round_goes_by_how_fast_a_tile_was(target, monkeypatch, seconds, fewest, most) -> None:
    proposed, liked = with_a_liked_tile("conv2d-pad-relu", target, monkeypatch, 1.0)
    proposed(seconds)
    assert fewest <= proposed()[liked] <= most


def test_a_gpu_s_rounds_are_not_shared_by_them(monkeypatch) -> None:
    """What a thread keeps is tiled otherwise there; that was not measured."""
    gpu = Target(P.GPUS["RTX 4090"])
    import_intrinsics(gpu)
    proposed, liked = with_a_liked_tile("conv2d-pad-relu", gpu, monkeypatch, 1.0)
    assert proposed()[liked] == 16


def test_what_the_database_has_is_not_proposed_again(target) -> None:
    mod = workloads.module("depthconv")
    first, _ = begun(mod, target, WorldModelCostModel("x86-meta", round_size=8), stock=refused)
    candidates = first.generate_measure_candidates()
    spaces = draws_of(first)
    database = ms.database.MemoryDatabase()
    workload = database.commit_workload(first.mod)
    for n, candidate in enumerate(candidates):
        record = candidate.sch.trace, workload, [1e-3 * (1 + n)], target, candidate.args_info
        database.commit_tuning_record(ms.database.TuningRecord(*record))
    model = WorldModelCostModel("x86-meta", round_size=8)
    again, _ = begun(mod, target, model, database=database, stock=refused)
    known = set(rows_of(spaces, candidates))
    assert known.isdisjoint(rows_of(spaces, again.generate_measure_candidates()))


@pytest.mark.parametrize("func", [P.vnni, pytest.param(copied_weights, marks=pytest.mark.slow)])
def test_spaces_that_are_not_followed_are_tvm_s(func, caplog) -> None:
    """Intrinsics, whose schedules are not read in C++; weights that are copied before they are laid out."""
    machine = Target(P.VNNI)
    import_intrinsics(machine)
    asked = []

    def stock(designs):
        asked.append(len(designs))
        return few(designs)

    model = WorldModelCostModel("x86-meta", round_size=4)
    with caplog.at_level(logging.WARNING):
        ctx, _ = begun(func(), machine, model, count=4, stock=stock)
        assert ctx.generate_measure_candidates()
    assert len(asked) == 1 and not caplog.records and model.problems == {}


@pytest.fixture
def wrong(monkeypatch):
    """Has the reader say something else than TVM makes, from when it is called."""
    read = TraceReader.drawn

    def wrongly(self, *given):
        found = read(self, *given)
        found.columns[:, self.names.index("steps")] += 1
        return found

    return lambda: monkeypatch.setattr(TraceReader, "drawn", wrongly)


def test_what_tvm_makes_otherwise_ends_the_search(target, caplog, wrong) -> None:
    """Each schedule that is proposed is compared with what was read of it."""
    model = WorldModelCostModel("x86-meta", round_size=4)
    ctx, _ = begun(P.matmul(), target, model, count=4, stock=few)
    wrong()
    with caplog.at_level(logging.WARNING):
        assert ctx.generate_measure_candidates()
    assert "not followed" in caplog.text


def test_or_keeps_it_from_beginning(target, caplog, wrong) -> None:
    wrong()
    asked = []

    def stock(designs):
        asked.append(len(designs))
        return few(designs)

    with caplog.at_level(logging.DEBUG):
        begun(P.matmul(), target, WorldModelCostModel("x86-meta", round_size=4), stock=stock)
    assert len(asked) == 1 and "not followed" in caplog.text


def test_guided_collectors_search_in_the_model(target, monkeypatch) -> None:
    monkeypatch.setattr(ms.search_strategy, "EvolutionarySearch", lambda **how: 1 / 0)
    model = WorldModelCostModel("x86-meta", round_size=8)
    sampler = TraceSampler(P.module(P.conv()), target, measured=set(), cost_model=lambda: model)
    found = sampler.next(12, guided=True, seed=4)
    assert len({str(steps) for _, steps in found}) == 12


@pytest.mark.parametrize("kind", ["conv2d-relu", "qkv-projection"])
def test_what_tvm_s_search_measured_is_known(kind, target) -> None:
    """Its traces are without what is asked for and not used; a run may go on from its records."""
    strategy = ms.search_strategy.EvolutionarySearch(population_size=32, genetic_num_iters=1)
    ctx = context(workloads.module(kind), target, strategy)
    designs = ctx.generate_design_space()
    ctx.pre_tuning(
        max_trials=8,
        num_trials_per_iter=8,
        design_spaces=designs,
        database=ms.database.MemoryDatabase(),
        cost_model=ms.cost_model.RandomModel(seed=1),
    )
    spaces = DrawnSpaces(ctx, designs)
    known = [spaces.of(trace_json(one.sch.trace)) for one in ctx.generate_measure_candidates()]
    assert len(known) == 8 and None not in known
