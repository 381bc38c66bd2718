"""``wmsched compile MODEL``: a whole model in seconds, with schedules that are constructed, not measured."""

from __future__ import annotations

import contextlib
import functools
import importlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from wmsched.base.console import say
from wmsched.base.errors import WmschedError
from wmsched.base.interrupt import Interrupt
from wmsched.construct.named import choice_of, traversal_of
from wmsched.relax.importers.load import load
from wmsched.toolchain.resolve import meta_schedule_tvm
from wmsched.toolchain.target import Target
from wmsched.tune import folder as tuned_folder
from wmsched.tune.options import ModelOptions
from wmsched.tune.run import Run

if TYPE_CHECKING:  # they import TVM
    from wmsched.metaschedule.construct import Constructed
    from wmsched.tune.finish import Tuned
    from wmsched.tune.schedules import ByRule, Compiled, Schedules


def construct_model(options: ModelOptions, *, console: Console | None = None) -> Tuned:
    """Compile a model with constructed schedules, and compare it with PyTorch or onnxruntime.

    A schedule that the folder's database has measured is taken before a constructed one. With `finalists`
    above one, so many constructed schedules of each function are timed in the model. For a device that this
    machine lacks the library is written as it is, neither compared nor timed.

    Returns
    -------
    Tuned
        As of a search, with no trials.

    Raises
    ------
    UnknownName, EnvironmentProblem
        As of `tune_model`; or no traversal or choice has the name of the options'.
    WmschedError
        The model cannot be imported or built, it computes something else than the reference, or the folder is
        another model's.
    """
    console = console or Console()
    tell = functools.partial(say, console)
    traversal_of(options.traversal), choice_of(options.choice)  # a wrong name is told at once
    importlib.import_module("xgboost")  # before TVM, as everywhere here
    meta_schedule_tvm()
    from wmsched.relax.passes.objects import Objects
    from wmsched.tune.graph.choose import GRAPH, settled_graph
    from wmsched.tune.prepare import in_half
    from wmsched.tune.tune_model import checked_target, settle

    target = checked_target(options)
    model = in_half(load(options.name, options.shapes, options.states), options.half, target)
    settings, (about,), kept = settle(options, target, [model])
    with contextlib.ExitStack() as scopes:
        interrupt = scopes.enter_context(Interrupt())
        notes = scopes.enter_context(tuned_folder.opened(options.out, about, resume=True))
        for note in [*kept, *notes]:
            tell(note)
        folder = scopes.enter_context(tuned_folder.scratch(options.out))
        run = Run(
            options=options,
            model=model,
            target=Target.of(target),
            settings=settings,
            tell=tell,
            objects=Objects(folder),
            interrupted=lambda: interrupt.pressed,
        )
        graph = settled_graph(run)
        found, settings, graph = Construction(run, graph).build()
        tuned_folder.describe(options.out, about | settings | {"constructed": True, GRAPH: list(graph)})
    return found


