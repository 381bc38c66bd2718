"""Tuned model of a ``wmsched tune MODEL`` folder, as a function of arrays or PyTorch tensors."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

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
from wmsched.measure.call_times import by_calls
from wmsched.toolchain import parallel_launch
from wmsched.toolchain.loading import ALIGNED, address, aligned, check_processor, loadable
from wmsched.toolchain.resolve import device_name, meta_schedule_tvm
from wmsched.tune import folder as tuned_folder
from wmsched.tune.shapes.parts import Parts
from wmsched.tune.state.kept import Kept

SPINS = "TVM_THREAD_POOL_SPIN_COUNT"
AWAKE = 6000  # looks for work before a thread sleeps: 2 ms on a Zen 5, where TVM's own 300000 are 0.1 s


class TunedModel:
    """Tuned model, ready to call.

    >>> model = TunedModel("out")
    >>> logits = model(image)

    Its inputs and outputs are numpy arrays or PyTorch tensors: what comes out is of the kind, and on the
    device, of the first input. Threads may call it, one after the other: a library's memory is one call's,
    and each call takes all cores. So may, on a processor, copies of the process (``os.fork``).

    A folder of several shapes is one function, too: it runs the library of the inputs' shape, or pads them
    to a larger one where that changes nothing in the result (`wmsched.tune.shapes`).

    States, such as a decoder's cache, are kept between calls, and no inputs or outputs of them; see `reset`.

    Parameters
    ----------
    folder : str or Path
        The ``--out`` of ``wmsched tune``.

    Attributes
    ----------
    inputs : list of dict
        ``name``, ``shape`` and ``dtype`` of each, in their order; of several shapes, the largest.
    shapes : list of dict
        Shape of each input by name, for each shape of the model.
    states : list of str
        Names of what it keeps between calls.
    report : dict
        ``report.json``: latencies in seconds, tasks, versions.

    Raises
    ------
    EnvironmentProblem
        There is no TVM with MetaSchedule, or another TVM in this process.
    WmschedError
        The folder holds no finished tuning, its library cannot be loaded or run on this processor, or the
        type of what the model returns is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        about = tuned_folder.read(self.folder / tuned_folder.ABOUT)
        self.report = tuned_folder.read(self.folder / tuned_folder.REPORT)
        self.inputs: list[dict[str, Any]] = about["inputs"]
        written = about.get("returns", "")
        self._returns = pytree.read(written) if written else None
        self._parts = Parts(self.folder, about, TunedModel) if "shapes" in about else None
        several = [about] if self._parts is None else about["shapes"]
        self.shapes = [{spec["name"]: tuple(spec["shape"]) for spec in one["inputs"]} for one in several]
        self.states = [spec["name"] for spec in about.get("states", ())]
        self.sync: Callable[[], Any] | None = None  # waits for the device
        if self._parts is not None:
            self.sync = self._parts.model(0).sync
            return
        self._lock = threading.Lock()
        self._first: list[Any] | None = None  # outputs of the first call, until the second
        self._constant: set[int] | None = None  # places of outputs that are the library's own memory
        self._own: dict[int, tuple[Any, Any] | None] = {}  # by input: memory for it, as an array and TVM's
        self._quick: list[tuple[Any, Any, Any]] = []  # once all have it: that array, its shape and type
        self._places: tuple[Any, ...] = ()  # and TVM's tensors of it
        tvm = meta_schedule_tvm()
        target = tvm.target.Target(json.loads(about["target"]))
        self._tvm = tvm
        self._device = tvm.runtime.device(device_name(target), 0)
        self._on_cpu = self._device == tvm.cpu(0)
        self.sync = None if self._on_cpu else self._device.sync
        self._tensor, self._from_dlpack = tvm.runtime.Tensor, tvm.runtime.from_dlpack
        self._size, self._item = map(tvm.get_global_func, ("ffi.ArraySize", "ffi.ArrayGetItem"))
        leave_unbound(os.environ)  # before TVM makes its threads
        if is_default(os.environ):  # untold, TVM counts processors before each parallel loop
            set_here(THREADS, str(min(int(self.report["threads"]), usable_cores())))
        if SPINS not in os.environ:
            set_here(SPINS, str(AWAKE))  # read when TVM's threads are first made
        library = self.folder / self.report["library"]["file"]
        check_processor(library, about, target)
        try:
            with unbound(), loadable(library) as path:
                module = tvm.runtime.load_module(str(path))
                self._ours = parallel_launch.install(path)  # whose threads need no care in what follows
                machine = tvm.relax.VirtualMachine(module, self._device)
                self._function: Callable[..., Any] = machine["main"]
                self._by_calls = by_calls(machine)
                self._instrument = machine.module["set_instrument"]  # which takes None, too
        except Exception as error:  # TVM's errors have no common base
            raise WmschedError(
                f"{library} cannot be loaded ({str(error).strip()[-300:]}): it was built with TVM "
                f"{about['tvm']} for {about['target']}, and this is TVM {tvm.__version__}"
            ) from error
        self._caller: ThreadPoolExecutor | None = None  # where not the thread that asks makes a call
        self.kept = Kept(self.folder, about["states"], tvm, self._device) if self.states else None
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
        if self._parts is not None:
            return self._parts(self._ordered(inputs, named))
        known = self._quick and not named and len(inputs) == len(self._quick)
        if known and (quick := self._called(inputs)) is not None:
            return quick
        return self.rebuilt(self.leaves(self._ordered(inputs, named)))

    def leaves(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the model on inputs in their order, and return the tensors of its output, in theirs."""
        for k, value in enumerate(inputs):
            self._check(k, value)
        arrays = not inputs or isinstance(inputs[0], np.ndarray)
        with self._lock if self._ours else self._unbound():
            taken = [self._taken(k, value) for k, value in enumerate(inputs)]
            outputs = self._outputs(taken)
            if not self._on_cpu:
                self._device.sync()
            # Before the next call: it overwrites the memory for arrays, which an output may be.
            if arrays:
                found = [self._array(one) for one in outputs]
            else:
                shared = self._shared(outputs, taken)
                found = [self._like(one, inputs[0], copy=k in shared) for k, one in enumerate(outputs)]
            own = [one for k in range(len(inputs)) if (one := self._own.get(k))]
            if self._ours and len(own) == len(inputs):
                self._places = tuple(tensor for _, tensor in own)
                self._quick = [(memory, memory.shape, memory.dtype) for memory, _ in own]
        return found

    @contextmanager
    def runs(self, *inputs: Any) -> Iterator[Callable[[Any], float]]:
        """A function that runs the model on the inputs once, waits for it, and returns the seconds it took.

        It takes an instrument (`tvm.relax.VirtualMachine.set_instrument`) or None.
        """
        if self._parts is not None:
            with self._parts.of(inputs).runs(*inputs) as run_one:
                yield run_one
            return
        for k, value in enumerate(self._ordered(inputs, {})):
            self._check(k, value)
        with self._lock if self._ours else self._unbound():
            taken = [self._taken(k, value) for k, value in enumerate(inputs)]
            taken = taken if self.kept is None else self.kept.merged(taken)

            def run(instrument: Any) -> float:
                self._instrument(instrument)
                function = self._function if instrument is None else self._by_calls
                start = time.perf_counter()
                function(*taken) if self._ours else self._main(function, *taken)
                if self.sync is not None:
                    self.sync()
                return time.perf_counter() - start

            try:
                yield run
            finally:
                self._instrument(None)

    def _called(self, inputs: tuple[Any, ...]) -> Any:
        """What `__call__` returns where inputs are arrays as before, in few lines; None for anything else."""
        with self._lock:
            for (memory, shape, dtype), value in zip(self._quick, inputs):
                if value.__class__ is not np.ndarray or value.shape != shape or value.dtype != dtype:
                    return None
                memory[...] = value
            found = [self._array(one) for one in self._outputs(self._places)]
        return self.rebuilt(found)

    def _outputs(self, taken: Sequence[Any]) -> list[Any]:
        """What a call returns but for its states, which are kept."""
        every = taken if self.kept is None else self.kept.merged(taken)
        found = self._flat(self._function(*every) if self._ours else self._main(self._function, *every))
        return found if self.kept is None else self.kept.rest(found)

    def reset(self, values: Mapping[str, Any] | None = None) -> None:
        """Start anew: every state has the value it had before the first call.

        Parameters
        ----------
        values : mapping of str to numpy.ndarray or torch.Tensor, optional
            Values for some of the states, by name, in place of that.

        Raises
        ------
        TypeError
            There is no such state.
        ValueError
            One has another shape or type than the model was tuned for.
        """
        with self._state() as kept:
            kept.reset(values or {})

    def state(self) -> dict[str, Any]:
        """Copies of the states as they are now, as arrays by name; `reset` takes them."""
        with self._state() as kept:
            return dict(kept.values())

    @contextmanager
    def _state(self) -> Iterator[Any]:
        if self._parts is not None:
            with self._parts.state() as kept:
                yield kept
        elif self.kept is None:
            raise TypeError(f"{self.folder}: the model has no states")
        else:
            with self._lock:
                yield self.kept

    def rebuilt(self, found: list[Any]) -> Any:
        """Return what the model returns, of the tensors in it."""
        if self._returns is not None:
            return pytree.rebuild(self._returns, found)
        return found[0] if len(found) == 1 else tuple(found)

    @contextmanager
    def _unbound(self) -> Iterator[None]:
        with self._lock, unbound():
            yield

    def _forked(self) -> None:
        """Go on in a copy of the process, which has none of TVM's threads: a call would wait for them.

        TVM makes those of a thread when this one first runs a parallel loop: calls are made from a new one.
        """
        self._lock = threading.Lock()  # another thread may have held it
        if not self._ours:
            self._caller = ThreadPoolExecutor(1, thread_name_prefix="wmsched")

    def _main(self, *call: Any) -> Any:
        return self._run(*call) if self._caller is None else self._caller.submit(self._run, *call).result()

    def _run(self, function: Callable[..., Any], *taken: Any) -> Any:
        apply_requested_threads(self._tvm)
        return function(*taken)

    def _ordered(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        names = [spec["name"] for spec in self.inputs]
        late = names[len(inputs) :]
        if len(inputs) > len(names) or set(named) != set(late):
            raise TypeError(
                f"{self.folder}: the model takes {', '.join(names) or 'nothing'}; given were {len(inputs)} "
                f"by place and {', '.join(named) or 'none'} by name"
            )
        return [*inputs, *(named[name] for name in late)]

    def _check(self, k: int, value: Any) -> None:
        """That input k is an array or tensor as the model was tuned for; raises what `__call__` does."""
        spec = self.inputs[k]
        if not isinstance(value, np.ndarray) and not hasattr(value, "detach"):
            raise TypeError(
                f"{self.folder}: input {spec['name']} is a {type(value).__name__}: a numpy array or a "
                "PyTorch tensor is wanted"
            )
        shape, dtype = list(value.shape), _name(value.dtype)
        if shape != spec["shape"] or dtype != spec["dtype"]:
            raise ValueError(
                f"{self.folder}: input {spec['name']} is {dtype} {shape}; the model was tuned for "
                f"{spec['dtype']} {spec['shape']}"
            )

    def _taken(self, k: int, value: Any) -> Any:
        """Input k as a tensor of TVM's on the model's device: the same memory where that serves."""
        if isinstance(value, np.ndarray):  # a copy: it may be read-only, or lie anyhow
            if k not in self._own:
                self._own[k] = aligned(value) if self._on_cpu else None
            if (own := self._own[k]) is None:
                return self._tvm.runtime.tensor(value, self._device)
            own[0][...] = value
            return own[1]
        if value.is_cuda:  # TVM's stream waits for PyTorch's default one, and for no other
            import torch

            torch.cuda.current_stream(value.device).synchronize()
        value = (value.detach() if value.requires_grad else value).contiguous()
        if value.data_ptr() % ALIGNED:
            value = value.clone()
        found = self._from_dlpack(value)
        return found if self._on_cpu or found.device == self._device else found.copyto(self._device)

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
                before = [address(one) for one in self._first]
                self._constant = constant = {
                    k for k, one in enumerate(outputs) if address(one) == before[k] and before[k]
                }
                self._first = None
        else:
            constant = self._constant
        given = {address(one) for one in taken}
        return constant | {k for k, one in enumerate(outputs) if address(one) in given}

    def _array(self, value: Any) -> Any:
        """A copy of a tensor of TVM's, as an array."""
        if self._on_cpu:
            try:
                return np.from_dlpack(value).copy()
            except (BufferError, TypeError, RuntimeError):  # a type that numpy has not
                pass
        return value.numpy()

    def _like(self, value: Any, given: Any, *, copy: bool) -> Any:
        """A tensor of TVM's as one of PyTorch's, on the device of `given`."""
        import torch

        if self._on_cpu and not given.is_cuda:
            found = torch.from_dlpack(value)
            return found.clone() if copy else found
        if given.device.type == "cpu":
            value = value.copyto(self._tvm.cpu())  # PyTorch's build may know no other device
        found = torch.from_dlpack(value)
        moved = found.to(given.device)
        return moved.clone() if copy and moved is found else moved

    def _flat(self, output: Any) -> list[Any]:
        """The tensors that a call returns, in their order."""
        if isinstance(output, self._tensor):
            return [output]
        # Not by iteration, which takes 2.5 microseconds for one.
        return [one for k in range(self._size(output)) for one in self._flat(self._item(output, k))]


_models: weakref.WeakSet[TunedModel] = weakref.WeakSet()  # of this process


def _after_fork() -> None:
    for model in list(_models):
        model._forked()


os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _name(dtype: Any) -> str:
    """A type's name, as of numpy's and PyTorch's alike; asked for it, numpy takes 4 microseconds."""
    return str(dtype).removeprefix("torch.")
