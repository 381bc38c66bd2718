"""Choice of a graph for a model: today's rules beside the best few of an integer program, in the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wmsched.base.cores import unbound
from wmsched.base.errors import EnvironmentProblem, WmschedError
from wmsched.relax.choices.configuration import Configuration, Site, applied, rules, sites
from wmsched.relax.choices.core import Core
from wmsched.relax.choices.regions import Region, regions, variants
from wmsched.tune import folder as tuned_folder
from wmsched.tune.graph.costs import compiled, measured_costs
from wmsched.tune.graph.program import Choices, Costs, best_choices
from wmsched.tune.latency import deviation, library_call, time_interleaved
from wmsched.tune.prepare import algorithms_of, configurable, functions_of_graph
from wmsched.tune.run import Run
from wmsched.tune.schedules import Schedules

__all__ = ["choose_graph", "settled_graph"]

RULES = "rules"
WORTH = 0.99  # of the rules' seconds in the model, which a configuration must be below
GRAPH = "graph"  # of model.json: one number for each site


def settled_graph(run: Run) -> tuple[int, ...]:
    """Return the options of a model's graph: those of a folder with records, else chosen as asked."""
    held = tuned_folder.about_of(run.options.out)
    if held is None:
        return choose_graph(run, run.options.graph_choices)
    if run.options.graph_choices > 1:
        run.tell(f"{run.options.out} has records: its graph stays; another --out is tuned with another graph")
    return tuple(int(number) for number in held.get(GRAPH, ()))


def choose_graph(run: Run, count: int) -> tuple[int, ...]:
    """Return the options of a model's graph that are fastest in the model; () for today's rules.

    Parameters
    ----------
    count : int
        Configurations that are built and timed, today's rules among them.
    """
    if count < 2 or not run.target.is_cpu or not run.settings["channels_last"]:
        return ()
    try:
        module = configurable(run.model, run.target.tvm, run.settings)
        found = sites(
            module, algorithms=algorithms_of(run.settings, run.target.tvm), core=Core.of(run.target.tvm)
        )
    except WmschedError as error:
        run.tell(f"{run.model.name}: {error}")
        return ()
    parts = regions(module, found)
    if not parts:
        run.tell(f"{run.model.name}: nothing can be chosen in its graph")
        return ()
    try:
        with tuned_folder.scratch(run.options.out) as folder:
            return _Choice(run, module, found, parts, folder).best(count)
    except EnvironmentProblem:
        raise
    except WmschedError as error:  # a build of the regions that fails: the rules stay
        run.tell(f"{run.model.name}: its graph stays as the rules have it: {error}")
        return ()


class _Choice:
    """One choice: what can be chosen, its costs, and builds of the model."""

    def __init__(
        self, run: Run, module: Any, found: Sequence[Site], parts: Sequence[Region], folder: Path
    ) -> None:
        self.run, self.module, self.found, self.parts, self.folder = run, module, found, parts, folder
        self.schedules = Schedules()
        self.calls: dict[str, Callable[[], Any]] = {}
        self.expected: Any = None

    def best(self, count: int) -> tuple[int, ...]:
        """Return the fastest configuration's numbers."""
        costs = self._costs()
        wanted = [self._configuration(one) for one in best_choices(costs, count - 1)]
        named = {RULES: rules(self.found)} | {f"graph{k}": one for k, one in enumerate(wanted)}
        for name, configuration in list(named.items()):
            why = self._add(name, configuration)
            if why and name == RULES:
                raise WmschedError(why)
            if why:
                self.run.tell(f"{self.run.model.name}: a graph is refused: {why}")
            if self.run.interrupted():
                raise KeyboardInterrupt
        seconds = time_interleaved(self.calls)
        first = min(seconds, key=lambda name: seconds[name])
        for name, spent in seconds.items():
            self.run.tell(f"{name}: {1e3 * spent:.3f} ms{self._told(named[name])}")
        if first == RULES or seconds[first] > WORTH * seconds[RULES]:
            return ()
        return named[first].choices

    def _costs(self) -> dict[str, Costs]:
        module, made = variants(self.parts, self.found, Core.of(self.run.target.tvm))
        self.run.tell(
            f"{self.run.model.name}: {len(self.found)} choices in its graph; timing {len(made)} variants of "
            f"{len({one.region for one in made})} regions"
        )
        if not made:
            return {}
        prepared = functions_of_graph(module, self.run.target.tvm, self.run.settings)
        seconds = measured_costs(self.run, self.schedules, prepared, made, self.folder)
        weights = Counter(part.key for part in self.parts)
        return {key: Costs(weights[key], times) for key, times in seconds.items()}

    def _configuration(self, choices: dict[str, Choices]) -> Configuration:
        numbers = list(rules(self.found).choices)
        for part in self.parts:
            for site, option in zip(part.sites, choices.get(part.key, ()), strict=False):
                numbers[site] = option
        return Configuration(tuple(numbers))

    def _add(self, name: str, configuration: Configuration) -> str:
        """Build the model with a configuration; why it is refused, "" where it is not."""
        run = self.run
        try:
            changed = applied(self.module, self.found, configuration, Core.of(run.target.tvm))
            prepared = functions_of_graph(changed, run.target.tvm, run.settings)
            path = self.folder / f"{name}.so"
            compiled(run, self.schedules, prepared).link(path)
            call = library_call(path, run.target.tvm, list(run.model.inputs.values()))
            with unbound():
                outputs = call()
        except EnvironmentProblem:
            raise
        except Exception as error:  # of TVM's build or of the built program; there is no common base
            return str(error).strip()[-300:]
        if self.expected is None:
            self.expected = outputs
        off, allowed = deviation(outputs, self.expected, run.model)
        if off > allowed:
            return f"its outputs are off by {off:.2g} (allowed: {allowed:g})"
        self.calls[name] = call
        return ""

    def _told(self, configuration: Configuration) -> str:
        counts = Counter(
            site.options[k] for site, k in zip(self.found, configuration.choices, strict=True) if k
        )
        return "".join(f", {number} {option}" for option, number in sorted(counts.items()))
