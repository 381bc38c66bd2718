"""Configuration of E and its objective, as stored in a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wmsched.base.config import from_dict
from wmsched.model.losses import READINGS
from wmsched.model.tokenizer import CANONICAL_VERSION


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of E and its objective. ``hidden`` to ``dropout`` apply to the small preset only."""

    backbone: str | None = None  # a transformers name or path; None builds the small preset from scratch
    hidden: int = 128  # h, width of the backbone and of action features
    layers: int = 2
    heads: int = 4
    feedforward: int = 512
    vocab_size: int = 4096  # upper bound; the small preset trains a BPE tokenizer
    dropout: float = 0.1  # makes the two views of a text differ; at 0 the contrastive task is trivial
    max_length: int = 256  # tokens in a chunk, special tokens included
    stride: int = 32  # tokens shared by neighbouring chunks
    max_chunks: int = 4  # chunks kept of a text: first, last and evenly spaced between
    dim: int = 64  # d, the width of a state embedding
    temperature: float = 0.1  # divides every cosine of Eq 6
    intra_weight: float = 1.0  # w of negatives from the same workload (Eq 6)
    inter_weight: float = 1.0  # w of negatives from other workloads
    reading: str = "log"  # how a weight enters Eq 6: "multiply" or "log", see losses.weighted_logits
    canonical_version: int = CANONICAL_VERSION  # the canonical text this encoder was trained on

    def __post_init__(self) -> None:
        if self.reading not in READINGS:
            raise ValueError(f"EncoderConfig.reading={self.reading!r} is none of {', '.join(READINGS)}")
        if not 0 <= self.stride < self.max_length - 2:
            raise ValueError(
                f"EncoderConfig.stride={self.stride} must be below max_length={self.max_length} - 2"
            )
        if min(self.intra_weight, self.inter_weight, self.temperature) <= 0 or self.max_chunks < 1:
            raise ValueError("EncoderConfig: weights and temperature must be positive, max_chunks at least 1")

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> EncoderConfig:
        """Rebuild from ``dataclasses.asdict``; unknown keys are refused."""
        return from_dict(cls, values, "encoder")
