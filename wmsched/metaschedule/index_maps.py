"""JSON of index maps from their text: numbers put where they belong, TVM asked where that is not sure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any


class IndexMaps:
    """The JSON of index maps by their text.

    The maps of a search's candidates differ in tile sizes, and asking TVM for the JSON of one costs half as
    much as following a trace. Two maps whose texts are the same but for their numbers, with equal numbers in
    the same places, have the same JSON but for these.

    Parameters
    ----------
    save : callable
        TVM's `save_json`.
    """

    def __init__(self, save: Callable[[Any], str]) -> None:
        self._save = save
        self._known: dict[tuple[str, tuple[int, ...]], list[str | int] | None] = {}

    def __call__(self, text: str, index_map: Any) -> str:
        """The JSON of a map, of which a trace's Python text has `text`."""
        numbers = _NUMBER.findall(text)
        distinct = list(dict.fromkeys(numbers))
        form = _NUMBER.sub("#", text), tuple(map(distinct.index, numbers))
        if form not in self._known:
            if len(self._known) >= MAX_FORMS:
                self._known.clear()
            told = self._save(index_map)
            self._known[form] = _pieces(told, distinct)
            return told
        pieces = self._known[form]
        if pieces is None:
            return self._save(index_map)
        return "".join(distinct[piece] if type(piece) is int else piece for piece in pieces)  # type: ignore[misc]


MAX_FORMS = 4096  # some 2 kB each; then they are learnt anew
_NUMBER = re.compile(r"(?<!\w)\d+\b")


def _pieces(told: str, distinct: list[str]) -> list[str | int] | None:
    """The JSON in parts, an integer where the number of that place belongs; None if they do not agree."""
    pieces: list[str | int] = []
    at, stored = 0, set()
    for found in _STORED.finditer(told):
        stored.add(found[2])
        if found[2] not in distinct:
            return None
        pieces += [told[at : found.end(1)], distinct.index(found[2])]
        at = found.end()
    return [*pieces, told[at:]] if stored == set(distinct) else None


_STORED = re.compile(r'(\{"type":"int","data":)(-?\d+)(?=\})')
