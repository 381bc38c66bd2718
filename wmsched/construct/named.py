"""Traversals and choices by name, as `wmsched compile` takes them."""

from __future__ import annotations

from typing import Any

from wmsched.base.errors import UnknownName
from wmsched.construct.choice import Agreement, Choice, First, Smoothed, Spread
from wmsched.construct.gensor import WORDS, GensorWalk
from wmsched.construct.learned import LearnedWalk
from wmsched.construct.traversal import Draw, Traversal
from wmsched.search.evolution import Evolution

TRAVERSALS: dict[str, Traversal] = {
    "evolution": Evolution(population=1024, generations=4),
    "draw": Draw(),
    "gensor": GensorWalk(),
    "gensor-words": GensorWalk(eq1=WORDS),
    "learned": LearnedWalk(),
}
CHOICES: dict[str, Choice] = {
    "first": First(),
    "smoothed": Smoothed(),
    "agreement": Agreement(),
    "spread": Spread(),
}


def traversal_of(given: str | Traversal) -> Traversal:
    """Return a traversal, given itself or its name. UnknownName for another name."""
    return _named(given, TRAVERSALS, "traversal")


def choice_of(given: str | Choice) -> Choice:
    """Return a choice, given itself or its name. UnknownName for another name."""
    return _named(given, CHOICES, "choice")


def _named(given: Any, known: dict[str, Any], what: str) -> Any:
    if not isinstance(given, str):
        return given
    if given not in known:
        raise UnknownName(f"no {what} is called {given!r}; there are {', '.join(known)}")
    return known[given]
