"""Fine-tuning of a bundle on another machine's records (``wmsched finetune``).

A few hundred records gain little on processors like those in the training data; thousands gain more. E and F
read programs, not times, so they are kept. One of three methods adapts G:

- "continue": add trees for the new records to the bundle's; needs no old data;
- "mix": train G on old and new records, each new workload repeated `weight` times;
- "scratch": train G on the new records alone, as a baseline.

Cross-validation on the new records chooses the number of added trees, which may be 0: if the gain is within
two standard errors, the bundle is unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wmsched.base.errors import BundleError, DatasetError
from wmsched.base.files import locked
from wmsched.learn.data.dataset import Dataset
from wmsched.learn.data.inputs import cache_of, check_scheduler, gather
from wmsched.learn.evaluate.quality import qualities
from wmsched.learn.training.adaptation import INNER_FOLDS, METHODS, cross, fitting
from wmsched.model.groups import RankGroup, informative
from wmsched.model.ranker import Ranker

if TYPE_CHECKING:
    from wmsched.model.world_model import WorldModel


Log = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """Options of one fine-tuning.

    Parameters
    ----------
    bundle : bundle to adapt, a folder or a shipped name
    dataset : the new machine's records
    out : the new bundle's folder
    method : one of `METHODS`; None: "mix" with old data, else "continue"
    old : the dataset that the bundle was trained on, for "mix"
    weight : repetitions of each new workload in "mix"
    records : maximum number of new records, whole workloads at a time; None: all
    seed : of the order of the workloads
    """

    bundle: str | Path
    dataset: Path
    out: Path
    method: str | None = None
    old: Path | None = None
    weight: int = 4
    records: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in (None, *METHODS):
            raise ValueError(f"method={self.method!r} is none of {', '.join(METHODS)}")
        if self.method == "mix" and self.old is None:
            raise ValueError('method="mix" needs the old dataset: give old=, or method="continue"')

    @property
    def chosen(self) -> str:
        """The method, with None resolved."""
        return self.method or ("mix" if self.old is not None else "continue")


def finetune(options: FinetuneOptions, *, log: Log | None = None) -> WorldModel:
    """Adapt the bundle, measure the gain on held-out workloads of the new data, and write it.

    Raises
    ------
    DatasetError
        The new data are too few to learn an order, or are of the other scheduler.
    BundleError, UnknownName
        The bundle is unusable or missing, or its ranker has no trees; `out` is no bundle, or cannot be
        written.
    WmschedError
        Another run is writing `out`.
    """
    from wmsched.model.bundles import recover_interrupted_save, resolve_output

    options = dataclasses.replace(options, out=resolve_output(options.out))
    with locked(options.out.with_name(f".{options.out.name}.lock"), whose=options.out, option="--out"):
        recover_interrupted_save(options.out)
        return _finetune(options, log)


def _finetune(options: FinetuneOptions, log: Log | None) -> WorldModel:
    from wmsched.model.world_model import WorldModel

    model = WorldModel.from_pretrained(options.bundle)
    ranker = trees(model)  # fails before the rows, which take long
    new = take(
        groups_of(model, options.dataset, log, bundle=options.bundle), options.records, seed=options.seed
    )
    old = old_groups(model, options, new, log)
    fit = fitting(ranker, options.chosen, old, weight=options.weight)
    known, these = model.about.get("fingerprint", {}), Dataset(options.dataset).fingerprint()
    # the bundle may have seen other workloads of the same logs, from another part of a split dataset
    both = {part: {*known.get(part, ())} & {*these[part]} for part in ("sources", "workloads")}
    seen = both["sources"] if both["workloads"] else set()
    found: dict[str, Any] = {}
    why = f"the bundle was trained on {len(seen)} of these logs"
    if not seen:  # otherwise the bundle would be tested on its training data
        found, why = _measured(new, fit, ranker)
    fitted = fit(new)
    about = {key: value for key, value in model.about.items() if key not in ("card", "metrics")}
    about["finetuned"] = {
        "from": str(options.bundle),
        "method": options.chosen,
        "weight": options.weight if options.chosen == "mix" else None,
        "records": sum(len(group.rows) for group in new),
        "workloads": len(new),
        "fingerprint": these,
        "metrics": found,
    }
    about["fingerprint"] = _joined(known, these)
    if model.encoder is not None:
        about.setdefault("parts_fingerprint", known)
    about["targets"] = sorted({w.target for w in Dataset(options.dataset).workloads() if w.target})
    adapted = WorldModel(
        fitted,
        encoder=model.encoder,
        transition=model.transition,
        state=model.state,
        phi=model.phi,
        about=about,
        columns=model.columns,
        cores=model.cores,
    )
    adapted.save_pretrained(options.out, card=_card(options, about))
    if log is not None:
        log(found or {"finetuned": f"on {len(new)} workloads, not measured: {why}"})
    return adapted


def _measured(
    new: Sequence[RankGroup], fit: Callable[[Sequence[RankGroup]], Ranker], frozen: Ranker
) -> tuple[dict[str, Any], str]:
    """Return metrics of the frozen and the adapted ranker on held-out programs, or none and the reason."""
    if len({group.key for group in new if informative(group)}) < INNER_FOLDS:
        return {}, "too few workloads"
    try:
        before, after = cross(new, None, frozen), cross(new, fit, frozen)
    except DatasetError as error:  # one fold has all informative groups
        return {}, str(error)
    return {"frozen": _means(before, new), "finetuned": _means(after, new)}, ""


def trees(model: WorldModel) -> Ranker:
    """Return the bundle's G; raise BundleError if it is not made of trees."""
    if not isinstance(model.ranker, Ranker):
        raise BundleError(
            f"a ranker of kind {type(model.ranker).__name__} cannot be finetuned; "
            "train the bundle with --ranker trees"
        )
    return model.ranker


