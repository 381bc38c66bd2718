"""Names that pairs join to each other: what has to stay on one side of a split."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Name = TypeVar("Name", str, tuple[bool, str])


def representative(pairs: Iterable[tuple[Name, Name]]) -> Callable[[Name], Name]:
    """A function from a name to the least of those that the pairs join it to, itself among them."""
    parent: dict[Name, Name] = {}

    def find(name: Name) -> Name:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for pair in pairs:
        first, second = sorted(map(find, pair))
        parent[second] = first
    return find
