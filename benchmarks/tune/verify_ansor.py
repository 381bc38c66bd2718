"""Check that a schedule's program computes its workload. Needs AutoScheduler's TVM.

No search checks results, so it prefers a miscompiled program that leaves work out
(`wmsched.toolchain.alias_tags`). Compare a best schedule's outputs with an unscheduled program's before
reporting it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TOLERANCE = 1e-3  # of the largest output; float32 sums in another order differ by some 1e-6


class Verifier:
    """Runs schedules of one task on the same random inputs as the program without a schedule.

    Parameters
    ----------
    task : tvm.auto_scheduler.SearchTask
        Its target must be one that this machine can run.
    """

    def __init__(self, task: Any) -> None:
        self.task = task
        self._inputs: list[Any] = []
        self._expected: list[Any] = []

    def error(self, state: Any) -> float:
        """Largest difference from the plain program's outputs over their largest magnitude.

        Parameters
        ----------
        state : tvm.auto_scheduler.loop_state.StateObject

        Returns
        -------
        float
            inf where an output is not finite and the plain program's is.

        Raises
        ------
        tvm.TVMError
            It cannot be built or run.
        """
        if not self._expected:
            self._expect()
        # Without rewriting weights, so that the arguments are the workload's own tensors; same steps.
        schedule, arguments = self.task.compute_dag.apply_steps_from_state(state, 0)
        outputs = self._run(schedule, arguments)
        return max(difference(*pair) for pair in zip(outputs, self._expected, strict=True))

    def _expect(self) -> None:
        from tvm import te

        tensors = self.task.compute_dag.tensors
        rng = np.random.default_rng(0)
        for tensor in tensors:
            shape = [int(extent) for extent in tensor.shape]
            value = np.zeros(shape) if _computed(tensor) else rng.standard_normal(shape)
            self._inputs.append(value.astype(tensor.dtype))
        outputs = [tensor.op for tensor in tensors if _computed(tensor)]
        self._expected = self._run(te.create_schedule(outputs), tensors)

    def _run(self, schedule: Any, arguments: Any) -> list[Any]:
        import tvm

        function = tvm.build(schedule, arguments, target=self.task.target)
        values = [tvm.nd.array(value) for value in self._inputs]
        function(*values)
        return [
            value.numpy().astype(np.float64)
            for value, tensor in zip(values, arguments, strict=True)
            if _computed(tensor)
        ]


def _computed(tensor: Any) -> bool:
    return bool(tensor.op.input_tensors)


def difference(found: Any, expected: Any) -> float:
    """Largest difference of two arrays over the largest magnitude of the second.

    Infinite where the first is not finite and the second is.
    """
    if not np.isfinite(found[np.isfinite(expected)]).all():
        return float("inf")
    both = np.isfinite(found) & np.isfinite(expected)
    scale = float(np.abs(expected[both]).max(initial=0.0)) or 1.0
    return float(np.abs(found[both] - expected[both]).max(initial=0.0)) / scale
