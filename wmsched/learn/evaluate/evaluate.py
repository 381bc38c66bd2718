"""Evaluation of a bundle on held-out programs (``wmsched eval``), with ablations of its parts.

Each fold trains G with the bundle's settings. E and F are the bundle's: they may have seen a held-out
program, but never a time.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import DatasetError, UnknownName
from wmsched.base.files import atomic_open
from wmsched.learn.data.dataset import Dataset
from wmsched.learn.data.inputs import VARIANTS, TaskInputs, cache_of, check_scheduler, gather, named
from wmsched.learn.evaluate.cross_validation import Fit, Scores, boosted, out_of_fold
from wmsched.learn.evaluate.noise_ceiling import Noise, ceiling, estimate_noise
from wmsched.learn.evaluate.quality import (
    METRICS,
    as_json,
    differences,
    qualities,
    random_qualities,
    summary,
)
from wmsched.model import bundles
from wmsched.model.ranker import Ranker, RankerConfig
from wmsched.model.ranker_kinds import TREES, find_kind
from wmsched.model.world_model import WorldModel

Log = Callable[[dict[str, Any]], None]
RANDOM, BASE = "random", "phi"
Found = dict[str, dict[str, NDArray[np.float64]]]


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """One evaluation.

    Parameters
    ----------
    dataset : a directory of ``wmsched-data build``
    bundle : a bundle's folder or shipped name
    by : unit of a fold, "network" or "workload"
    folds : number of folds
    variants : variants of `inputs.VARIANTS` to compare; those without their parts in the bundle are skipped
    also : another kind of ranker (`wmsched.model.ranker_kinds`) to fit to the same columns; "" for none
    states : replayed trajectories of each workload that check F; 0: no check of E, F
    sigma : standard deviation of log seconds for the ceiling; None: estimated from the data
    threads : of the trees; 0: all cores
    cache : folder of the rows; None: ``<dataset>.eval`` next to the dataset
    """

    dataset: Path
    bundle: str | Path
    by: str = "network"
    folds: int = 5
    variants: Sequence[str] = tuple(VARIANTS)
    also: str = ""
    states: int = 2
    sigma: float | None = None
    threads: int = 0
    cache: Path | None = None


def evaluate(options: EvalOptions, *, log: Log | None = None) -> dict[str, Any]:
    """Return the data of :mod:`wmsched.learn.evaluate.report` as JSON values and `Estimate`.

    Raises
    ------
    DatasetError
        No measured programs, too few workloads for the folds, or records of the other scheduler.
    BundleError, UnknownName
        The bundle is unusable or missing.
    """
    unknown = sorted(set(options.variants) - set(VARIANTS))
    if unknown:
        raise ValueError(f"no variants {unknown}; there are {', '.join(VARIANTS)}")
    dataset, model = Dataset(options.dataset), WorldModel.from_pretrained(options.bundle)
    check_scheduler(model, dataset, options.bundle)
    cache = options.cache or cache_of(options.dataset)
    embeddings = embeddings_of(bundles.find(options.bundle), cache)
    tasks = gather(
        dataset,
        encoder=model.encoder,
        transition=model.transition,
        cache=cache,
        embeddings=embeddings,
        cores=model.cores,
        log=log,
    )
    config = dataclasses.replace(settings(model), threads=options.threads)
    own = next((name for name, what in VARIANTS.items() if what == (model.state, model.phi)), BASE)
    names = [name for name in options.variants if _possible(name, model)]
    refit = None if model.kind == TREES else find_kind(model.kind).refit
    noise = estimate_noise(dataset, tasks) if options.sigma is None else Noise(options.sigma, 0, "given")
    result: dict[str, Any] = {
        "bundle": str(options.bundle),
        "dataset": named(options.dataset).name,
        "by": options.by,
        "folds": options.folds,
        "workloads": len(tasks),
        "records": sum(len(task.seconds) for task in tasks),
        "replayed": int(sum(task.replayed.sum() for task in tasks)),
        "networks": len({task.network for task in tasks}),
        "own": own,
        "ranker": dataclasses.asdict(model.ranker.config if refit else config),
        "noise": dataclasses.asdict(noise),
        "ceiling": ceiling(tasks, noise.sigma) if np.isfinite(noise.sigma) else None,
    }
    fit = refit(model.ranker) if refit else boosted(config)
    complete = all(task.replayed.all() for task in tasks)
    needs_true = [name for name in names if VARIANTS[name][0] == "true"]
    everywhere = names if complete else [name for name in names if name not in needs_true]
    result["all"] = _section(tasks, everywhere, fit, options, own, model, log)
    if needs_true and not complete:
        # only some records have a true state: all variants train and test on those
        part = [
            task.only(task.replayed) for task in tasks if np.isfinite(task.seconds[task.replayed]).sum() > 1
        ]
        if len(part) >= 3:
            plain = dataclasses.replace(options, also="")
            try:
                result["replayed_only"] = _section(part, names, fit, plain, own, None, log)
            except DatasetError as error:  # too few networks, or no order to learn: skip this part
                if log is not None:
                    log({"replayed_only_left_out": str(error)})
    if options.states and model.encoder is not None:
        from wmsched.learn.evaluate.states import check_states

        result["states"] = check_states(
            dataset, model, tasks, trajectories=options.states, embeddings=embeddings, log=log
        )
    return result


def settings(model: WorldModel) -> RankerConfig:
    """Return the bundle's ranker settings before early stopping chose the trees."""
    stored = model.about.get("settings", {}).get("ranker")
    config = RankerConfig.from_json(stored) if isinstance(stored, dict) else None
    if config is None and isinstance(model.ranker, Ranker):
        # an older bundle: its number of trees is chosen, another variant may need more
        config = dataclasses.replace(model.ranker.config, rounds=4 * model.ranker.config.rounds)
    return config or RankerConfig()


