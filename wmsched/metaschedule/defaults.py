"""What `meta_tune` gives MetaSchedule's functions for what a script does not name."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.utils import cpu_count

from wmsched.base.cores import (
    name_threads,
    named_threads,
    too_many_threads,
    unbound,
    unpin_main_thread,
    usable_cores,
)
from wmsched.base.errors import WmschedError
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.measure.builder import KeptBuilder, build, build_with_vector_math
from wmsched.metaschedule.measure.measurer import steady_runner
from wmsched.metaschedule.measure.runner import checked
from wmsched.metaschedule.split_reduction import space_generator
from wmsched.model.bundles import shipped
from wmsched.model.world_model import WorldModel
from wmsched.relax.passes import pipeline
from wmsched.toolchain.resolve import is_cpu
from wmsched.toolchain.targets import not_run_here

logger = logging.getLogger("wmsched")

STOCK = ("xgb", "random")  # MetaSchedule's own models, by its names
TVMS = (*STOCK, "mlp")  # names of its own models, which are left to it
LIMIT_SECONDS = 30.0  # MetaSchedule's own, for a build and for a run
MIN_REPEAT_MS = 60  # of a candidate's calls on all sets of buffers together, where caches are warm


def with_defaults(
    target: Any,
    upstream: Mapping[str, Any],
    size: int,
    *,
    online: bool,
    vector_math: bool | None,
    cold_caches: bool,
) -> dict[str, Any]:
    """What upstream's functions are given: what the user names, and ours for the rest."""
    unpin_main_thread()
    cpu = is_cpu(target)
    if cpu and "num-cores" not in target.attrs:
        raise WmschedError(
            f"the target {target} does not say how many cores it has, which MetaSchedule shares work by: add "
            '"num-cores", or take wmsched.metaschedule.host_target(), which is this machine\'s'
        )
    if cpu:
        if wrong := too_many_threads():
            logger.warning("wmsched: %s", wrong)
        name_threads(tvm)
    import_intrinsics(target)
    found = {name: value for name, value in upstream.items() if value is not None}
    found["num_trials_per_iter"] = size
    model = found.get("cost_model")
    if model is None:
        model = default_cost_model(str(target.kind.name), functools.partial(logger.warning, "wmsched: %s"))
    if isinstance(model, (str, os.PathLike, WorldModel)) and model not in TVMS:
        model = WorldModelCostModel(model, online=online, round_size=size)
    found["cost_model"] = model
    if isinstance(model, WorldModelCostModel) and "strategy" not in found:
        found["strategy"] = strategy_of(model, size, target)()
    found.setdefault("space", space_generator(target))
    found.setdefault("num_tuning_cores", usable_cores())
    if "builder" in found and vector_math:
        logger.warning(
            "wmsched: vector_math=True says nothing to a builder that is named: programs are built as it "
            "builds them, and compile_tir and compile_relax are to be told vector_math=False"
        )
    if "builder" not in found:
        cores = found["num_tuning_cores"]
        found["builder"] = KeptBuilder(
            max_workers=cores if isinstance(cores, int) else cpu_count(logical=cores == "logical"),
            timeout_sec=LIMIT_SECONDS,
            f_build=build_with_vector_math if uses_vector_math(target, vector_math) else build,
            torch=not cpu,
        )
    if "runner" not in found:
        if wrong := not_run_here(target):
            logger.warning("wmsched: target %s: %s", target, wrong)
        cold = cpu and cold_caches
        found["runner"] = checked(
            steady_runner(target, min_repeat_ms=0 if cold else MIN_REPEAT_MS, timeout=LIMIT_SECONDS)
        )
    return found


def uses_vector_math(target: Any, vector_math: bool | None, builder: Any = None) -> bool:
    """Whether mathematics and loops are in vectors: on a processor, as asked, else with our builder.

    Never on a GPU, where TVM takes the same setting for CUDA's fast and less exact functions.
    """
    return is_cpu(target) and (builder is None if vector_math is None else vector_math)


