"""A PyTorch model in, a fast function out: ``wmsched compile`` and ``wmsched tune`` for scripts and
notebooks.

The search runs in a child process: a compiler crash does not end the caller, whose TVM settings stay its own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmsched.base.cores import thread_env, unpin_main_thread
from wmsched.base.errors import WmschedError
from wmsched.base.files import locked
from wmsched.relax.state.pairs import NONE
from wmsched.tune.shapes.choices import Choices, choices_of, option_of
from wmsched.tune.shapes.exporting import exported_with

if TYPE_CHECKING:
    from wmsched.tune.tuned_model import TunedModel

PROGRAM = "model.pt2"
PATIENCE = 20.0  # seconds for a search that Ctrl-C has reached to end by itself
LINES = 20  # of what the search said last, in the error that it ends with


def compile_model(
    model: Any,
    example_inputs: Any = (),
    *,
    out: str | os.PathLike[str] | None = None,
    example_kwargs: dict[str, Any] | None = None,
    minutes: float | None = None,
    trials: int | None = None,
    resume: bool = False,
    shapes: Mapping[str, Sequence[int | Sequence[int]]] | None = None,
    states: Mapping[str, str | int] | None = None,
    bf16: bool = False,
    options: Sequence[str] = (),
) -> TunedModel:
    """Compile a model, in seconds or after a search, and load the result.

    Without `minutes` and `trials` every function gets the schedule that the cost model ranks first. With one
    of them schedules are searched and measured, which takes minutes to hours.

    Parameters
    ----------
    model : torch.nn.Module, torch.export.ExportedProgram, str or Path
        A module in evaluation mode; a path is of an ``.onnx`` or ``.pt2`` file.
    example_inputs : tuple or one tensor, example_kwargs : dict
        What a module is exported with (`torch.export.export`): the shapes that it is tuned for.
    out : str or Path
        The folder for the database, the library and the report. `wmsched.load` reads it again later. A search
        needs one; without it a construction's folder goes with the process.
    minutes, trials
        How long to search, if at all.
    resume : bool
        Whether to go on with the records in `out`.
    shapes : mapping of input name to shape, optional
        In place of the example's; with a tuple for an extent, one library for each of its numbers:
        ``{"ids": (1, (16, 64, 128)), "mask": (1, (16, 64, 128))}``. Extents with the same numbers vary
        together. A module is exported with these extents open.
    states : mapping of input name to output name or number, optional
        Inputs that the next call takes from this call's outputs, and the model keeps; {}: none. By default
        those with the usual names of a decoder's cache. Buffers that a module changes are always kept.
    bf16 : bool
        Whether matrix products and convolutions are computed in bfloat16 (``--bf16``).
    options : sequence of str
        Of ``wmsched compile`` or ``wmsched tune``, besides: ``["--target", "cuda"]``.

    Returns
    -------
    TunedModel
        A function of the same inputs.

    Raises
    ------
    ValueError
        The module is in training mode, a search has no `out`, or `shapes` are none of the inputs.
    WmschedError
        It cannot be exported, or the search failed; what it said last is in the message.
    KeyboardInterrupt
        As from a shell: what was measured is in `out`, for `resume`.
    """
    searched = bool(minutes or trials)
    if out is None and searched:
        raise ValueError("a search leaves records: name a folder for them, such as out='tuned'")
    folder = _own_folder() if out is None else Path(out)
    more = ["--out", str(folder), *(["--resume"] if resume else []), *(["--bf16"] if bf16 else [])]
    more += [*options, *(["--no-how-to-run"] if out is None else [])]  # the folder is nobody's to name
    for option, value in (("--minutes", minutes), ("--trials", trials)):
        more += [option, str(value)] if value else []
    for name, output in (states or {}).items():
        more += ["--state", f"{name}={output}"]
    more += ["--state", NONE] if states == {} else []
    choices = choices_of(shapes or {})
    for name, extents in choices.items():
        more += ["--shape", option_of(name, extents)]
    with ExitStack() as scopes:
        if not isinstance(model, (str, os.PathLike)):
            inputs = (example_inputs,) if hasattr(example_inputs, "__dlpack__") else tuple(example_inputs)
            program = _exported(model, inputs, example_kwargs, choices)
            # until the search has ended: another one's model in its place would be tuned as this one
            scopes.enter_context(locked(folder / f".{PROGRAM}.lock", whose=folder, option="out="))
            model = scopes.enter_context(_saved(program, folder))
        command = "tune" if searched else "compile"
        _run([sys.executable, "-m", "wmsched", command, os.fspath(model), *more], folder)
    from wmsched.tune.tuned_model import TunedModel

    return TunedModel(folder)


def _own_folder() -> Path:
    """A folder that is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="wmsched-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _exported(
    model: Any, inputs: tuple[Any, ...], named: dict[str, Any] | None, choices: Choices | None = None
) -> Any:
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        return model
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"a {type(model).__name__} is no model: a torch.nn.Module, an exported program or the path of an "
            ".onnx or .pt2 file is wanted"
        )
    if model.training:
        raise ValueError("the model is in training mode: call its eval() first")
    try:
        with torch.inference_mode(), _without_cache(model):
            if not choices:
                return torch.export.export(model, inputs, named)
            return exported_with(model, inputs, named or {}, choices)
    except ValueError:
        raise
    except Exception as error:  # whatever tracing a foreign model raises
        raise WmschedError(
            f"torch.export cannot export the model ({type(error).__name__}: {str(error).strip()[:500]})"
        ) from error


