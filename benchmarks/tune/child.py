"""Benchmark step in a process group of its own, with a time limit.

TVM's builder and runner processes may crash or hang; the whole group ends with the step. The two sides
exchange JSON files: `call` writes the request and reads the result, `answer` is the child's side.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wmsched.measure.malloc_env import MALLOC_ENVIRONMENT

Spec = dict[str, Any]

REPOSITORY = Path(__file__).parents[2]
TAIL = 600


def call(module: str, spec: Spec, *, timeout: float, output: Path, steady: bool = False) -> Spec:
    """Run `python -m module` on `spec`.

    Parameters
    ----------
    module : str
        A module whose `__main__` calls `answer`.
    spec : dict
        Handed over as JSON.
    timeout : float
        Seconds after which the process group is killed.
    output : Path
        Where the child's standard output and error go.
    steady : bool
        Whether programs are timed, whose buffers are to lie alike in every process
        (`wmsched.measure.malloc_env`).

    Returns
    -------
    outcome : dict
        What the child answered, or `{"status": "timeout" | "error", "error": ...}` with the end of its
        output.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wmsched-bench-") as folder, output.open("wb") as stream:
        question, reply = Path(folder) / "spec.json", Path(folder) / "outcome.json"
        question.write_text(json.dumps(spec), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": _python_path()} | (MALLOC_ENVIRONMENT if steady else {})
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(question), str(reply)],
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            return {"status": "timeout", "error": f"not finished after {timeout:.0f} s; {_tail(output)}"}
        finally:  # also when we are interrupted; and whatever the child has left running
            _end(process)
        if process.returncode != 0 or not reply.exists():
            how = (
                f"signal {-process.returncode}"
                if process.returncode < 0
                else f"exit status {process.returncode}"
            )
            return {"status": "error", "error": f"{module} ended with {how}; {_tail(output)}"}
        return json.loads(reply.read_text(encoding="utf-8"))


def answer(step: Callable[[Spec], Spec]) -> None:
    """The child's half: read the spec, do the step, write the outcome whole or not at all."""
    question, reply = map(Path, sys.argv[1:])
    outcome = step(json.loads(question.read_text(encoding="utf-8")))
    partial = reply.with_suffix(".partial")
    partial.write_text(json.dumps(outcome), encoding="utf-8")
    partial.replace(reply)


def _python_path() -> str:
    """This checkout before whatever was there, so that `-m benchmarks...` works from any folder."""
    rest = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([*([rest] if rest else []), str(REPOSITORY)])


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(output: Path) -> str:
    text = " ".join(output.read_text(encoding="utf-8", errors="replace").split())
    return f"the end of {output.name}: ...{text[-TAIL:]}" if text else f"{output.name} is empty"
