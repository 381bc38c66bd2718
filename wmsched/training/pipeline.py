"""``wmsched train``: E, then F, then G, then a bundle. All parts resume; the bundle comes last."""

from __future__ import annotations

import dataclasses
import datetime
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wmsched.dataset import Dataset
from wmsched.encoder import EncoderConfig, StateEncoder
from wmsched.errors import BundleError, UnknownName
from wmsched.ranker import RankerConfig
from wmsched.training.encoder import EncoderTraining, train_encoder
from wmsched.training.ranker import build_groups, train_ranker
from wmsched.training.transition import TransitionTraining, train_transition
from wmsched.transition import TransitionConfig, TransitionModel
from wmsched.world_model import CONFIG, WorldModel, library_versions

Log = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Preset:
    """Sizes of the three parts. The transition's widths follow the encoder's."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    encoder_training: EncoderTraining = field(default_factory=EncoderTraining)
    transition_training: TransitionTraining = field(default_factory=TransitionTraining)
    action: int = 64  # a, width of a projected action
    hidden: int = 256  # of F's residual MLP
    ranker: RankerConfig = field(default_factory=lambda: RankerConfig(n_models=3))
    state: str = "predicted"  # what G is given of the state, see wmsched.rows.STATES
    folds: int = 5


PRESETS = {
    "small": Preset(),
    "tiny": Preset(
        encoder=EncoderConfig(hidden=32, layers=1, heads=2, feedforward=64, vocab_size=512, max_length=96,
                              stride=16, max_chunks=2, dim=16),
        encoder_training=EncoderTraining(steps=10, epoch_steps=10, checkpoint_steps=5),
        transition_training=TransitionTraining(steps=40, epoch_steps=20, checkpoint_steps=20),
        action=16,
        hidden=32,
        ranker=RankerConfig(rounds=40, patience=10, depth=4),
        folds=3,
    ),
    "actions": Preset(state="none"),
}  # fmt: skip


def train(
    data_dir: str | Path,
    out: str | Path,
    *,
    preset: str = "small",
    seed: int = 0,
    minutes_encoder: float | None = None,
    minutes_transition: float | None = None,
    log: Log | None = None,
) -> dict[str, float]:
    """Train a bundle from a dataset directory.

    Parameters
    ----------
    out : the bundle's folder. Checkpoints, metrics and embeddings lie in ``<out>.training`` beside it; the
        same call goes on from there.
    preset : one of `PRESETS`
    minutes_encoder, minutes_transition : end these trainings by time, however many steps are left
    log : receives each metrics line

    Returns
    -------
    dict
        G's metrics on networks it was not trained on; empty where there are too few networks.

    Raises
    ------
    UnknownName, DatasetError, BundleError
    """
    if preset not in PRESETS:
        raise UnknownName(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    chosen, out = PRESETS[preset], Path(out)
    if out.exists() and not (out / CONFIG).is_file() and any(out.iterdir()):
        raise BundleError(f"{out} is there and is no bundle: name another folder, or empty it")
    dataset = Dataset(data_dir)
    work = out.with_name(out.name + ".training")
    encoder: StateEncoder | None = None
    transition: TransitionModel | None = None
    if chosen.state != "none":
        encoder = train_encoder(
            dataset,
            config=chosen.encoder,
            training=dataclasses.replace(chosen.encoder_training, seed=seed),
            out=work / "encoder",
            minutes=minutes_encoder,
            log=_named(log, "encoder"),
        )
        transition = train_transition(
            dataset,
            encoder,
            config=TransitionConfig(
                features=encoder.feature_width,
                dim=encoder.config.dim,
                action=chosen.action,
                hidden=chosen.hidden,
            ),
            training=dataclasses.replace(chosen.transition_training, seed=seed),
            out=work / "transition.safetensors",
            cache=work / "embeddings",
            minutes=minutes_transition,
            log=_named(log, "transition"),
        )
    groups = build_groups(dataset, encoder=encoder, transition=transition, state=chosen.state)
    settings = dataclasses.replace(chosen.ranker, seed=seed)
    ranker, found = train_ranker(groups, config=settings, folds=chosen.folds, log=log)
    command = ["wmsched", "train", "--data", str(data_dir), "--out", str(out), "--preset", preset]
    command += ["--seed", str(seed)]
    for name, minutes in (("encoder", minutes_encoder), ("transition", minutes_transition)):
        if minutes is not None:
            command += [f"--minutes-{name}", f"{minutes:g}"]
    about: dict[str, Any] = {
        "fingerprint": dataset.fingerprint(),
        "metrics": found,
        "preset": preset,
        "command": shlex.join(command),
        "ranker": dataclasses.asdict(ranker.config),
    }
    model = WorldModel(ranker, encoder=encoder, transition=transition, state=chosen.state, about=about)
    model.save_pretrained(out, card=model_card(model, name=out.name))
    return found


def model_card(model: WorldModel, *, name: str) -> str:
    """MODEL_CARD.md: what it is, from which data, by which command, how good, and what it is not for."""
    about, data = model.about, model.about["fingerprint"]
    parameters = sum(
        p.numel() for part in (model.encoder, model.transition) if part is not None for p in part.parameters()
    )
    importance = model.ranker.importance(model.columns)
    state = sum(share for column, share in importance.items() if column.startswith("z."))
    top = ", ".join(f"`{column}` {share:.1%}" for column, share in list(importance.items())[:8])
    measured = "\n".join(f"| {key} | {value:.4g} |" for key, value in about["metrics"].items())
    versions = ", ".join(f"{key} {value}" for key, value in library_versions().items())
    return f"""# {name}

A wmsched bundle: ranks candidate schedules of one workload from their transform steps, without lowering them.

Made on {datetime.date.today().isoformat()} by

    {about["command"]}

## Data
{len(data["workloads"])} workloads, {data["records"]} measured records, {len(data["sources"])} logs;
their hashes are in `config.json`.

## Parts
- state given to the ranker: {model.state}; encoder and transition: {parameters} parameters
- ranker: {model.ranker.config.objective}, {len(model.ranker.boosters)} x {model.ranker.rounds} trees
- columns: {len(model.columns)}
- share of the ranker's gain from the state columns: {state:.1%}; largest columns: {top}

## How well it ranks
Workloads of networks that the ranker was not trained on (cross-validation; means over workloads):

| | |
|---|---|
{measured or "| too few networks to evaluate | |"}

The encoder and the transition learn from program texts and never see a time;
they had the held-out networks' texts.

## Limits
- It orders candidates of one workload; its scores are no times and mean nothing across workloads.
- It was measured on the hardware of its logs only.
- A benchmark on a workload of its training data says nothing: compare hashes first.

Written with {versions}.
"""


def _named(log: Log | None, part: str) -> Log | None:
    return None if log is None else lambda row: log({"part": part, **row})
