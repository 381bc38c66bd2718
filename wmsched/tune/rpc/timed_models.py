"""What a device does with whole models: it loads libraries and times them, in its session's process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from wmsched.metaschedule.rpc.server import place_of


class TimedModels:
    """Libraries of a session by name. The public methods are handlers (`wmsched.metaschedule.rpc.server`)."""

    def __init__(self) -> None:
        self._inputs: list[Any] = []
        self._target: Any = None
        self._loaded: dict[str, Any] = {}

    def model_inputs(self, *, file: str, target: str) -> bool:
        """Take the arguments of all libraries from an uploaded file of TVM's, in its order."""
        import tvm

        self._target = tvm.target.Target(json.loads(target))
        found = tvm.runtime.load_param_dict(bytearray(place_of(file).read_bytes()))
        self._inputs = [found[str(k)] for k in range(len(found))]
        return True

    def model_load(self, *, library: str, programs: Sequence[Sequence[str]]) -> bool:
        """Load an uploaded library and run it once. `programs` are the names of each one's functions."""
        from wmsched.tune.in_model_selection import Finalists, Timed
        from wmsched.tune.latency import loaded

        given = [Finalists(None, [], set(functions)) for functions in programs]
        self._loaded[library] = Timed(given, *loaded(place_of(library), self._target, self._inputs))
        return True

    def model_run(self, *, library: str) -> tuple[list[float], list[int]]:
        """Return the seconds of each program in one run, and how often it was called."""
        timed = self._loaded[library]
        return timed.run(), timed.calls

    def model_time(self, *, library: str) -> tuple[float, int]:
        """Return the seconds of some calls, without a look at programs, and their number."""
        from wmsched.tune.latency import timing

        with self._loaded[library].plain() as call:
            return timing(call)

    def model_drop(self, *, library: str) -> bool:
        """Forget a library and remove its file."""
        if (timed := self._loaded.pop(library, None)) is not None:
            timed.__exit__()
        place_of(library).unlink(missing_ok=True)
        return True


def handlers() -> dict[str, Callable[..., Any]]:
    """Return the handlers of a server for whole models."""
    models = TimedModels()
    names = ("model_inputs", "model_load", "model_run", "model_time", "model_drop")
    return {name: getattr(models, name) for name in names}
