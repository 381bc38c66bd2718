"""What is compared: traversals, and choices on top of an evolution; no TVM."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wmsched.construct import Agreement, Draw, First, GensorWalk, LearnedWalk, Smoothed, Spread
from wmsched.search.evolution import Evolution


@dataclass(frozen=True)
class Variant:
    """One way to construct a schedule, and its line in the table."""

    title: str
    traversal: Any
    choice: Any = field(default_factory=First)


#: What `construct_tir` takes for one function, and `wmsched compile` for 3 % of a model or more
#: (`wmsched.construct.effort`).
TODAY = "evolution-2048x5"
GENSOR = ("gensor", "gensor-words")  # as published, in both readings of Eq 1
EVOLUTION = Evolution(population=1024, generations=4)

VARIANTS = {
    "draw-1024": Variant("draw 1024", Draw(1024)),
    "evolution-256x3": Variant("evolution 256x3", Evolution(population=256, generations=3)),
    "evolution-512x3": Variant("evolution 512x3", Evolution(population=512, generations=3)),
    "evolution-1024x4": Variant("evolution 1024x4", EVOLUTION),
    TODAY: Variant("evolution 2048x5 (today's)", Evolution(population=2048, generations=5)),
    "gensor": Variant("Gensor, Eq 1 as printed", GensorWalk()),
    "gensor-words": Variant("Gensor, Eq 1 by its words", GensorWalk(eq1="words")),
    "gensor-model": Variant("Gensor as printed, ranked by the model", GensorWalk(ranking="model")),
    "gensor-words-model": Variant(
        "Gensor by its words, ranked by the model", GensorWalk(eq1="words", ranking="model")
    ),
    "learned": Variant("learned walk", LearnedWalk()),
    "smoothed": Variant("evolution 1024x4, smoothed", EVOLUTION, Smoothed()),
    "agreement": Variant("evolution 1024x4, agreement", EVOLUTION, Agreement()),
    "spread": Variant("evolution 1024x4, spread", EVOLUTION, Spread()),
}
