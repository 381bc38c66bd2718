"""Training texts of E: tokenized, in groups; a group has the states (or actions) of one workload."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wmsched.model.tokenizer import canonical_text

if TYPE_CHECKING:
    from wmsched.learn.data.dataset import Dataset
    from wmsched.model.encoder import StateEncoder


@dataclass(frozen=True)
class TextPool:
    """Tokenized texts in groups: ``chunks[i]`` are the chunks of text i, ``groups`` hold text numbers."""

    chunks: list[list[np.ndarray]]
    groups: list[np.ndarray]

    @classmethod
    def build(cls, encoder: StateEncoder, groups: Sequence[Iterable[str]]) -> TextPool:
        """Tokenize texts; equal canonical texts become one, so that none is its own negative."""
        number: dict[str, int] = {}
        rows = [
            np.array(
                sorted({number.setdefault(canonical_text(text), len(number)) for text in group}), np.int64
            )
            for group in groups
        ]
        tokens = encoder.chunk(list(number))
        chunks: list[list[np.ndarray]] = [[] for _ in number]
        for ids, owner in zip(tokens.ids, tokens.owner):
            chunks[owner].append(ids)
        return cls(chunks, [row for row in rows if len(row)])

    def sample(self, rng: np.random.Generator, *, groups: int, texts: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw ``texts`` texts from each of ``groups`` groups; return distinct text numbers and their
        groups."""
        picked = rng.choice(len(self.groups), size=min(groups, len(self.groups)), replace=False)
        drawn = [rng.permutation(self.groups[g])[:texts] for g in picked]
        numbers, first = np.unique(np.concatenate(drawn), return_index=True)
        return numbers, np.repeat(picked, [len(d) for d in drawn])[first]

    def pick_chunks(self, numbers: np.ndarray, rng: np.random.Generator, most: int) -> list[list[np.ndarray]]:
        """Return the chunks of texts, at most ``most`` random ones of each to bound a step's cost."""
        picked = []
        for number in numbers:
            chunks = self.chunks[number]
            few = len(chunks) <= most
            picked.append(
                chunks if few else [chunks[i] for i in rng.choice(len(chunks), most, replace=False)]
            )
        return picked


def states_of(dataset: Dataset, workload_id: str, limit: int, seed: int) -> list[str]:
    """Return at most ``limit`` states of a workload, chosen by a hash of seed and text."""
    texts = dataset.states(workload_id).values()
    return sorted(texts, key=lambda text: hashlib.sha256(f"{seed} {text}".encode()).digest())[:limit]


def action_texts_of(dataset: Dataset, workload_id: str) -> list[str]:
    """Return the distinct action texts of a workload, sorted."""
    return sorted(
        {text for trajectory in dataset.trajectories(workload_id) for text in trajectory.action_texts}
    )