def take(groups: Sequence[RankGroup], records: int | None, *, seed: int = 0) -> list[RankGroup]:
    """Return whole groups in random order up to `records`; the last is cut to fit."""
    if records is None:
        return list(groups)
    taken: list[RankGroup] = []
    left = records
    for n in np.random.default_rng(seed).permutation(len(groups)):
        if left < 2:
            break
        group = groups[n]
        few = slice(0, left)
        part = dataclasses.replace(group, rows=group.rows[few], seconds=group.seconds[few])
        if not informative(part):  # its first records may all have failed
            continue
        taken.append(part)
        left -= len(taken[-1].rows)
    return taken


def groups_of(model: WorldModel, dataset: Path, log: Log | None, *, bundle: str | Path) -> list[RankGroup]:
    """Return a dataset's measured candidates with the model's columns; `bundle` is its name in errors."""
    data = Dataset(dataset)
    check_scheduler(model, data, bundle)
    tasks = gather(
        data,
        encoder=model.encoder,
        transition=model.transition,
        cache=cache_of(dataset),
        true_states=False,
        cores=model.cores,
        log=log,
    )
    groups = (task.group(model.state, model.phi) for task in tasks)
    slowdown = getattr(model.ranker, "slowdown", -1)
    return [dataclasses.replace(group, rows=model.own(group.rows), slowdown=slowdown) for group in groups]


def old_groups(
    model: WorldModel, options: FinetuneOptions, new: Sequence[RankGroup], log: Log | None
) -> list[RankGroup]:
    """Return the old dataset's rank groups.

    If it contains logs of the new one (a merge of both), the new groups are removed, so that the test
    data stay unseen.
    """
    if options.old is None:
        return []
    groups = groups_of(model, options.old, log, bundle=options.bundle)
    old, these = (set(Dataset(root).fingerprint()["sources"]) for root in (options.old, options.dataset))
    keys = {group.key for group in new} if old & these else set()
    kept = [group for group in groups if group.key not in keys]
    if log is not None and len(kept) < len(groups):
        log({"old_left_out": len(groups) - len(kept), "because": f"they are in {options.dataset}, too"})
    return kept


def _means(scores: Sequence[np.ndarray], groups: Sequence[RankGroup]) -> dict[str, float | None]:
    found = qualities(scores, [group.seconds for group in groups])
    means = {key: float(np.nanmean(found[key])) for key in ("top1", "top5", "pairwise")}
    return {key: value if np.isfinite(value) else None for key, value in means.items()}


def _joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the union of both fingerprints, so that a leak check finds the workloads of either."""
    return {
        "workloads": sorted({*old.get("workloads", ()), *new["workloads"]}),
        "records": int(old.get("records", 0)) + int(new["records"]),
        "sources": sorted({*old.get("sources", ()), *new["sources"]}),
    }


def _card(options: FinetuneOptions, about: dict[str, Any]) -> str:
    """Return MODEL_CARD.md of an adapted bundle."""
    own = about["finetuned"]
    targets = "\n".join(f"- `{target}`" for target in about["targets"]) or "- not recorded"
    rows = [
        f"| {name} | " + " | ".join("-" if v is None else f"{v:.3f}" for v in line.values()) + " |"
        for name, line in own["metrics"].items()
    ]
    table = "\n".join(["| | top-1 | top-5 | pairs |", "|---|---|---|---|", *rows])
    quality = table if rows else "Not measured: too few workloads, or logs that the bundle was trained on."
    return f"""# {options.out.name}

`{own["from"]}` adapted by "{own["method"]}" with {own["records"]} records of {own["workloads"]} workloads,
measured on

{targets}

Encoder and transition are those of `{own["from"]}`.

## Ranking of workloads held out of the adaptation

{quality}
"""