class Construction:
    """One construction: the model, prepared one way after the other until its library is right.

    Parameters
    ----------
    run : Run
    graph : tuple of int
        Options of its graph.
    schedules : Schedules, optional
        What is constructed already.
    """

    def __init__(
        self,
        run: Run,
        graph: tuple[int, ...] = (),
        *,
        schedules: Schedules | None = None,
    ) -> None:
        from wmsched.tune.schedules import Schedules

        self.run, self.graph, self.model, self.tell = run, graph, run.model, run.tell
        self.schedules = schedules or Schedules()
        self.spent = 0.0  # seconds for schedules that were constructed before
        self._prepared: Any = None  # as asked, until it is compiled
        self._first: _Attempt | None = None  # as asked, until it is built

    def tasks(self) -> list[Any]:
        """Return the model's functions as it is asked for."""
        self._prepared = self._functions(dict(self.run.settings), self.graph)
        return list(self._prepared[1])

    def compile(self, executor: Executor, library: Path) -> None:
        """Compile the model as it is asked for, and begin to write its library; `build` goes on with it."""
        self._first = self._compile(dict(self.run.settings), self.graph)
        self._first.compiled.link_ahead(executor, library)

    def _functions(
        self, settings: dict[str, bool], graph: tuple[int, ...]
    ) -> tuple[Any, list[Any], Callable[[Sequence[Any]], Any]]:
        from wmsched.metaschedule.tasks import tasks_if_any
        from wmsched.tune.prepare import wide_functions_of

        target = self.run.target.tvm
        prepared, narrower = wide_functions_of(self.model, target, settings, graph)
        return prepared, tasks_if_any(prepared, target), narrower

    def build(self) -> tuple[Tuned, dict[str, bool], tuple[int, ...]]:
        """The library, and the settings and the options of its graph that it took."""
        reference, whose = self.model.reference()
        if reference is not None and self.run.options.allow_different:
            from wmsched.tune.prepare import build_untuned

            with tuned_folder.scratch(self.run.options.out) as folder:  # a warning says where they differ
                target = self.run.target.tvm
                reference = build_untuned(self.model, target, folder, allow_different=True).outputs
            whose = "TVM's build without schedules"
        if reference is None:
            self.tell(f"{self.model.name}: nothing to compare its outputs with: {self._why_alone()}")
        from wmsched.tune.prepare import BF16, IN_BFLOAT16, OFF

        why, first = "", ""
        for settings, graph in self._ways():
            found, why = self._try(settings, graph, reference)
            if found is not None:
                return found, settings, graph
            if settings.get(BF16, False) and OFF in why:
                raise WmschedError(f"{self.model.name}: {why}{IN_BFLOAT16}")
            self.tell(f"{self.model.name}: {why}; trying without what was changed of it")
        if OFF in why:
            from wmsched.tune.prepare import parting_of

            first = parting_of(self.model) + "; --allow-different takes it as TVM computes it"
        raise WmschedError(
            f"{self.model.name}: {why or 'it cannot be built'}, whatever is left out (compared with "
            f"{whose or 'nothing'}){first}"
        )

    def _why_alone(self) -> str:
        return self.model.why_no_peer or self.model.why_not_eager or "PyTorch cannot run it here"

    def _ways(self) -> list[tuple[dict[str, bool], tuple[int, ...]]]:
        """Settings and graphs to try in turn: as asked, by rule, channels as they were, nothing changed."""
        from wmsched.relax.choices.configuration import ALGORITHMS

        plain = dict.fromkeys(
            ("vector_math", "channels_last", "wide_fusion", "eight_bits", *ALGORITHMS, "pack_weights"), False
        )
        asked = dict(self.run.settings)
        ways = [asked, *(asked | {one: False} for one in (*ALGORITHMS, "eight_bits", "channels_last"))]
        ways.append(asked | plain)
        by_rule: list[tuple[dict[str, bool], tuple[int, ...]]] = [
            (way, ()) for k, way in enumerate(ways) if way not in ways[:k]
        ]
        return [(asked, self.graph), *by_rule] if self.graph else by_rule

    def _compile(self, settings: dict[str, bool], graph: tuple[int, ...]) -> _Attempt:
        from wmsched.metaschedule.tasks import tasks_if_any
        from wmsched.tune.schedules import ByRule, compilable, measured_in

        began = time.monotonic()
        run = replace(self.run, settings=settings)
        prepared, tasks, narrower = self._prepared or self._functions(settings, graph)
        self._prepared = None
        self.tell(f"{self.model.name}: {len(tasks)} functions")
        chosen, by_rule = self.schedules.of(run, tasks), ByRule()
        if (plain := narrower([one.task for one in chosen if not one.records])) is not None:
            prepared, tasks = plain, tasks_if_any(plain, run.target.tvm)
            self.tell(f"{self.model.name}: {len(tasks)} functions, fused as TVM has it")
            chosen = self.schedules.of(run, tasks)
        del narrower  # it holds the model's weights
        compiled = compilable(run, prepared, chosen, measured_in(run.records or run.options.out), by_rule)
        for one in chosen:
            if not one.records:
                self.tell(f"{one.task.name}: scheduled by rule: {one.why}")
        seconds = self.spent + time.monotonic() - began
        return _Attempt(run, prepared, chosen, compiled, by_rule, seconds)

    def _try(
        self, settings: dict[str, bool], graph: tuple[int, ...], reference: Any
    ) -> tuple[Tuned | None, str]:
        from wmsched.toolchain.targets import has_device
        from wmsched.tune.finish import BY_RULE, CONSTRUCTED, finish, written
        from wmsched.tune.prepare import Untuned

        made, self._first = self._first or self._compile(settings, graph), None
        tasks = [one.task for one in made.chosen]
        schedules = {one.task.name: CONSTRUCTED if one.records else BY_RULE for one in made.chosen}
        rest: dict[str, Any] = {"constructed": made.seconds, "schedules": schedules}
        if not has_device(made.run.target.tvm):
            return written(made.run, made.prepared, tasks, made.compiled.link, **rest), ""
        found = finish(
            made.run,
            made.prepared,
            Untuned(None, reference),
            tasks,
            made.compiled.database,
            link=made.compiled.link,
            **rest,
            by_rule=made.by_rule,
            quick=True,  # what it takes is told, and nothing chosen by it
        )
        return (None, found.why) if found.why else (found, "")


@dataclass(frozen=True)
class _Attempt:
    """A model compiled with settings, before its library is loaded."""

    run: Run
    prepared: Any
    chosen: Sequence[Constructed]
    compiled: Compiled
    by_rule: ByRule
    seconds: float
