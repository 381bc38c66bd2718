"""Libraries of a folder with several shapes, as one function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wmsched.tune.shapes.pick import Picker, cut, padded

__all__ = ["Parts"]


class Parts:
    """The shapes of a folder; a shape's library is loaded at the first call that it serves.

    Parameters
    ----------
    folder : Path
    about : mapping
        Its ``model.json``.
    open_model : callable (folder) -> TunedModel
        Loads one shape's folder.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], open_model: Callable[[Path], Any]) -> None:
        self.folders = [folder / one["folder"] for one in about["shapes"]]
        self.specs = [one["inputs"] for one in about["shapes"]]
        self.pick = Picker(folder, self.specs, about.get("padding", []))
        self.open_model = open_model
        self._models: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._states = threading.Lock()  # held by a call where the shapes share states
        self._latest: Any = None  # the model that was called last, whose states go on
        self.keeps = bool(about.get("states"))

    def model(self, number: int) -> Any:
        """Return the tuned model of a shape."""
        found = self._models.get(number)
        if found is None:
            with self._lock:
                found = self._models.get(number)
                if found is None:
                    found = self._models[number] = self.open_model(self.folders[number])
        return found

    def of(self, inputs: Sequence[Any]) -> Any:
        """Return the tuned model whose shape inputs have, or fit in with padding."""
        return self.model(self._picked(inputs))

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """Run the model on inputs in their order; raises what `TunedModel.__call__` does."""
        number = self._picked(inputs)
        model, specs = self.model(number), self.specs[number]
        if self.keeps:  # nothing is padded
            with self._states:
                self._go_on(model)
                return model(*inputs)
        if all(list(value.shape) == spec["shape"] for value, spec in zip(inputs, specs)):
            return model(*inputs)
        found = model.leaves([padded(value, spec["shape"]) for value, spec in zip(inputs, specs)])
        return model.rebuilt(cut(found, self.pick.cuts(inputs)))

    @contextmanager
    def state(self) -> Iterator[Any]:
        """The states that all shapes share, which no call changes meanwhile."""
        if not self.keeps:
            raise TypeError(f"{self.pick.folder}: the model has no states")
        with self._states:
            self._go_on(self._latest or self.model(0))
            yield self._latest.kept

    def _go_on(self, model: Any) -> None:
        """Have a shape's model go on with the states as the last call left them."""
        if self._latest is not None and self._latest is not model:
            model.kept.share(self._latest.kept)
        self._latest = model

    def _picked(self, inputs: Sequence[Any]) -> int:
        for value, spec in zip(inputs, self.specs[0]):
            if not hasattr(value, "shape"):
                raise TypeError(
                    f"{self.pick.folder}: input {spec['name']} is a {type(value).__name__}: a numpy array or "
                    "a PyTorch tensor is wanted"
                )
        return self.pick(inputs)
