"""Defaults that `wmsched.metaschedule.tune` gives to MetaSchedule's functions."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from wmsched.measure.tracker import Tracker
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.measure.builder import (
    KeptBuilder,
    build,
    build_with_vector_math,
    export_shared,
)
from wmsched.metaschedule.measure.measurer import steady_runner
from wmsched.metaschedule.measure.runner import checked
from wmsched.metaschedule.rules.spaces import space_generator
from wmsched.model.bundles import shipped
from wmsched.model.world_model import WorldModel
from wmsched.relax.passes import pipeline
from wmsched.toolchain.resolve import is_cpu
from wmsched.toolchain.targets import not_run_here

logger = logging.getLogger("wmsched")

STOCK = ("xgb", "random")  # MetaSchedule's own models, by its names
TVM_MODELS = (*STOCK, "mlp")  # model names that MetaSchedule resolves itself
MAX_BUILD_OR_RUN_SECONDS = 30.0  # MetaSchedule's default for each
MIN_REPEAT_MS = 60  # of a candidate's timing on all sets of buffers, with warm caches


def with_defaults(
    target: Any,
    upstream: Mapping[str, Any],
    size: int,
    *,
    online: bool,
    vector_math: bool | None,
    cold_caches: bool,
    on_devices: bool = False,
) -> dict[str, Any]:
    """Return the arguments for upstream's functions: the user's, and our defaults for the rest.

    `on_devices` leaves the runner out, and builds for devices that have no linker (`metaschedule.rpc`).

    Raises
    ------
    WmschedError
        A processor's target has no "num-cores".
    """
    unpin_main_thread()
    check_cores(target)
    if is_cpu(target):
        if wrong := too_many_threads():
            logger.warning("wmsched: %s", wrong)
        name_threads(tvm)
    import_intrinsics(target)
    found = {name: value for name, value in upstream.items() if value is not None}
    found["num_trials_per_iter"] = size
    model = found.get("cost_model")
    if model is None:
        model = default_cost_model(str(target.kind.name), functools.partial(logger.warning, "wmsched: %s"))
    if isinstance(model, (str, os.PathLike, WorldModel)) and model not in TVM_MODELS:
        model = WorldModelCostModel(model, online=online, round_size=size)
    found["cost_model"] = model
    if isinstance(model, WorldModelCostModel) and "strategy" not in found:
        found["strategy"] = strategy_of(model, size, target)()
    found.setdefault("space", space_generator(target))
    found.setdefault("num_tuning_cores", usable_cores())
    if "builder" in found and vector_math:
        logger.warning(
            "wmsched: vector_math=True has no effect on a builder= of your own, which builds in its own way; "
            "give compile_tir and compile_relax vector_math=False"
        )
    if "builder" not in found:
        cores = found["num_tuning_cores"]
        found["builder"] = KeptBuilder(
            max_workers=cores if isinstance(cores, int) else cpu_count(logical=cores == "logical"),
            timeout_sec=MAX_BUILD_OR_RUN_SECONDS,
            f_build=build_with_vector_math if uses_vector_math(target, vector_math) else build,
            f_export=export_shared if on_devices else None,
            torch=not is_cpu(target),
        )
    if "runner" in found and on_devices:
        raise WmschedError("rpc_config= and runner= both say where candidates are timed: give one of them")
    if "runner" not in found and not on_devices:
        if wrong := not_run_here(target):
            logger.warning("wmsched: target %s: %s", target, wrong)
        found["runner"] = checked(steady_runner(target, **timing_of(target, cold_caches)))
    return found


def timing_of(target: Any, cold_caches: bool) -> dict[str, Any]:
    """Return how the runners of `tune_tir` and `tune_relax` time, as options of `steady_runner`."""
    is_cold = is_cpu(target) and cold_caches
    return {"min_repeat_ms": 0 if is_cold else MIN_REPEAT_MS, "timeout": MAX_BUILD_OR_RUN_SECONDS}


@contextmanager
def runner_of(rpc_config: Any, target: Any, cold_caches: bool) -> Iterator[dict[str, Any]]:
    """Yield the argument ``runner`` for a search on a tracker's devices; {} without a tracker.

    Parameters
    ----------
    rpc_config : RPCConfig or Tracker, optional
        What an ``RPCConfig`` lacks is taken from ``TVM_TRACKER_HOST``, ``_PORT`` and ``_KEY``, as by TVM.
    """
    if rpc_config is None:
        yield {}
        return
    from wmsched.metaschedule.rpc.runner import opened

    normalize = getattr(rpc_config, "_normalized", lambda config: config)
    tell = functools.partial(logger.warning, "wmsched: %s")
    with opened(
        Tracker.of(normalize(rpc_config)), target, tell=tell, **timing_of(target, cold_caches)
    ) as devices:
        yield {"runner": devices}


def uses_vector_math(target: Any, vector_math: bool | None, builder: Any = None) -> bool:
    """Whether builds have vector math and loops: on a processor, as asked, by default with our builder.

    Never on a GPU, where the same TVM setting selects CUDA's fast, less exact functions.
    """
    return is_cpu(target) and (builder is None if vector_math is None else vector_math)


def how_measured(
    target: Any, upstream: Mapping[str, Any], *, vector_math: bool | None, cold_caches: bool
) -> dict[str, Any]:
    """Return how a search builds and times, for `schedules.database.measured_otherwise`."""
    own = upstream.get("builder") is None
    cold = is_cpu(target) and cold_caches if upstream.get("runner") is None else "as the runner says"
    return {
        "vector_math": uses_vector_math(target, vector_math) if own else "as the builder says",
        "cold_caches": cold,
        "threads": named_threads(os.environ) if is_cpu(target) else 0,
    }


def check_cores(target: Any) -> None:
    """Raise WmschedError if a processor's target has no "num-cores"."""
    if is_cpu(target) and "num-cores" not in target.attrs:
        raise WmschedError(
            f"the target {target} does not say how many cores it has, which MetaSchedule shares work by: add "
            '"num-cores", or take wmsched.metaschedule.host_target(), which is this machine\'s'
        )


