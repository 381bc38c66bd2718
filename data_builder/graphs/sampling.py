"""Configurations of a graph to measure: today's rules, the best by added costs, climbed and random ones.

A configuration has one option for each of the graph's sites. Sites of one region change together, since the
costs that are added are of whole regions. Needs no TVM.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wmsched.tune.graph.program import Choices, Costs, best_choices

__all__ = ["Part", "added", "sampled"]

BEST = 4  # of the integer program, beside the rules
CHANGED = 0.3  # of the regions, that a changed configuration has otherwise
CLIMBS = 3  # from a random configuration each


@dataclass(frozen=True)
class Part:
    """A region of a graph, or a site in none: where options are chosen together.

    Parameters
    ----------
    sites : tuple of int
        Which of the graph's sites are in it.
    key : str
        Of its class; "" for a site in no region, whose options have no costs.
    choices : tuple of tuple of int
        What can be chosen for its sites; the first is what the rules take.
    """

    sites: tuple[int, ...]
    key: str
    choices: tuple[Choices, ...]


Seconds = Mapping[str, Mapping[Choices, float]]  # of a class's options, by the class's key


def added(parts: Sequence[Part], configuration: Sequence[int], seconds: Seconds) -> float:
    """Return the sum of the costs of a configuration's regions, as the integer program adds them."""
    return sum(
        seconds[part.key][tuple(configuration[site] for site in part.sites)]
        for part in parts
        if part.key in seconds
    )


def sampled(parts: Sequence[Part], sites: int, seconds: Seconds, count: int, seed: int) -> list[Choices]:
    """Return up to `count` different configurations of a graph, the rules' first.

    After them come those that the integer program over the costs takes, and the steps of climbs on the sum of
    the costs. A third of the rest is the rules' with some regions changed, and the others are random.
    """
    draw, found = random.Random(seed), dict[Choices, None]()
    rules = (0,) * sites
    found[rules] = None
    for chosen in _programmed(parts, sites, seconds):
        found[chosen] = None
    for _ in range(CLIMBS):
        for step in _climb(parts, _random(parts, sites, draw), seconds, draw):
            if len(found) < count // 2:
                found[step] = None
    turn, tries = 0, 0
    while len(found) < count and tries < 20 * count:
        tries += 1
        made = _random(parts, sites, draw) if turn % 3 else _changed(parts, rules, draw)
        turn += made not in found
        found[made] = None
    return list(found)[:count]


def _programmed(parts: Sequence[Part], sites: int, seconds: Seconds) -> Iterator[Choices]:
    keys = [part.key for part in parts if part.key in seconds]
    costs = {key: Costs(keys.count(key), seconds[key]) for key in dict.fromkeys(keys)}
    for best in best_choices(costs, BEST):
        numbers = [0] * sites
        for part in parts:
            for site, option in zip(part.sites, best.get(part.key, ()), strict=False):
                numbers[site] = option
        yield tuple(numbers)


def _with(configuration: Choices, part: Part, chosen: Choices) -> Choices:
    numbers = list(configuration)
    for site, option in zip(part.sites, chosen, strict=True):
        numbers[site] = option
    return tuple(numbers)


def _random(parts: Sequence[Part], sites: int, draw: random.Random) -> Choices:
    made = (0,) * sites
    for part in parts:
        made = _with(made, part, draw.choice(part.choices))
    return made


def _changed(parts: Sequence[Part], configuration: Choices, draw: random.Random) -> Choices:
    for part in parts:
        if draw.random() < CHANGED:
            configuration = _with(configuration, part, draw.choice(part.choices))
    return configuration


def _climb(
    parts: Sequence[Part], configuration: Choices, seconds: Seconds, draw: random.Random
) -> Iterator[Choices]:
    """Yield the steps from a configuration to the least sum, in each of which one region gets its best."""
    order = [part for part in parts if part.key in seconds]
    draw.shuffle(order)
    for part in order:
        best = min(seconds[part.key], key=lambda choices: seconds[part.key][choices])
        after = _with(configuration, part, best)
        if after != configuration:
            configuration = after
            yield configuration
