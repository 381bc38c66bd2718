"""Training of a bundle from a dataset directory: E, F and G in turn (``wmsched train``)."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmsched.base.errors import BundleError, DatasetError
from wmsched.base.files import PARTIAL_SUFFIX, locked
from wmsched.learn.data.dataset import Dataset
from wmsched.learn.data.splits import networks_of
from wmsched.learn.training.train_encoder import EncoderTraining, train_encoder
from wmsched.learn.training.train_ranker import build_groups, by_network, train_ranker
from wmsched.learn.training.train_transition import TransitionTraining, train_transition
from wmsched.model.bundles import recover_interrupted_save, resolve_output
from wmsched.model.config import EncoderConfig
from wmsched.model.encoder import StateEncoder
from wmsched.model.external_memory import too_large
from wmsched.model.ranker import RankerConfig
from wmsched.model.ranker_kinds import TREES, find_kind, kinds
from wmsched.model.rows import STATES, column_names
from wmsched.model.world_model import WorldModel

Log = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of one training run.

    Parameters
    ----------
    dataset : Path
        A directory of ``wmsched-data build``.
    out : Path
        The bundle's folder. ``<out>.training`` holds checkpoints and metrics, from which the same command
        resumes.
    state : str
        Program embedding that the ranker reads: "predicted" (the method), "initial" or "none" (ablations).
    phi : bool
        Whether the ranker reads action features.
    encoder, encoder_training, transition_training, ranker
        Settings of the parts.
    parts_of : str
        Name or folder of a bundle whose E and F are reused; only G is trained. "" trains all.
    kind : str
        Kind of G: "trees", or a plug-in's (:mod:`wmsched.model.ranker_kinds`).
    minutes : float, optional
        Time limit for E and F together; three fifths are E's.
    folds : int
        Folds of G's evaluation by network.
    disturbed : bool
        Whether G learns from records that a noise check marked as disturbed.
    external : bool, optional
        Whether G's rows stay on disk, in ``<out>.training/rows``; None: if they do not fit in memory.
    command : str
        Command line, for the model card.
    """

    dataset: Path
    out: Path
    state: str = "predicted"
    phi: bool = True
    encoder: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    encoder_training: EncoderTraining = dataclasses.field(default_factory=EncoderTraining)
    transition_training: TransitionTraining = dataclasses.field(default_factory=TransitionTraining)
    ranker: RankerConfig = dataclasses.field(default_factory=RankerConfig)
    parts_of: str = ""
    kind: str = TREES
    minutes: float | None = None
    folds: int = 5
    disturbed: bool = False
    external: bool | None = None
    command: str = ""

    def __post_init__(self) -> None:
        for name, known in (("state", STATES), ("kind", kinds())):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r} is none of {', '.join(known)}")


def train(options: TrainOptions, *, log: Log | None = None) -> WorldModel:
    """Train the parts that `options` need, evaluate, and write the bundle.

    Parameters
    ----------
    log : callable, optional
        Receives the part's name ("E", "F", "G") and each of its metrics lines.

    Raises
    ------
    DatasetError
        The dataset is missing or too small; or `external` is set for a ranker other than trees.
    BundleError
        `out` is no bundle, or cannot be written; checkpoints in ``<out>.training`` have other settings or
        data; `parts_of` is no bundle, or lacks parts that `state` needs.
    UnknownName
        There is no bundle `parts_of`.
    WmschedError
        Another run is writing `out`.
    """
    if options.external and options.kind != TREES:
        raise DatasetError(
            f"rows on disk are for boosted trees, not for ranker {options.kind!r}: "
            "train that on a part (wmsched-data split), or without --external-memory"
        )
    out = resolve_output(options.out)
    with locked(out.with_name(f".{out.name}.lock"), whose=options.out, option="--out"):
        try:
            return _train(dataclasses.replace(options, out=out), log)
        finally:  # rows take many times the dataset's space and are cheap to recompute
            shutil.rmtree(_work(out) / "rows", ignore_errors=True)


