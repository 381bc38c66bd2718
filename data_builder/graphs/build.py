"""Libraries of a graph's configurations, with constructed schedules; each function is compiled once."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from data_builder.graphs.encoding import encode, nodes_of
from data_builder.graphs.job import REGIONS, Job, Plan
from data_builder.graphs.networks import network
from data_builder.graphs.sampling import Part, sampled
from wmsched.base.cores import unbound
from wmsched.base.errors import EnvironmentProblem, WmschedError
from wmsched.relax.choices.configuration import Configuration, Site, applied, sites
from wmsched.relax.choices.core import Core
from wmsched.relax.choices.regions import Region, Variant, regions, variants
from wmsched.relax.importers.load import load
from wmsched.relax.passes.objects import Objects
from wmsched.toolchain.target import Target
from wmsched.tune.graph.costs import compiled, read_shapes, timed_costs
from wmsched.tune.latency import deviation, library_call
from wmsched.tune.options import ModelOptions
from wmsched.tune.prepare import SETTINGS, algorithms_of, configurable, functions_of_graph
from wmsched.tune.run import Run
from wmsched.tune.schedules import Schedules

__all__ = ["build", "run_of"]

logger = logging.getLogger("wmsched")
WRONG_BEFORE_GIVEN_UP = 8  # refused configurations of a graph, while none is right


def run_of(name: str, folder: Path, target: Any, model: torch.nn.Module, data: torch.Tensor) -> Run:
    """Return the run of a graph, in whose folder its program and compiled functions are kept."""
    with torch.inference_mode():
        torch.export.save(torch.export.export(model, (data,)), folder / f"{name}.pt2")
    objects = folder / "objects"
    objects.mkdir()
    return Run(
        options=ModelOptions(name=name, out=folder, seed=1),
        model=load(str(folder / f"{name}.pt2")),
        target=Target.of(target),
        settings=dict.fromkeys(SETTINGS, True),
        tell=logger.info,
        objects=Objects(objects),
    )


def build(
    job: Job,
    target: Any,
    count: int,
    *,
    seed: int = 0,
    made: tuple[torch.nn.Module, torch.Tensor] | None = None,
    on_configuration: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Build a graph's configurations, and write what timing them needs.

    A configuration is refused where TVM cannot build it, or where its outputs are not the model's.

    Parameters
    ----------
    count : int
        Configurations, those that are refused included.
    made : (module, input), optional
        In place of the network of the graph's name.
    on_configuration : callable (str)
        Gets "ok" or "refused" after each.

    Raises
    ------
    WmschedError
        Nothing can be chosen in the graph, or the rules' configuration is refused.
    """
    job.begin()
    run = run_of(job.name, job.folder, target, *(made or network(job.name)))
    core = Core.of(target)
    module = configurable(run.model, target, run.settings)
    found = sites(module, algorithms=algorithms_of(run.settings, target), core=core)
    if not found:
        raise WmschedError(f"{job.name}: nothing can be chosen in this graph; leave it out")
    schedules, parts = Schedules(), regions(module, found)
    changed, each = variants(parts, found, core)
    shapes: dict[str, Any] = {}
    seconds: dict[str, dict[tuple[int, ...], float]] = {}
    if each:
        prepared = functions_of_graph(changed, target, run.settings)
        compiled(run, schedules, prepared).link(job.folder / REGIONS)
        shapes = read_shapes(prepared, each)
        seconds = timed_costs(job.folder / REGIONS, target, shapes, each)
    choices = _parts(parts, found, each)
    builder = _Builder(job, run, module, found, schedules)
    for configuration in sampled(choices, len(found), seconds, count, seed):
        on_configuration("refused" if (why := builder.add(configuration)) else "ok")
        if why and (
            not builder.chosen or len(builder.refused) >= WRONG_BEFORE_GIVEN_UP > len(builder.chosen)
        ):
            raise WmschedError(f"{job.name}: {why}; leave this graph out")
    nodes, places = nodes_of(module)
    plan = Plan(
        options=[list(site.options) for site in found],
        parts=choices,
        chosen=builder.chosen,
        refused=builder.refused,
        variants=[(one.name, one.region, one.choices, [list(s) for s in shapes[one.name]]) for one in each],
    )
    inputs = [data.numpy() for data in run.model.inputs.values()]
    job.write(plan, encode(nodes, [places[site.place] for site in found]), inputs)
    return plan


def _parts(parts: list[Region], found: list[Site], each: list[Variant]) -> list[Part]:
    """Return what is chosen together: regions with their measured choices, and each site that is in none."""
    measured: dict[str, list[tuple[int, ...]]] = {}
    for one in each:
        measured.setdefault(one.region, []).append(one.choices)
    result, taken = [], set[int]()
    for part in parts:
        choices = sorted(measured.get(part.key, [])) or list(
            itertools.product(*(range(len(found[site].options)) for site in part.sites))
        )
        result.append(Part(part.sites, part.key, tuple(choices)))
        taken |= set(part.sites)
    for number, site in enumerate(found):
        if number not in taken:
            result.append(Part((number,), "", tuple((k,) for k in range(len(site.options)))))
    return result


class _Builder:
    """Builds of one graph, each compared with the model's own outputs."""

    def __init__(self, job: Job, run: Run, module: Any, found: list[Site], schedules: Schedules) -> None:
        self.job, self.run, self.module, self.found, self.schedules = job, run, module, found, schedules
        self.chosen: list[tuple[int, ...]] = []
        self.refused: list[str] = []
        self.expected, _ = run.model.reference()

    def add(self, configuration: tuple[int, ...]) -> str:
        """Build a configuration; why it is refused, "" where it is not."""
        why = self._built(configuration)
        if why:
            told = ", ".join(site.options[k] for site, k in zip(self.found, configuration, strict=True) if k)
            self.refused.append(f"{told}: {why}")
        else:
            self.chosen.append(configuration)
        return why

    def _built(self, configuration: tuple[int, ...]) -> str:
        run, path = self.run, self.job.exported(len(self.chosen))
        try:
            changed = applied(self.module, self.found, Configuration(configuration), Core.of(run.target.tvm))
            prepared = functions_of_graph(changed, run.target.tvm, run.settings)
            compiled(run, self.schedules, prepared).link(path)
            # a process reads the first library of a place alone, and a refused one leaves its place
            fresh = path.with_name(f"checked{len(self.chosen) + len(self.refused)}.so")
            path.rename(fresh)
            call = library_call(fresh, run.target.tvm, list(run.model.inputs.values()))
            with unbound():
                outputs = call()
            fresh.rename(path)
        except EnvironmentProblem:
            raise
        except Exception as error:  # of TVM's build or of the built program; there is no common base
            return str(error).strip()[-300:]
        if self.expected is None:
            self.expected = outputs
        off, allowed = deviation(outputs, self.expected, replace(run.model))
        return "" if off <= allowed else f"its outputs are off by {off:.2g} (allowed: {allowed:g})"