@contextmanager
def _without_cache(model: Any) -> Iterator[None]:
    """Have a model of the package transformers leave out its cache, a type that torch.export does not know.

    It is for a next call, of another shape than the model is tuned for.
    """
    configs: list[Any] = [getattr(part, "config", None) for part in model.modules()]
    caching = [config for config in configs if getattr(config, "use_cache", None) is True]
    for config in caching:
        config.use_cache = False
    try:
        yield
    finally:
        for config in caching:
            config.use_cache = True


@contextmanager
def _saved(program: Any, folder: Path) -> Iterator[Path]:
    """The file of an exported program; where what follows fails, the one that was there before is back."""
    import torch

    from wmsched.relax.importers.torch_export import storable
    from wmsched.tune import folder as tuned_folder

    folder.mkdir(parents=True, exist_ok=True)
    path, before = folder / PROGRAM, folder / f"before-{PROGRAM}"
    with tuned_folder.scratch(folder) as made:
        try:
            torch.export.save(storable(program), made / PROGRAM)
        except OSError:
            raise
        except Exception as error:  # of what a foreign model takes, returns or holds
            free = shutil.disk_usage(folder).free >> 20  # torch tells of a full disk in words of its own
            raise WmschedError(
                f"torch.export.save cannot write the model into {folder} ({type(error).__name__}: "
                f"{str(error).strip()[:500]}); {free} MiB are free there. If that is enough, a model that "
                "takes and returns tensors, or lists and dictionaries of them, may pass"
            ) from error
        if path.exists() and not before.exists():
            os.replace(path, before)
        tuned_folder.place(made / PROGRAM, path)
    try:
        yield path
    except BaseException:
        if before.exists():
            os.replace(before, path)
        raise
    before.unlink(missing_ok=True)


def _run(command: Sequence[str], folder: Path) -> None:
    """Run a search to its end, showing what it says; on a terminal with its table of tasks."""
    unpin_main_thread()
    said: deque[str] = deque(maxlen=LINES)
    terminal = sys.stdout is sys.__stdout__ and sys.stdout is not None and sys.stdout.isatty()
    pipes: dict[str, Any] = {} if terminal else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(
        command, text=True, errors="replace", env=thread_env(os.environ), **pipes
    ) as process:
        try:
            for line in process.stdout or ():
                said.append(line)
                print(line, end="", flush=True)
            status = process.wait()
        except KeyboardInterrupt:
            _wait_interrupted(process)
            raise
    if status == 130:
        raise KeyboardInterrupt
    if status:
        why = "".join(said).strip() or "what it said is above"
        raise WmschedError(f"the search ended with exit status {status}: {why}\nfolder: {folder}")


def _wait_interrupted(process: subprocess.Popen[str]) -> None:
    """A terminal's Ctrl-C reaches the search too, which ends between two measurements; a signal does not."""
    again = threading.Timer(PATIENCE, process.send_signal, [signal.SIGINT])
    again.daemon = True
    again.start()
    try:
        for line in process.stdout or ():  # a pipe that nobody reads fills up, and the search waits for ever
            print(line, end="", flush=True)
        process.wait()
    finally:
        again.cancel()
