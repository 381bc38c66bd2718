"""Whether a MetaSchedule program computes what its workload says, as `benchmarks.tune.verify_ansor` does
it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.tune.verify_ansor import TOLERANCE, difference
from wmsched.toolchain.resolve import device_name

__all__ = ["TOLERANCE", "Verifier"]


class Verifier:
    """Runs programs of one module on the same random inputs as the module without a schedule.

    Parameters
    ----------
    module : tvm.IRModule
        With the function ``main``, whose last argument is its output.
    target : tvm.target.Target
        A processor: on a GPU nothing runs without a schedule.
    """

    def __init__(self, module: Any, target: Any) -> None:
        self.module, self.target = module, target
        self.shapes = [tuple(int(n) for n in one.shape) for one in module["main"].params]
        self._inputs: list[np.ndarray] = []
        self._expected: Any = None

    def error(self, program: Any, arguments: Sequence[Any]) -> float | None:
        """Largest difference from the plain program's output over its largest magnitude.

        Parameters
        ----------
        program : tvm.runtime.Module
            With the function ``main``.
        arguments : sequence
            What has the `shape` of each of its arguments.

        Returns
        -------
        float or None
            None where a schedule has laid an argument out anew: its values would have to be, too.
        """
        import tvm

        if [tuple(int(n) for n in one.shape) for one in arguments] != self.shapes:
            return None
        if self._expected is None:
            rng = np.random.default_rng(0)
            types = [str(one.dtype) for one in self.module["main"].params]
            self._inputs = [
                rng.standard_normal(shape).astype(dtype)
                for shape, dtype in zip(self.shapes[:-1], types, strict=False)
            ]
            self._expected = self._run(tvm.compile(self.module, target=self.target))
        return difference(self._run(program), self._expected)

    def _run(self, program: Any) -> Any:
        import tvm

        device = tvm.runtime.device(device_name(self.target), 0)
        out = tvm.runtime.empty(self.shapes[-1], str(self.module["main"].params[-1].dtype), device)
        program["main"](*(tvm.runtime.tensor(one, device) for one in self._inputs), out)
        return out.numpy().astype(np.float64)
