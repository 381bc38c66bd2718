"""Builds of a model: untuned, with each function's fastest schedule, and with the in-model selection."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tvm.s_tir.meta_schedule.database import MemoryDatabase

from wmsched.base.cores import unbound
from wmsched.base.errors import EnvironmentProblem
from wmsched.relax.importers.model import Model
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.objects import Objects
from wmsched.tune.in_model_selection import Finalists, choose, room, write
from wmsched.tune.latency import AT_MOST, Known, deviation, library_call, loaded
from wmsched.tune.prepare import OFF, Untuned
from wmsched.tune.rpc.one_device import OneDevice

logger = logging.getLogger("wmsched")

UNTUNED, ALONE, CHOSEN, GRAPH = "untuned", "alone", "chosen", "graph"


class Builds:
    """Libraries of one model in a folder; the untuned one says what the others must compute.

    Parameters
    ----------
    folder : Path
        A fresh one: of two libraries of the same path a process reads the first alone.
    untuned : Untuned
        The build without schedules, or outputs alone, which the others must compute; neither: no comparison.
    prepared : tvm.IRModule
    target : tvm.target.Target
    model : Model
    vector_math : bool
        Of builds with schedules.
    objects : Objects, optional
        Compiled functions, for all builds of the tuning.
    interrupted : callable ()
        Whether the user wants to leave; KeyboardInterrupt is raised then.
    by_rule : callable (function, rule), optional
        As for `compile_module`.
    device : OneDevice, optional
        Times the builds in place of this machine, which still runs each once for its outputs.
    bf16 : bool
        Whether the prepared module's products are in bfloat16, which the untuned build's are not.
    allow_different : bool
        Whether a warning is enough where they change the outputs by more than is allowed.
    """

    def __init__(
        self,
        folder: Path,
        untuned: Untuned,
        prepared: Any,
        target: Any,
        model: Model,
        *,
        vector_math: bool = False,
        objects: Objects | None = None,
        interrupted: Callable[[], bool] = lambda: False,
        by_rule: Callable[[str, str], bool] | None = None,
        device: OneDevice | None = None,
        bf16: bool = False,
        allow_different: bool = False,
    ) -> None:
        self.folder, self.prepared, self.target, self.model = folder, prepared, target, model
        self.inputs = list(model.inputs.values())
        self.vector_math, self.objects, self.interrupted = vector_math, objects, interrupted
        self.calls: dict[str, Callable[[], Any]] = {}
        self.outputs: dict[str, Any] = {}
        self.bf16, self.allow_different = bf16, allow_different
        self.by_rule, self.expected, self.device = by_rule, untuned.outputs, device
        if untuned.library is not None:
            shutil.copyfile(untuned.library, self.path(UNTUNED))
            if untuned.seconds > AT_MOST and device is None:  # plain loops of a transformer take a minute
                self.outputs[UNTUNED], self.calls[UNTUNED] = untuned.outputs, Known(untuned.seconds)
            else:
                self._load(UNTUNED)
                self.expected = self.outputs[UNTUNED]

    def path(self, name: str) -> Path:
        """Of a build's library."""
        return self.folder / f"{name}.so"

    def add(
        self,
        name: str,
        schedules: Any,
        link: Callable[[Path], None] | None = None,
        *,
        cuda_graph: bool = False,
    ) -> str:
        """Make the build with a database's schedules; why it is none to keep, "" where it is one.

        Parameters
        ----------
        schedules : Database
        cuda_graph : bool
            As for `compile_module`.
        link : callable (path), optional
            Writes the library of these schedules, where the model is compiled with them already.

        Raises
        ------
        EnvironmentProblem
            The disk is full or the linker fails.
        """
        try:
            if link is None:
                self._build(schedules, self.path(name), cuda_graph=cuda_graph)
            else:
                link(self.path(name))
            self._load(name)
            why = self._difference(name)
        except EnvironmentProblem:
            raise
        except Exception as error:  # of TVM's build or of the built program; there is no common base
            if self.interrupted():
                raise KeyboardInterrupt from error
            why = f"build failed: {str(error).strip()[-300:]}"
        if why:
            self.calls.pop(name, None)
        return why

    def add_chosen(self, programs: Sequence[Finalists], tell: Callable[[str], None]) -> None:
        """Time each function's best schedules in the model, and add the build with the fastest there.

        There is none where they are those that are fastest by themselves, the build `ALONE`.
        """
        most = max(len(one.records) for one in programs)
        if most < 2:
            return
        if not room(self.prepared):
            tell("there is no memory for several builds: schedules are not timed in the model")
            return
        where = "" if self.device is None else ", on one device"
        tell(f"timing the best {most} schedules of each function in the model{where}")
        if self.device is not None:
            self.device.programs = [sorted(one.functions) for one in programs]
        if choose(
            programs,
            self.path(ALONE),
            self._build,
            lambda path: loaded(path, self.target, self.inputs),
            self.folder,
            interrupted=self.interrupted,
            timed=None if self.device is None else self.device.timed,
        ):
            try:
                why = self.add(CHOSEN, write(programs, MemoryDatabase()))
            except EnvironmentProblem as error:  # the build `ALONE` is there
                why = f"build failed: {error}"
            if why:
                tell(f"the schedules chosen in the model are left out: the {why}")

    def _difference(self, name: str) -> str:
        if self.expected is None:
            return ""
        off, allowed = deviation(self.outputs[name], self.expected, self.model, bf16=self.bf16)
        if off <= allowed:
            return ""
        why = f"build's {OFF} by {off:.2g} (allowed: {allowed:g})"
        if not (self.bf16 and self.allow_different):
            return why
        logger.warning("wmsched: %s: the bfloat16 %s", self.model.name, why)
        return ""

    def _build(self, schedules: Any, path: Path, *, cuda_graph: bool = False) -> None:
        made = pipeline.compile_module(
            self.prepared,
            self.target,
            schedules,
            vector_math=self.vector_math,
            objects=self.objects,
            by_rule=self.by_rule,
            cuda_graph=cuda_graph,
        )
        pipeline.link(made, path)

    def _load(self, name: str) -> None:
        call = library_call(self.path(name), self.target, self.inputs)
        with unbound():
            self.outputs[name] = call()
        self.calls[name] = call if self.device is None else self.device.call(self.path(name))
