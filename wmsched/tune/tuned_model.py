"""Tuned model of a ``wmsched tune MODEL`` folder, as a function of arrays or PyTorch tensors."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wmsched.base import pytree
from wmsched.base.cores import (
    THREADS,
    apply_requested_threads,
    is_default,
    leave_unbound,
    set_here,
    unbound,
    usable_cores,
)
from wmsched.base.errors import WmschedError
from wmsched.toolchain.resolve import device_name, meta_schedule_tvm
from wmsched.toolchain.targets import crashes_here
from wmsched.tune import folder as tuned_folder

ALIGNED = 64  # bytes; TVM's programs load vectors from where it would have put a tensor itself
SPINS = "TVM_THREAD_POOL_SPIN_COUNT"
AWAKE = 6000  # looks for work before a thread sleeps: 2 ms on a Zen 5, where TVM's own 300000 are 0.1 s


class TunedModel:
    """Tuned model, ready to call.

    >>> model = TunedModel("out")
    >>> logits = model(image)

    Its inputs and outputs are numpy arrays or PyTorch tensors: what comes out is of the kind, and on the
    device, of the first input. Threads may call it; they run one after the other, for a library's memory is
    one call's, and each call takes all cores. On a processor so may copies of the process (``os.fork``: a
    server's workers, PyTorch's data loaders).

    Parameters
    ----------
    folder : str or Path
        The ``--out`` of ``wmsched tune``.

    Attributes
    ----------
    inputs : list of dict
        ``name``, ``shape`` and ``dtype`` of each, in their order.
    report : dict
        ``report.json``: latencies in seconds, tasks, versions.

    Raises
    ------
    EnvironmentProblem
        There is no TVM with MetaSchedule, or another TVM in this process.
    WmschedError
        The folder holds no finished tuning, its library cannot be loaded here or is for a processor with
        instructions that this one has not, or the type of what the model returns is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        about = _read(self.folder / tuned_folder.ABOUT)
        self.report = _read(self.folder / tuned_folder.REPORT)
        self.inputs: list[dict[str, Any]] = about["inputs"]
        written = about.get("returns", "")
        self._returns = pytree.read(written) if written else None
        self._lock = threading.Lock()
        self._first: list[Any] | None = None  # outputs of the first call, until the second
        self._constant: set[int] | None = None  # places of outputs that are the library's own memory
        tvm = meta_schedule_tvm()
        target = tvm.target.Target(json.loads(about["target"]))
        self._tvm = tvm
        self._device = tvm.runtime.device(device_name(target), 0)
        leave_unbound(os.environ)  # before TVM makes its threads
        if is_default(os.environ):  # untold, TVM counts processors before each parallel loop
            set_here(THREADS, str(min(int(self.report["threads"]), usable_cores())))
        if SPINS not in os.environ:
            set_here(SPINS, str(AWAKE))  # read when TVM's threads are first made
        library = self.folder / self.report["library"]["file"]
        if wrong := crashes_here(target):
            raise WmschedError(
                f"{library} was built for another processor ({about['target']}): its programs {wrong}; tune "
                "the model on this machine, or with the --target of one like it"
            )
        try:
            with unbound(), _loadable(library) as path:
                machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(path)), self._device)
                self._function: Callable[..., Any] = machine["main"]
        except Exception as error:  # TVM's errors have no common base
            raise WmschedError(
                f"{library} cannot be loaded ({str(error).strip()[-300:]}): it was built with TVM "
                f"{about['tvm']} for {about['target']}, and this is TVM {tvm.__version__}"
            ) from error
        self._caller: ThreadPoolExecutor | None = None  # where not the thread that asks makes a call
        _models.add(self)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the model.

        Parameters
        ----------
        inputs : numpy.ndarray or torch.Tensor
            In the order of `inputs`; or by name.

        Returns
        -------
        What the exported model does, with arrays or tensors in it. Of an ONNX model, and from a folder that
        does not say, an array or tensor, or a tuple of them where there are several.

        Raises
        ------
        TypeError
            One is missing, given twice, not known, or no array.
        ValueError
            One has another shape or type than the model was tuned for.
        """
        given = [self._checked(spec, value) for spec, value in zip(self.inputs, self._ordered(inputs, named))]
        with self._lock, unbound():
            taken = [self._taken(value) for value in given]
            outputs = list(self._tensors(self._main(*taken)))
            self._device.sync()
            shared = self._shared(outputs, taken)
        found = tuple(self._like(value, given, copy=k in shared) for k, value in enumerate(outputs))
        if self._returns is not None:
            return pytree.rebuild(self._returns, found)
        return found[0] if len(found) == 1 else found

    def _forked(self) -> None:
        """Go on in a copy of the process, which has none of TVM's threads: a call would wait for them.

        TVM makes those of a thread when this one first runs a parallel loop: calls are made from a new one.
        """
        self._lock = threading.Lock()  # another thread may have held it
        self._caller = ThreadPoolExecutor(1, thread_name_prefix="wmsched")

    def _main(self, *taken: Any) -> Any:
        return self._run(*taken) if self._caller is None else self._caller.submit(self._run, *taken).result()

    def _run(self, *taken: Any) -> Any:
        apply_requested_threads(self._tvm)
        return self._function(*taken)

    def _ordered(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        names = [spec["name"] for spec in self.inputs]
        late = names[len(inputs) :]
        if len(inputs) > len(names) or set(named) != set(late):
            raise TypeError(
                f"{self.folder}: the model takes {', '.join(names) or 'nothing'}; given were {len(inputs)} "
                f"by place and {', '.join(named) or 'none'} by name"
            )
        return [*inputs, *(named[name] for name in late)]

    def _checked(self, spec: Mapping[str, Any], value: Any) -> Any:
        import numpy as np

        if not isinstance(value, np.ndarray) and not hasattr(value, "detach"):
            raise TypeError(
                f"{self.folder}: input {spec['name']} is a {type(value).__name__}: a numpy array or a "
                "PyTorch tensor is wanted"
            )
        shape, dtype = list(value.shape), str(value.dtype).removeprefix("torch.")
        if shape != spec["shape"] or dtype != spec["dtype"]:
            raise ValueError(
                f"{self.folder}: input {spec['name']} is {dtype} {shape}; the model was tuned for "
                f"{spec['dtype']} {spec['shape']}"
            )
        return value

    def _taken(self, value: Any) -> Any:
        """A tensor of TVM's on the model's device: the same memory where that serves."""
        import numpy as np

        runtime = self._tvm.runtime
        if isinstance(value, np.ndarray):
            return runtime.tensor(value, self._device)  # a copy: it may be read-only, or lie anyhow
        if value.is_cuda:  # TVM's stream waits for PyTorch's default one, and for no other
            import torch

            torch.cuda.current_stream(value.device).synchronize()
        value = value.detach().contiguous()
        if value.data_ptr() % ALIGNED:
            value = value.clone()
        found = runtime.from_dlpack(value)
        return found if found.device == self._device else found.copyto(self._device)

    def _shared(self, outputs: list[Any], taken: Sequence[Any]) -> set[int]:
        """The places of outputs that are an input's memory, or the library's own.

        A model that returns a table of its own gives the same memory in each call: in the first two, the
        outputs of the first being kept until then, that is seen.
        """
        if self._constant is None:
            constant = set(range(len(outputs)))
            if self._first is None:
                self._first = outputs
            else:
                before = [_address(one) for one in self._first]
                self._constant = constant = {
                    k for k, one in enumerate(outputs) if _address(one) == before[k] and before[k]
                }
                self._first = None
        else:
            constant = self._constant
        given = {_address(one) for one in taken}
        return constant | {k for k, one in enumerate(outputs) if _address(one) in given}

    def _like(self, value: Any, given: Sequence[Any], *, copy: bool) -> Any:
        """A tensor of TVM's as the kind of the first input, on its device."""
        import numpy as np

        if not given or isinstance(given[0], np.ndarray):
            return value.numpy()
        import torch

        if given[0].device.type == "cpu" and self._device != self._tvm.cpu():
            value = value.copyto(self._tvm.cpu())  # PyTorch's build may know no other device
        found = torch.from_dlpack(value)
        moved = found.to(given[0].device)
        return moved.clone() if copy and moved is found else moved

    def _tensors(self, output: Any) -> Iterator[Any]:
        if isinstance(output, self._tvm.runtime.Tensor):
            yield output
        else:
            for part in output:
                yield from self._tensors(part)


