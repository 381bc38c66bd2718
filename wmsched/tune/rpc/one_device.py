"""One device of a fleet that times the final builds of a model, in place of this machine.

Where it is lost, another one gets what it had and the question is asked again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import tvm

from wmsched.base.errors import WmschedError
from wmsched.measure.fleet import DeviceLost
from wmsched.toolchain.targets import target_text

MAX_LOSSES = 3  # of devices at one question
MAX_SECONDS = 600.0  # of one answer: a run of a slow model


class OneDevice:
    """A device that the caller has alone, once it is asked something, until the block ends.

    Parameters
    ----------
    devices : DeviceRunner
    target : tvm.target.Target
    inputs : sequence of torch.Tensor
        Of the model.

    Examples
    --------
    >>> with OneDevice(devices, target, inputs) as device:
    ...     elapsed, count = device.call(library).timing()
    """

    def __init__(self, devices: Any, target: Any, inputs: Sequence[Any]) -> None:
        self.devices, self.target, self.inputs = devices, target, inputs
        self.programs: list[list[str]] = []  # names of the functions of each, for `timed`
        self.name = ""  # of the device that answered last
        self._held: ExitStack | None = None
        self._device: Any = None
        self._there: dict[Path, str] = {}  # libraries that the device has loaded, with their names there

    def __enter__(self) -> OneDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self._release(None)

    def timed(self, path: Path) -> _InModel:
        """A library whose programs are timed as the model runs, as `in_model_selection.Timed`."""
        return _InModel(self, path)

    def call(self, path: Path) -> _Call:
        """A library as `time_interleaved` takes one."""
        return _Call(self, path)

    def ask(self, handler: str, path: Path) -> Any:
        """Have the device answer a question about a library, which it is sent first.

        Raises
        ------
        WmschedError
            Several devices were lost at it.
        """
        why = ""
        for _ in range(MAX_LOSSES):
            try:
                device = self._hold()
                if path not in self._there:
                    name = device.upload(path)
                    device.call("model_load", limit=MAX_SECONDS, library=name, programs=self.programs)
                    self._there[path] = name
                return device.call(handler, limit=MAX_SECONDS, library=self._there[path])
            except DeviceLost as error:
                why = str(error)
                self._release(error)
        raise WmschedError(
            f"{path.name}: {MAX_LOSSES} devices could not time the model; the last: {why[-500:]}"
        )

    def drop(self, path: Path) -> None:
        """Have the device forget a library."""
        if (name := self._there.pop(path, None)) is not None:
            with suppress(DeviceLost):  # the next question is another device's
                self._device.call("model_drop", library=name)

    def _hold(self) -> Any:
        if self._held is None:
            held = ExitStack()
            self._device = held.enter_context(self.devices.fleet.one())
            self._held, self.name = held, self._device.name
            with tempfile.TemporaryDirectory(prefix="wmsched-inputs-") as folder:
                file = Path(folder) / "inputs.bin"
                tensors = {str(k): tvm.runtime.from_dlpack(data) for k, data in enumerate(self.inputs)}
                file.write_bytes(tvm.runtime.save_param_dict(tensors))
                name = self._device.upload(file)
            self._device.call("model_inputs", file=name, target=target_text(self.target))
        return self._device

    def _release(self, error: DeviceLost | None) -> None:
        held, self._held, self._there = self._held, None, {}
        if held is not None:
            with suppress(DeviceLost):
                held.__exit__(type(error) if error else None, error, None)


class _InModel:
    def __init__(self, device: OneDevice, path: Path) -> None:
        self.device, self.path = device, path
        self.calls: list[int] = []

    def __enter__(self) -> _InModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.device.drop(self.path)

    def run(self) -> list[float]:
        """Seconds of each program in one run of the model."""
        found, self.calls = self.device.ask("model_run", self.path)
        seconds: list[float] = found
        return seconds


class _Call:
    def __init__(self, device: OneDevice, path: Path) -> None:
        self.device, self.path = device, path

    def __call__(self) -> Any:
        raise NotImplementedError("a build on a device is timed there and returns nothing here")

    def timing(self) -> tuple[float, int]:
        """Seconds of some calls on the device, and their number."""
        elapsed, count = self.device.ask("model_time", self.path)
        return float(elapsed), int(count)
