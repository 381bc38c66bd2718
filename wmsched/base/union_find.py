"""Union-find: groups of names joined by pairs, which a data split must keep together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Name = TypeVar("Name", str, tuple[bool, str])


def representative(pairs: Iterable[tuple[Name, Name]]) -> Callable[[Name], Name]:
    """Return a function from a name to the smallest name of its group.

    Examples
    --------
    >>> representative([("a", "b"), ("b", "c")])("c")
    'a'
    """
    parent: dict[Name, Name] = {}

    def find(name: Name) -> Name:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for pair in pairs:
        first, second = sorted(map(find, pair))
        parent[second] = first
    return find