_models: weakref.WeakSet[TunedModel] = weakref.WeakSet()  # of this process


def _after_fork() -> None:
    for model in list(_models):
        model._forked()


os.register_at_fork(after_in_child=_after_fork)


def _address(tensor: Any) -> int:
    """Where a tensor of TVM's lies."""
    import tvm_ffi

    return int(tvm_ffi.from_dlpack(tensor).data_ptr()) if tensor.numel() else 0


_loaded: dict[str, tuple[int, int]] = {}  # by path: the file of it that this process has loaded


@contextmanager
def _loadable(library: Path) -> Iterator[Path]:
    """A path that loads what is in the file now.

    A library that this process has loaded from a path before is what it gets there again, whatever the file
    is by then: a folder that was tuned anew has another name for it.
    """
    path = library.resolve()
    file = path.stat()
    known = _loaded.setdefault(str(path), (file.st_dev, file.st_ino))
    if known == (file.st_dev, file.st_ino):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="wmsched-") as folder:
        fresh = Path(folder) / path.name
        shutil.copyfile(path, fresh)
        yield fresh


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WmschedError(
            f"{path} is not there: {path.parent} is no folder of a finished `wmsched tune MODEL --out "
            f"{path.parent}`; one that was stopped goes on with --resume"
        ) from None
    except (OSError, ValueError) as error:
        raise WmschedError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    return found
