"""What is kept of a graph between building and timing: a folder of libraries, and a plan of what they are.

The plan is written last, whole or not at all: a folder without one is built anew. Needs no TVM.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from data_builder.graphs.encoding import Encoded, configurations, option_codes
from data_builder.graphs.sampling import Part, added
from wmsched.base.errors import DatasetError
from wmsched.base.files import atomic_open

__all__ = ["Job", "Plan", "Timing"]

PLAN, ARRAYS, INPUTS, REGIONS = "plan.json", "arrays.npz", "inputs.npz", "regions.so"


@dataclass(frozen=True)
class Plan:
    """Configurations of a graph, and what was built of them.

    Parameters
    ----------
    options : of each site, its options
    parts : list of Part
    chosen : configurations that were built and are right; the rules' first
    refused : reasons, of those that are not
    variants : of each variant of a region, its name in the regions' library, class, choices and the shapes
        that it reads
    """

    options: list[list[str]]
    parts: list[Part]
    chosen: list[tuple[int, ...]]
    refused: list[str]
    variants: list[tuple[str, str, tuple[int, ...], list[list[int]]]]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Rebuild from `to_json`, read from JSON."""
        parts = [
            Part(tuple(one["sites"]), one["key"], tuple(map(tuple, one["choices"])))
            for one in values["parts"]
        ]
        return cls(
            options=values["options"],
            parts=parts,
            chosen=[tuple(one) for one in values["chosen"]],
            refused=values["refused"],
            variants=[(name, key, tuple(chosen), shapes) for name, key, chosen, shapes in values["variants"]],
        )


@dataclass(frozen=True)
class Timing:
    """Seconds of one timing of a graph: of its configurations, and of the variants of its regions."""

    seconds: NDArray[np.float64]
    variants: NDArray[np.float64]


class Job:
    """The folder of a graph.

    Parameters
    ----------
    out : Path
        Folder of all graphs.
    name : str
    """

    def __init__(self, out: Path, name: str) -> None:
        self.out, self.name = out, name
        self.folder, self.file = out / ".work" / name, out / f"{name}.npz"

    @property
    def is_done(self) -> bool:
        """Whether the graph's file is there."""
        return self.file.is_file()

    @property
    def is_built(self) -> bool:
        """Whether all its libraries are there."""
        return (self.folder / PLAN).is_file()

    def exported(self, number: int) -> Path:
        """Return the place of a configuration's library."""
        return self.folder / f"configuration{number}.so"

    def begin(self) -> None:
        """Make an empty folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def write(self, plan: Plan, encoded: Encoded, inputs: list[NDArray[Any]]) -> None:
        """Write what a timing needs; it can begin then."""
        with atomic_open(self.folder / ARRAYS) as file:
            np.savez_compressed(file, **vars(encoded))
        with atomic_open(self.folder / INPUTS) as file:
            np.savez(file, *inputs)
        with atomic_open(self.folder / PLAN) as file:
            file.write(json.dumps(plan.to_json()).encode())

    def plan(self) -> Plan:
        """Read the plan."""
        path = self.folder / PLAN
        try:
            return Plan.from_json(json.loads(path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DatasetError(
                f"{path}: no readable plan ({error}); remove {self.folder}, and it is built again"
            ) from error

    def inputs(self) -> list[NDArray[Any]]:
        """Read the model's inputs, in order."""
        with np.load(self.folder / INPUTS) as file:
            return [file[name] for name in file.files]

    def timings(self) -> list[Timing]:
        """Read all timings."""
        found = []
        for path in sorted(self.folder.glob("timing*.npz")):
            with np.load(path) as file:
                found.append(Timing(file["seconds"], file["variants"]))
        return found

    def add(self, timing: Timing) -> None:
        """Write a further timing."""
        with atomic_open(self.folder / f"timing{len(self.timings())}.npz") as file:
            np.savez(file, seconds=timing.seconds, variants=timing.variants)

    def finish(self) -> int:
        """Write the graph's file, remove its folder, and return the number of its configurations.

        ``config_runtime`` is the mean of the timings. Besides TpuGraphs' keys there are: ``rules_index``, of
        today's rules; ``added_costs`` [c], the sum of the costs of a configuration's regions in nanoseconds,
        which an additive integer program minimises; ``config_runtime_timings`` [t, c], each timing by itself;
        ``site_options`` [k, o], the code of each option of a site, the rules' first, -1 beyond; and the costs
        of the regions: see `_regions`.
        """
        plan, timings = self.plan(), self.timings()
        seconds = np.array([one.seconds for one in timings])
        variants = np.mean([one.variants for one in timings], axis=0) if plan.variants else np.zeros(0)
        costs: dict[str, dict[tuple[int, ...], float]] = {}
        for (_, key, chosen, _), cost in zip(plan.variants, variants, strict=True):
            costs.setdefault(key, {})[chosen] = float(cost)
        with np.load(self.folder / ARRAYS) as file:
            arrays = {name: file[name] for name in file.files}
        arrays |= {
            "node_config_feat": configurations(plan.options, plan.chosen),
            "node_splits": np.zeros(0, np.int64),
            "config_runtime": _nanoseconds(seconds.mean(0)),
            "config_runtime_timings": _nanoseconds(seconds),
            "rules_index": np.int64(0),
            "site_options": option_codes(plan.options),
            "added_costs": _nanoseconds(np.array([added(plan.parts, one, costs) for one in plan.chosen])),
            **_regions(plan, costs),
        }
        with atomic_open(self.file) as file:
            np.savez_compressed(file, **arrays)
        shutil.rmtree(self.folder, ignore_errors=True)
        return len(plan.chosen)


def _nanoseconds(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(seconds * 1e9).astype(np.int64)


def _regions(plan: Plan, costs: dict[str, dict[tuple[int, ...], float]]) -> dict[str, NDArray[np.int64]]:
    """Return the costs of the regions' options as two tables.

    ``region_sites`` [r, 1 + s]: class of each region with costs, and its sites, -1 beyond.
    ``region_costs`` [o, 2 + s]: class, nanoseconds, and the number of the option for each of its sites.
    """
    classes = {key: number for number, key in enumerate(costs)}
    most = max((len(part.sites) for part in plan.parts), default=1)
    sites = [
        [classes[part.key], *part.sites, *[-1] * (most - len(part.sites))]
        for part in plan.parts
        if part.key in classes
    ]
    rows = [
        [classes[key], round(cost * 1e9), *chosen, *[-1] * (most - len(chosen))]
        for key, options in costs.items()
        for chosen, cost in options.items()
    ]
    return {
        "region_sites": np.array(sites, np.int64).reshape(-1, 1 + most),
        "region_costs": np.array(rows, np.int64).reshape(-1, 2 + most),
    }
