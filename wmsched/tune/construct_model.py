"""``wmsched compile MODEL``: a whole model in seconds, with schedules that are constructed, not measured."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from wmsched.base.console import say
from wmsched.base.errors import WmschedError
from wmsched.base.interrupt import Interrupt
from wmsched.relax.importers.load import load
from wmsched.relax.importers.model import Model
from wmsched.toolchain.resolve import check_linker, is_cpu, meta_schedule_tvm
from wmsched.toolchain.targets import meta_target
from wmsched.tune import folder as tuned_folder
from wmsched.tune.options import ModelOptions

if TYPE_CHECKING:  # they import TVM
    from wmsched.metaschedule.construct import Constructed
    from wmsched.relax.passes.objects import Objects
    from wmsched.tune.finish import Tuned

MAX_ATTEMPTS = 50  # builds of a model whose functions fail to compile one after the other


def construct_model(options: ModelOptions, *, console: Console | None = None) -> Tuned:
    """Compile a model with constructed schedules, and compare it with PyTorch or onnxruntime.

    A schedule that the folder's database has measured is taken before a constructed one. With `finalists`
    above one, so many constructed schedules of each function are timed in the model.

    Returns
    -------
    Tuned
        As of a search, with no trials.

    Raises
    ------
    UnknownName, EnvironmentProblem
        As of `tune_model`.
    WmschedError
        The model cannot be imported or built, it computes something else than the reference, or the folder is
        another model's.
    """
    console = console or Console()
    tell = functools.partial(say, console)
    importlib.import_module("xgboost")  # before TVM, as everywhere here
    tvm = meta_schedule_tvm()
    from tvm.support import cc

    from wmsched.relax.passes.objects import Objects
    from wmsched.tune.prepare import SETTINGS
    from wmsched.tune.tune_model import describe_run, run_on

    target = meta_target(options.target)
    check_linker(cc)
    model = load(options.name, options.shapes)
    settings, kept = tuned_folder.settled(
        options.out, {name: getattr(options, name) and is_cpu(target) for name in SETTINGS}
    )
    about = describe_run(model, target, tvm.__version__)
    if is_cpu(target):  # before TVM runs anything
        about["threads"], said = run_on(options.out)
        kept += said
    with contextlib.ExitStack() as scopes:
        interrupt = scopes.enter_context(Interrupt())
        notes = scopes.enter_context(tuned_folder.opened(options.out, about, resume=True))
        for note in [*kept, *notes]:
            tell(note)
        folder = scopes.enter_context(tuned_folder.scratch(options.out))
        run = _Run(options, model, target, settings, Objects(folder), tell, lambda: interrupt.pressed)
        found, settings = run.build()
        tuned_folder.describe(options.out, about | settings | {"constructed": True})
    return found


class _Run:
    """One construction: the model, prepared one way after the other until its library is right."""

    def __init__(
        self,
        options: ModelOptions,
        model: Model,
        target: Any,
        settings: dict[str, bool],
        objects: Objects,
        tell: Callable[[str], None],
        interrupted: Callable[[], bool],
    ) -> None:
        self.options, self.model, self.target, self.settings = options, model, target, settings
        self.objects, self.tell, self.interrupted = objects, tell, interrupted
        self.ruled: dict[str, str] = {}  # functions that a rule scheduled, and the rule

    def build(self) -> tuple[Tuned, dict[str, bool]]:
        """The library, and the settings it took."""
        reference, whose = self.model.reference()
        if reference is None:
            self.tell(f"{self.model.name}: nothing to compare its outputs with: {self._why_alone()}")
        why = ""
        for settings in self._ways():
            found, why = self._try(settings, reference)
            if found is not None:
                return found, settings
            self.tell(f"{self.model.name}: {why}; trying without what was changed of it")
        raise WmschedError(
            f"{self.model.name}: {why or 'it cannot be built'}, whatever is left out (compared with "
            f"{whose or 'nothing'}); `wmsched tune` says whether TVM itself computes something else"
        )

    def _why_alone(self) -> str:
        return self.model.why_no_peer or self.model.why_not_eager or "PyTorch cannot run it here"

    def _ways(self) -> list[dict[str, bool]]:
        """Settings to try in turn: as asked, channels where they were, and nothing changed at all."""
        plain = {name: False for name in ("vector_math", "channels_last", "wide_fusion", "pack_weights")}
        ways = [self.settings, self.settings | {"channels_last": False}, self.settings | plain]
        return [way for k, way in enumerate(ways) if way not in ways[:k]]

    def _try(self, settings: dict[str, bool], reference: Any) -> tuple[Tuned | None, str]:
        from wmsched.metaschedule import tasks as task_list
        from wmsched.tune.finish import BY_RULE, CONSTRUCTED, finish
        from wmsched.tune.prepare import Untuned, functions_of

        began = time.monotonic()
        prepared = functions_of(self.model, self.target, settings)
        try:
            tasks = task_list.tasks(prepared, self.target)
        except WmschedError:  # views alone, or shapes that are open: there is nothing to schedule
            tasks = []
        chosen = self._construct(tasks)
        database = self._surviving(prepared, chosen, settings)
        for one in chosen:
            if not one.candidates:
                self.tell(f"{one.task.name}: scheduled by rule: {one.why}")
        found = finish(
            self.options.out,
            self.model,
            prepared,
            Untuned(None, reference),
            self.target,
            tasks,
            database,
            self.tell,
            interrupted=self.interrupted,
            vector_math=settings["vector_math"],
            finalists=self.options.finalists,
            objects=self.objects,
            constructed=time.monotonic() - began,
            schedules={one.task.name: CONSTRUCTED if one.candidates else BY_RULE for one in chosen},
            by_rule=self._note_rule,
        )
        return (None, found.why) if found.why else (found, "")

    def _construct(self, tasks: list[Any]) -> list[Constructed]:
        from wmsched.metaschedule.construct import construct
        from wmsched.metaschedule.cost_model import WorldModelCostModel
        from wmsched.metaschedule.defaults import default_cost_model
        from wmsched.metaschedule.intrinsics import import_intrinsics

        if not tasks:
            return []
        import_intrinsics(self.target)
        name = self.options.cost_model or default_cost_model(str(self.target.kind.name), self.tell)
        self.tell(f"{self.model.name}: {len(tasks)} functions, schedules by {name}")
        count = max(self.options.finalists, 2)  # a second where the first does not compile
        model = WorldModelCostModel(name, diversity=self.options.diversity, round_size=count)
        seed = self.options.seed or 1
        return construct(tasks, self.target, model, count=count, seed=seed, interrupted=self.interrupted)

    def _surviving(self, prepared: Any, chosen: list[Constructed], settings: Mapping[str, bool]) -> Any:
        """Database of the schedules that compile; each failure is attributed to its function."""
        import tvm
        from tvm.s_tir.meta_schedule.database import TuningRecord

        from wmsched.metaschedule.construct import database_of, drop_failed
        from wmsched.relax.passes import pipeline
        from wmsched.relax.passes.objects import FunctionFailed
        from wmsched.tune.in_model_selection import database_of as stored
        from wmsched.tune.in_model_selection import normalized_functions

        functions = normalized_functions(prepared)
        measured = stored(self.options.out) if _has_records(self.options.out) else None
        for _ in range(MAX_ATTEMPTS):
            database = database_of(chosen, self.target)
            for record in [] if measured is None else measured.get_all_tuning_records():
                workload = database.commit_workload(record.workload.mod)
                entry = TuningRecord(record.trace, workload, record.run_secs, record.target, record.args_info)
                database.commit_tuning_record(entry)
            try:
                pipeline.compile_module(
                    prepared,
                    self.target,
                    database,
                    vector_math=settings["vector_math"],
                    objects=self.objects if is_cpu(self.target) else None,
                    by_rule=self._note_rule,
                )
            except FunctionFailed as failed:
                if drop_failed(chosen, functions, failed) is None:
                    raise
                self.tell(f"{failed.function}: {str(failed.__cause__)[-160:]}; the next schedule is taken")
            except tvm.error.TVMError as error:
                raise WmschedError(f"{self.model.name}: {str(error).strip()[-300:]}") from error
            else:
                return database
        raise WmschedError(f"{self.model.name}: {MAX_ATTEMPTS} builds failed, each at another function")

    def _note_rule(self, function: str, rule: str) -> None:
        self.ruled[function] = rule


def _has_records(folder: Path) -> bool:
    from wmsched.schedules import database

    return os.path.exists(folder / database.RECORDS)
