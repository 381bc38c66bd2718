"""`wmsched-data vary`: other register tiles of the fastest schedules of logs, timed here.

What a bundle ranks first of a task is all of one kind, and a log of it cannot say that another kind is
faster: on Zen 3 all 64 candidates of a convolution had tiles of 7 rows by 16 numbers, which spill there, and
random schedules differ in everything at once. These differ in the tile alone. Each keeps its schedule's
sketch, its orders and its outer loops as far as the extents allow.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from data_builder.base.store import write_bytes
from data_builder.collect.collect import WORKLOADS, Watch
from data_builder.collect.remeasure import RemeasureOptions, logs_of, remeasure
from data_builder.read.log_paths import MEASURED
from data_builder.read.log_reader import LogReader
from data_builder.read.tasks import Row
from data_builder.read.workloads import write_rows
from wmsched.base.errors import DatasetError, LogError
from wmsched.features.hardware import hardware_features
from wmsched.features.vector_width import Registers, registers
from wmsched.schedules.grammar import SplitStep
from wmsched.schedules.steps import parse_record
from wmsched.schedules.types import Workload
from wmsched.search.tiles import divisors

PROPOSED = ".proposed"  # in --out: what is to be timed
DRAWS = 400  # of tiles, for each schedule
WIDTHS = (1, 1, 2, 2, 2, 4)  # registers across a tile, as often as they are drawn
SPLIT = 0.6  # of the tiles' other axes so many are longer than one, where they can be
SHARE = 0.3, 1.75  # of the registers that a tile may fill; 1 and more spill, and that is to be seen too
FITTING = 0.5, 1.0  # shares that are taken before others

Steps = list[list[Any]]


@dataclass(frozen=True, kw_only=True)
class VaryOptions:
    """What is varied.

    Attributes
    ----------
    each : int
        Variants of each task, at most.
    best : int
        Of each log's records, the fastest that are varied.
    seed : int
        Of the draws.
    """

    each: int = 9
    best: int = 3
    seed: int = 0


def vary(
    source: Path, out: Path, options: VaryOptions, timing: RemeasureOptions, watch: Watch
) -> dict[str, int]:
    """Propose variants and time them all, as `timing` says of the rest; the same call goes on.

    Returns
    -------
    dict
        As `remeasure.remeasure`; failed ones are recorded as such.

    Raises
    ------
    DatasetError, LogError, EnvironmentProblem
        As `propose` and `remeasure.remeasure` say; the logs of `out` are of other variants.
    """
    if out.resolve() == source.resolve():
        raise DatasetError(f"{out} holds the logs that are varied: choose another --out")
    propose(source, out / PROPOSED, options)
    return remeasure(out / PROPOSED, out, replace(timing, share=1.0, keep=False), watch)


def propose(source: Path, out: Path, options: VaryOptions) -> int:
    """Write logs of variants that are yet to be timed, in a folder as `collect` makes it; how many they are.

    Their times are those of what they were made of. The same source, options and seed make the same bytes.

    Raises
    ------
    DatasetError
        As `remeasure.logs_of`; or no log has a schedule of several levels of tiles.
    LogError
        A line of a log is no record.
    """
    kept: list[Row] = []
    count = 0
    for log, row in logs_of(source):
        lines = _variants(log, str(row["log"]), options)
        if lines:
            write_bytes(out / MEASURED / str(row["log"]), b"".join(line + b"\n" for line in lines))
            kept.append(row)
            count += len(lines)
    if not kept:
        raise DatasetError(
            f"no log in {source / MEASURED} has a timed schedule with tiles of several levels: there is "
            "nothing to vary"
        )
    write_rows(out / WORKLOADS, kept)
    return count


def _variants(log: Path, name: str, options: VaryOptions) -> list[bytes]:
    """Lines of the variants of a log, which goes by that name."""
    rng = random.Random(f"{options.seed} {name}")
    known: set[bytes] = set()
    timed: list[tuple[float, int, Any, Registers]] = []
    for place, line in enumerate(LogReader(str(log))):
        if line.problem:
            raise LogError(line.problem, place=line.place)
        record = parse_record(line.data, place=line.place)
        row = orjson.loads(line.data)
        known.add(orjson.dumps(row["i"][1][1]))
        seconds = record.measurement.seconds
        if seconds == seconds:
            core = registers(hardware_features(Workload(record.workload_key, record.target)))
            timed.append((seconds, place, row, core))
    found: list[bytes] = []
    for _, _, row, core in sorted(timed, key=lambda one: one[:2])[: options.best]:
        for steps in tiled_anew(row["i"][1][1], core, rng, most=math.ceil(options.each / 2)):
            text = orjson.dumps(steps)
            if text not in known:
                known.add(text)
                changed = copy.deepcopy(row)
                changed["i"][1][1] = steps
                found.append(orjson.dumps(changed))
    rng.shuffle(found)
    return found[: options.each]


def tiled_anew(steps: Steps, core: Registers, rng: random.Random, *, most: int) -> Iterator[Steps]:
    """The steps with other register tiles, each of another height and width.

    A tile is the innermost of three levels of the axes that one stage's result has, the last axis in vectors.

    Parameters
    ----------
    steps : list of list
        A record's, as JSON has them.
    core : Registers
        Of what the schedule is for: tiles are whole registers wide, and fill a `SHARE` of all.
    most : int
        Tiles at most; those that fit come first.
    """
    axes = _axes(steps)
    if len(axes) < 2:
        return
    *others, columns = axes
    splits = {axis: SplitStep(*steps[axis]) for axis in axes}
    extents = {axis: split.extent or 1 for axis, split in splits.items()}
    found: dict[tuple[int, int], dict[int, int]] = {}
    for _ in range(DRAWS):
        width = core.lanes * rng.choice(WIDTHS)
        inner = {columns: width}
        for axis in others:
            inner[axis] = rng.choice(divisors(extents[axis])) if rng.random() < SPLIT else 1
        height = math.prod(inner[axis] for axis in others)
        filled = height * width / core.lanes / core.number
        if extents[columns] % width == 0 and SHARE[0] <= filled <= SHARE[1]:
            found.setdefault((height, width), inner)

    def fits(tile: tuple[int, int]) -> bool:
        return FITTING[0] <= tile[0] * tile[1] / core.lanes / core.number <= FITTING[1]

    tiles = list(found)
    rng.shuffle(tiles)
    tiles.sort(key=fits, reverse=True)
    for tile in tiles[:most]:
        changed = copy.deepcopy(steps)
        for axis, length in found[tile].items():
            levels = [n or 1 for n in splits[axis].lengths]
            changed[axis] = [*splits[axis]._replace(lengths=lengths(extents[axis], levels, length))]
        yield changed


def _axes(steps: Steps) -> list[int]:
    """The places of the splits into three levels of the first stage that splits its reductions once."""
    found = [(place, SplitStep(*step)) for place, step in enumerate(steps) if step[0] == "SP"]
    stage = next((split.stage for _, split in found if len(split.lengths) == 1), None)
    tiled = [(place, split) for place, split in found if split.stage == stage and len(split.lengths) == 3]
    return [place for place, split in tiled if split.extent is not None and split.extent > 1]


def lengths(extent: int, levels: Sequence[int], inner: int) -> list[int]:
    """An axis's three levels with another innermost one; their product divides the extent, as `inner` must.

    The block of all three stays as long where it can, then the two inner levels together; else what is left
    of the axis is cut as near to the block as its divisors are.
    """
    outer, middle, last = levels
    block = outer * middle * last
    if middle * last % inner == 0:
        return [outer, middle * last // inner, inner]
    if block % inner == 0:
        return [block // inner, 1, inner]
    within = (d for d in (1, *divisors(extent // inner)) if d * inner <= max(block, inner))
    return [max(within), 1, inner]