def _train(options: TrainOptions, log: Log | None) -> WorldModel:
    def to(part: str) -> Callable[[dict[str, Any]], None] | None:
        return None if log is None else lambda line: log(part, line)

    dataset = Dataset(options.dataset)
    recover_interrupted_save(options.out)
    work = _work(options.out)
    for left in work.rglob(f".*{PARTIAL_SUFFIX}"):  # left by a run killed while writing
        left.unlink(missing_ok=True)
    encoder = transition = None
    given = _given(options)
    if given is not None:
        encoder, transition = given.encoder, given.transition if options.state == "predicted" else None
    elif options.state != "none":
        encoder = train_encoder(
            dataset,
            config=options.encoder,
            training=options.encoder_training,
            out=work / "encoder",
            minutes=None if options.minutes is None else 0.6 * options.minutes,
            log=to("E"),
        )
    if encoder is not None and options.state == "predicted" and transition is None:
        transition = train_transition(
            dataset,
            encoder,
            training=options.transition_training,
            out=work / "transition.safetensors",
            cache=work / "embeddings",
            minutes=None if options.minutes is None else 0.4 * options.minutes,
            log=to("F"),
        )
    rows_in = work / "rows" if _external(options, dataset, encoder) else None
    shutil.rmtree(work / "rows", ignore_errors=True)  # left by a killed run
    groups = build_groups(
        dataset,
        encoder=encoder,
        transition=transition,
        state=options.state,
        phi=options.phi,
        disturbed=options.disturbed,
        rows_in=rows_in,
        log=to("G"),
    )
    ranker: Any
    if options.kind != TREES:
        ranker, metrics = find_kind(options.kind).train(dataset, groups, options, to("G"))
    else:
        programs = {workload.id: workload.key for workload in dataset.workloads()}
        ranker, metrics = train_ranker(
            groups, config=options.ranker, folds=options.folds, programs=programs, log=to("G")
        )
    parts = ("encoder", "encoder_training", "transition_training", "ranker")
    settings = {name: dataclasses.asdict(getattr(options, name)) for name in parts}
    if given is not None:
        settings |= {k: v for k, v in given.about.get("settings", {}).items() if k in parts[:3]}
    about: dict[str, Any] = {
        "fingerprint": dataset.fingerprint(),
        "metrics": {name: value if math.isfinite(value) else None for name, value in metrics.items()},
        "settings": settings,
        "targets": sorted({workload.target for workload in dataset.workloads() if workload.target}),
    }
    if given is not None:  # other data that E and F have seen
        about["parts_fingerprint"] = given.about.get("parts_fingerprint", given.about.get("fingerprint", {}))
    model = WorldModel(
        ranker, encoder=encoder, transition=transition, state=options.state, phi=options.phi, about=about
    )
    named = all(networks_of(dataset.workloads()))  # programs without a network may be layers of one
    model.save_pretrained(options.out, card=card(options, about, networks=named and by_network(groups)))
    return model


def _work(out: Path) -> Path:
    """Return the folder of checkpoints and rows on disk."""
    return out.with_name(out.name + ".training")


def _given(options: TrainOptions) -> WorldModel | None:
    """Return the bundle whose E and F are reused; None if they are trained or not needed."""
    if not options.parts_of or options.state == "none":
        return None
    given = WorldModel.from_pretrained(options.parts_of)
    if given.encoder is None or (options.state == "predicted" and given.transition is None):
        raise BundleError(
            f"{options.parts_of}: its state is {given.state!r}, so it has not the parts for state "
            f"{options.state!r}; name a bundle with a predicted state, or train them"
        )
    return given


def _external(options: TrainOptions, dataset: Dataset, encoder: StateEncoder | None) -> bool:
    """Return whether to keep G's rows on disk."""
    external = options.external
    if external is None and options.kind == TREES:
        dim = encoder.config.dim if encoder is not None else 0
        columns = column_names(dim=dim, state=options.state, phi=options.phi, traces=True)
        external = too_large(dataset.manifest["totals"]["records"], len(columns))
    return bool(external)


def card(options: TrainOptions, about: dict[str, Any], *, networks: bool = True) -> str:
    """Return MODEL_CARD.md: training data, ranking quality, and limits of the bundle.

    Parameters
    ----------
    networks : whether the evaluation held out whole networks; else programs
    """
    found, data = about["metrics"], about["fingerprint"]
    targets = "\n".join(f"- `{target}`" for target in about["targets"]) or "- not recorded"
    shown = "\n".join(
        f"| {name} | {value:.4g} |" for name, value in found.items() if isinstance(value, (int, float))
    )
    quality = (
        f"| metric | mean over workloads |\n|---|---|\n{shown}"
        if shown
        else "Not evaluated: too few networks, or nothing to learn an order from without one of them."
    )
    held = "networks" if networks else "programs"
    saw = "saw neither the workload nor its network" if networks else "saw others of the program's network"
    made = f"## Command\n\n`{options.command}`\n\n" if options.command else ""
    return f"""# {options.out.name}

A wmsched bundle: it ranks the schedules of one tensor program before they are measured. It predicts no
seconds.

## Data

{data["records"]} records of {len(data["workloads"])} workloads, measured on

{targets}

{made}## Ranking of {held} not trained on ({options.folds} folds)

{quality}

The ranker {saw}; the encoder and the transition may have seen its
programs, never their times.

## Limits

Made for targets like those above: on another processor, data type or compiler version the order of schedules
may differ, so measure there and train anew. The state given to the ranker is "{options.state}".
"""