def write_json(result: dict[str, Any], path: Path) -> None:
    """Write a result atomically; estimates as mean, low, high, workloads; NaN as null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_open(path) as file:
        file.write((json.dumps(as_json(result), indent=1, allow_nan=False) + "\n").encode())


def _section(
    tasks: Sequence[TaskInputs],
    names: Sequence[str],
    fit: Fit,
    options: EvalOptions,
    own: str,
    model: WorldModel | None,
    log: Log | None,
) -> dict[str, Any]:
    """Return one table's rows: each variant's metrics, its difference from phi, and both by operator."""
    seconds = [task.seconds for task in tasks]
    found: Found = {RANDOM: random_qualities(seconds)}

    def measure(name: str, scores: Scores) -> None:
        found[name] = qualities(scores, seconds)
        if log is not None:
            log({"ranked": name, **{k: float(np.nanmean(found[name][k])) for k in ("top1", "pairwise")}})

    for name in names:
        groups = [task.group(*VARIANTS[name]) for task in tasks]
        measure(name, out_of_fold(groups, fit, folds=options.folds, by=options.by))
    if options.also:
        refit = find_kind(options.also).refit
        if refit is None:
            raise UnknownName(f"a ranker {options.also!r} cannot be fitted to rows alone: name another one")
        for name in dict.fromkeys(n for n in (BASE, own) if n in names):
            groups = [task.group(*VARIANTS[name]) for task in tasks]
            scores = out_of_fold(groups, refit(None), folds=options.folds, by=options.by)
            measure(f"{options.also}: {name}", scores)
    section: dict[str, Any] = {
        "records": sum(len(t) for t in seconds),
        "rows": {name: summary(values) for name, values in found.items()},
        "to_phi": {
            name: differences(values, found[BASE])
            for name, values in found.items()
            if BASE in found and name not in (BASE, RANDOM)
        },
        "operators": _by_operator(tasks, found, [n for n in (RANDOM, BASE, own) if n in found]),
    }
    if model is not None:
        section["frozen"] = _frozen(tasks, model, options)
    return section


def _frozen(tasks: Sequence[TaskInputs], model: WorldModel, options: EvalOptions) -> dict[str, Any] | None:
    """Evaluate the bundle's own G on workloads, or at least logs, that it never saw; else None."""
    data = model.about.get("fingerprint", {})
    seen = set(data.get("workloads", ()))
    logs = set(Dataset(options.dataset).fingerprint()["sources"]) & set(data.get("sources", ()))
    part = [task for task in tasks if task.program not in seen] if logs else list(tasks)
    if not part:
        return None
    scores = [model.ranker.margins(model.own(task.rows(model.state, model.phi))) for task in part]
    return {
        "workloads": len(part),
        "trained_on": sum(task.program in seen for task in part),
        "row": summary(qualities(scores, [task.seconds for task in part])),
    }


def _by_operator(tasks: Sequence[TaskInputs], found: Found, names: Sequence[str]) -> dict[str, Any]:
    kinds = np.array([task.operator for task in tasks])
    return {
        str(kind): {
            "workloads": int((kinds == kind).sum()),
            "rows": {name: summary(found[name], kinds == kind) for name in names},
        }
        for kind in sorted(set(kinds), key=lambda k: -(kinds == k).sum())
    }


def _possible(name: str, model: WorldModel) -> bool:
    state = VARIANTS[name][0]
    if state == "none":
        return True
    return model.encoder is not None and (state != "predicted" or model.transition is not None)


def embeddings_of(folder: Path, cache: Path) -> Path:
    """Return the folder of training's embeddings if it still exists, otherwise `cache`."""
    folder = named(folder)
    left = folder.with_name(folder.name + ".training") / "embeddings"
    return left if left.is_dir() and os.access(left, os.W_OK) else cache


__all__ = ["METRICS", "DatasetError", "EvalOptions", "evaluate", "settings", "write_json"]