def how_measured(
    target: Any, upstream: Mapping[str, Any], *, vector_math: bool | None, cold_caches: bool
) -> dict[str, Any]:
    """How a search builds and times, as `meta_database.measured_otherwise` compares it."""
    own = upstream.get("builder") is None
    cold = is_cpu(target) and cold_caches if upstream.get("runner") is None else "as the runner says"
    return {
        "vector_math": uses_vector_math(target, vector_math) if own else "as the builder says",
        "cold_caches": cold,
        "threads": named_threads(os.environ) if is_cpu(target) else 0,
    }


def to_tune(mod: Any, params: Mapping[str, Any] | None, target: Any, pack_weights: bool | None) -> Any:
    """A Relax program as functions in TensorIR, its weights bound: the same for a search and for a build."""
    if isinstance(mod, relax.Function):
        mod = tvm.IRModule({"main": mod})
    if params:
        mod = relax.transform.BindParams("main", dict(params))(mod)
    pack = is_cpu(target) if pack_weights is None else pack_weights
    with unbound():  # it runs what computes constants
        return pipeline.prepare(mod, target, pack_weights=pack)


def target_object(target: Any) -> Any:
    """TVM's Target of what it takes for one."""
    return target if isinstance(target, tvm.target.Target) else tvm.target.Target(target)


DEFAULT_META_BUNDLE = "x86-meta"
DEFAULT_CUDA_BUNDLE = "cuda-meta"
OTHER_BUNDLE = "x86-avx512"  # AutoScheduler's: it ranks traces by the columns that both schedulers have
POPULATION, LEAST, MOST = 8, 128, 512  # of TVM's search of a round: for each measurement, at least, at most
GENERATIONS = 3
SMALL, ROUND = 4, 64  # measurements of a task between two searches, where there are so many, and at most


def round_of(share: int) -> int:
    """Measurements of a task between two searches, where it has a model's `share` of them: a first round for
    each task, and as much again where it pays most; few are not worth a start of workers."""
    return min(ROUND, max(min(share, SMALL), -(-share // 2)))


def strategy_of(cost_model: Any, size: int, target: Any) -> Callable[[], Any]:
    """Makes a task's search for a `WorldModelCostModel` and rounds of so many measurements."""
    from wmsched.metaschedule.search_strategy import drawn_search

    stock = functools.partial(_search_on_a_cpu if is_cpu(target) else _search_on_a_gpu, size)
    return functools.partial(drawn_search, cost_model, stock=stock)


def _search_on_a_cpu(size: int, designs: Any) -> Any:
    return search_for(size)


def _search_on_a_gpu(size: int, designs: Any) -> Any:
    tiled = any(step.kind.name == "SamplePerfectTile" for design in designs for step in design.trace.insts)
    return search_for(size, draws_many=tiled)


def search_for(size: int, *, draws_many: bool = False) -> Any:
    """MetaSchedule's search as a pretrained model wants it, for rounds of so many measurements.

    `draws_many`: on a GPU most of a convolution's schedules take more than a block may, and TVM gives a task
    up after five draws of a population that leave it fewer than fifty.

    Its own, 512 candidates in four generations, is for a model that is fitted as it goes. Here most of a
    run's time was the search's; with 128 in three it took 8 seconds for 16 measurements in place of 20, and
    found kernels 1.03 times as fast (three convolutions of ResNet-50, two seeds, Zen 5).
    """
    from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

    population = MOST if draws_many else min(max(POPULATION * size, LEAST), MOST)
    return EvolutionarySearch(population_size=population, genetic_num_iters=GENERATIONS)


def default_cost_model(kind: str, tell: Callable[[str], None]) -> str:
    """The best model for targets of a kind that comes with this copy of wmsched; says so where it is a
    makeshift."""
    have = shipped()
    if kind == "cuda" and DEFAULT_CUDA_BUNDLE in have:
        return DEFAULT_CUDA_BUNDLE
    if not is_cpu(kind):
        tell(f"no bundle for {kind} is shipped: MetaSchedule's own xgb is used; --cost-model names another")
        return "xgb"
    if DEFAULT_META_BUNDLE in have:
        return DEFAULT_META_BUNDLE
    tell(
        f"the bundle {DEFAULT_META_BUNDLE} is not in this copy of wmsched: {OTHER_BUNDLE} is used, which was "
        "trained on AutoScheduler's logs; --cost-model names another"
    )
    return OTHER_BUNDLE