def to_tune(mod: Any, params: Mapping[str, Any] | None, target: Any, pack_weights: bool | None) -> Any:
    """Return a Relax program as TensorIR functions with bound weights, for a search or a build."""
    if isinstance(mod, relax.Function):
        mod = tvm.IRModule({"main": mod})
    if params:
        mod = relax.transform.BindParams("main", dict(params))(mod)
    pack = is_cpu(target) if pack_weights is None else pack_weights
    with unbound():  # it runs the functions that fold constants
        return pipeline.prepare(mod, target, pack_weights=pack)


def target_object(target: Any) -> Any:
    """Return TVM's Target of a target or its description."""
    return target if isinstance(target, tvm.target.Target) else tvm.target.Target(target)


DEFAULT_META_BUNDLE = "x86-meta"
DEFAULT_CUDA_BUNDLE = "cuda-meta"
FALLBACK_BUNDLE = "x86-avx512"  # trained on AutoScheduler's logs; ranks traces by the shared columns
# Population of TVM's evolutionary search in a round: for each trial, and its bounds.
POPULATION_PER_TRIAL, MIN_POPULATION, MAX_POPULATION = 8, 128, 512
GENERATIONS = 3
MIN_ROUND_TRIALS, MAX_ROUND_TRIALS = 4, 64  # trials of a task in a round


def round_of(share: int, devices: int = 1) -> int:
    """Return a task's trials a round, from its `share` of a model's trials and the number of devices.

    Half of the share gives each task a first round and leaves as many trials for the tasks that gain most.
    Fewer than `MIN_ROUND_TRIALS` do not pay for the start of workers, and fewer than one a device leave some
    idle.
    """
    least = min(share, max(MIN_ROUND_TRIALS, devices))
    return min(MAX_ROUND_TRIALS, max(least, -(-share // 2)))


def strategy_of(cost_model: Any, size: int, target: Any, **how: Any) -> Callable[[], Any]:
    """Return a maker of search strategies for a `WorldModelCostModel` and rounds of `size` trials.

    `how` is for `drawn_search`: its traversal ("evolution") and choice.
    """
    from wmsched.metaschedule.search_strategy import drawn_search

    stock = functools.partial(_search_on_a_cpu if is_cpu(target) else _search_on_a_gpu, size)
    return functools.partial(drawn_search, cost_model, stock=stock, **how)


def _search_on_a_cpu(size: int, designs: Any) -> Any:
    return search_for(size)


def _search_on_a_gpu(size: int, designs: Any) -> Any:
    tiled = any(step.kind.name == "SamplePerfectTile" for design in designs for step in design.trace.insts)
    return search_for(size, draws_many=tiled)


def search_for(size: int, *, draws_many: bool = False) -> Any:
    """Return MetaSchedule's evolutionary search, sized for a pretrained model and `size` trials a round.

    `draws_many` takes the maximum population. On a GPU most of a convolution's schedules exceed a block's
    limits, and TVM gives a task up after five samples with fewer than 50 valid schedules.

    MetaSchedule's default, 512 candidates in 4 generations, suits a model that learns during the search. 128
    in 3 took 8 s for 16 measurements instead of 20, and found kernels 1.03 times as fast (3 convolutions of
    ResNet-50, 2 seeds, Zen 5).
    """
    from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

    population = min(max(POPULATION_PER_TRIAL * size, MIN_POPULATION), MAX_POPULATION)
    population = MAX_POPULATION if draws_many else population
    return EvolutionarySearch(population_size=population, genetic_num_iters=GENERATIONS)


def default_cost_model(kind: str, tell: Callable[[str], None]) -> str:
    """Return the best shipped model for a kind of target; call `tell` with a note if it is a substitute."""
    have = shipped()
    if kind == "cuda" and DEFAULT_CUDA_BUNDLE in have:
        return DEFAULT_CUDA_BUNDLE
    if not is_cpu(kind):
        tell(f"no bundle for {kind} is shipped: MetaSchedule's own xgb is used; --cost-model names another")
        return "xgb"
    if DEFAULT_META_BUNDLE in have:
        return DEFAULT_META_BUNDLE
    tell(
        f"the bundle {DEFAULT_META_BUNDLE} is not in this copy of wmsched: {FALLBACK_BUNDLE} is used, which "
        "was trained on AutoScheduler's logs; --cost-model names another"
    )
    return FALLBACK_BUNDLE
