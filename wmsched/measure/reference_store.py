"""Store references (`wmsched.measure.reference`) in a folder shared by timing processes. Needs no TVM."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from wmsched.measure.clock_probe import ClockProbe
from wmsched.measure.reference import Clock, Reference, paced

MAX_ARGUMENT_BYTES = 256 << 20  # a reference's arguments stay in memory
NOTE, LIBRARY, TRIAL = "reference.json", "library", "trial"


class ReferenceStore:
    """References in a folder, one a key; timing processes share them.

    Parameters
    ----------
    folder : path
    load : callable
        Takes a library's path and its stored arguments; returns the clock.

    Examples
    --------
    >>> store = ReferenceStore(folder, load)
    >>> store.put(key, "program.so", arguments)
    >>> reference = store.get(key)
    """

    def __init__(self, folder: str | Path, load: Callable[[str, Sequence[Any]], Clock]) -> None:
        self.folder, self.load = Path(folder), load
        self._key = ""  # key of the reference that is loaded
        self._reference: Reference | None = None
        self._about: dict[str, Any] = {}  # library name and arguments of that reference
        self._pulse: ClockProbe | None = None

    def get(self, key: str) -> Reference | None:
        """Return the reference of `key`; None if there is none, or if it once crashed a process."""
        if self._key == key and self._reference is not None:
            return self._reference
        place = self.folder / key
        try:
            note = json.loads((place / NOTE).read_text(encoding="utf-8"))
        except OSError:
            return None
        if (place / TRIAL).exists():
            self.drop(key)
            return None
        self._reference = None  # free the previous one first
        try:
            (place / TRIAL).touch()
            clock = self.load(str(place / LIBRARY / note["library"]), note["arguments"])
            best = math.inf if note["best"] is None else note["best"]
            reference = Reference(clock, note["base"], best)
            reference.now()
            (place / TRIAL).unlink()
        except Exception:  # any failure here is not the fault of the program to be timed
            self.drop(key)
            return None
        self._key, self._reference = key, reference
        self._about = {"library": note["library"], "arguments": note["arguments"]}
        return reference

    def pulse(self) -> ClockProbe:
        """Return the CPU's clock probe; all users of this folder share its full speed."""
        if self._pulse is None:
            self._pulse = ClockProbe(self.folder / "pulse.json")
        return self._pulse

    def put(
        self, key: str, library: str | Path, arguments: Sequence[Any], old: Reference | None = None
    ) -> Reference | None:
        """Make the program in `library` the reference of `key`; return it, or None if it cannot be one.

        Parameters
        ----------
        key : str
            A folder name.
        library : path
            The compiled program; it is copied.
        arguments : sequence
            Arguments for `load`, of JSON types.
        old : Reference, optional
            The reference that it replaces. The new one's full-speed time is measured with it.
        """
        new = self.folder / f"{key}.{os.getpid()}"
        try:
            return self._put(key, new, Path(library), arguments, old)
        except Exception:  # full disk, deleted folder, failing program: go on without a reference
            self.drop(key)
            return None
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _put(
        self, key: str, new: Path, library: Path, arguments: Sequence[Any], old: Reference | None
    ) -> Reference | None:
        shutil.rmtree(new, ignore_errors=True)
        (new / LIBRARY).mkdir(parents=True)
        # A fresh name: dlopen returns the old library for a path that it has loaded before.
        name = f"{uuid.uuid4().hex}-{library.name}"
        shutil.copy2(library, new / LIBRARY / name)
        clock = self.load(str(new / LIBRARY / name), arguments)
        if old is None:
            reference = Reference.first(clock, self.pulse())
        else:
            old.begin()
            once = paced(clock)
            (base,), _ = old.beside(lambda: ((paced(clock, once),), False))
            reference = Reference(clock, base, old.best)
        if reference is None:
            return None
        shutil.rmtree(self.folder / key, ignore_errors=True)
        new.rename(self.folder / key)
        self._key, self._reference = key, reference
        self._about = {"library": name, "arguments": arguments}
        self._note(reference)
        return reference

    def believe(self, cost: float) -> None:
        """Lower the loaded reference's best cost to `cost` seconds."""
        reference = self._reference
        if reference is not None and cost < reference.best:
            reference.best = cost
            with suppress(OSError):  # only later processes read the note, and they can do without
                self._note(reference)

    def drop(self, key: str) -> None:
        """Delete the reference of `key`."""
        shutil.rmtree(self.folder / key, ignore_errors=True)
        self._key, self._reference = "", None

    def _note(self, reference: Reference) -> None:
        best = reference.best if math.isfinite(reference.best) else None
        note = {**self._about, "base": reference.base, "best": best}
        new = self.folder / self._key / f"{NOTE}.new"
        new.write_text(json.dumps(note), encoding="utf-8")
        new.replace(self.folder / self._key / NOTE)


def fits(arguments: Iterable[tuple[Sequence[int], str]]) -> bool:
    """Return whether a program's arguments, as (shape, dtype), are small enough to stay in memory."""
    bits = sum(math.prod(shape) * int((re.findall(r"\d+", dtype) or ["8"])[0]) for shape, dtype in arguments)
    return bits <= 8 * MAX_ARGUMENT_BYTES
