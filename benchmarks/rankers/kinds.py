"""The research rankers as plug-ins of `wmsched.model.ranker_kinds`; each imports torch when it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmsched.model.ranker_kinds import RankerKind

if TYPE_CHECKING:
    from wmsched.learn.data.dataset import Dataset
    from wmsched.learn.training.train import TrainOptions
    from wmsched.model.groups import RankGroup

__all__ = ["ATTENTION", "LATENT"]


def _load_attention(folder: Path) -> Any:
    from benchmarks.rankers.attention_ranker import AttentionRanker

    return AttentionRanker.load(folder)


def _train_attention(
    dataset: Dataset, groups: Sequence[RankGroup], options: TrainOptions, log: Callable[..., None]
) -> tuple[Any, dict[str, float]]:
    from benchmarks.rankers.train_attention import train_attention_ranker

    return train_attention_ranker(groups, seed=options.ranker.seed, folds=options.folds, log=log)


def _refit_attention(ranker: Any) -> Callable[..., Any]:
    from benchmarks.rankers.train_attention import attentive

    return attentive() if ranker is None else attentive(ranker.config)


def _load_latent(folder: Path) -> Any:
    from benchmarks.rankers.latent_ranker import LatentRanker

    return LatentRanker.load(folder)


def _train_latent(
    dataset: Dataset, groups: Sequence[RankGroup], options: TrainOptions, log: Callable[..., None]
) -> tuple[Any, dict[str, float]]:
    from benchmarks.rankers.train_latent import train_latent_ranker

    return train_latent_ranker(
        dataset, groups, ranker=options.ranker, folds=options.folds, disturbed=options.disturbed, log=log
    )


#: The listwise network with cross-candidate attention.
ATTENTION = RankerKind(
    file="attention.safetensors", load=_load_attention, train=_train_attention, refit=_refit_attention
)
#: Trees beside networks that rank by a predicted terminal state; evaluated by its trees alone.
LATENT = RankerKind(file="latent.safetensors", load=_load_latent, train=_train_latent)
