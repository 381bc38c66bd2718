"""References in a folder (`wmsched.measure.reference`), for the processes that time programs. No TVM."""

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

MOST_BYTES = 256 << 20  # of arguments: a reference's stay in memory
NOTE, LIBRARY, TRIAL = "reference.json", "library", "trial"


class ReferenceStore:
    """References in a folder, one for each key: the processes that time programs come and go.

    Parameters
    ----------
    folder : path
    load : callable
        Given the library's path and the arguments that were put beside it, makes the clock.
    """

    def __init__(self, folder: str | Path, load: Callable[[str, Sequence[Any]], Clock]) -> None:
        self.folder, self.load = Path(folder), load
        self._key = ""  # the last one that was used stays loaded
        self._reference: Reference | None = None
        self._about: dict[str, Any] = {}  # its library's name and arguments
        self._pulse: ClockProbe | None = None

    def get(self, key: str) -> Reference | None:
        """The reference of `key`; None if there is none, or it has ended a process."""
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
        self._reference = None  # the one before is freed first
        try:
            (place / TRIAL).touch()
            clock = self.load(str(place / LIBRARY / note["library"]), note["arguments"])
            best = math.inf if note["best"] is None else note["best"]
            reference = Reference(clock, note["base"], best)
            reference.now()
            (place / TRIAL).unlink()
        except Exception:  # whatever it is, it is not the fault of the program that is to be timed
            self.drop(key)
            return None
        self._key, self._reference = key, reference
        self._about = {"library": note["library"], "arguments": note["arguments"]}
        return reference

    def pulse(self) -> ClockProbe:
        """The processor's; what full speed is, is known to all that use this folder."""
        if self._pulse is None:
            self._pulse = ClockProbe(self.folder / "pulse.json")
        return self._pulse

    def put(
        self, key: str, library: str | Path, arguments: Sequence[Any], old: Reference | None = None
    ) -> Reference | None:
        """Make the program in `library` the reference of `key`; None if it cannot be one.

        Parameters
        ----------
        key : str
            The name of a folder.
        library : path
            The file to load, which is copied.
        arguments : sequence
            What `load` is to get, as JSON can have it.
        old : Reference, optional
            The one that it takes the place of, and beside which its time at full speed is found.
        """
        new = self.folder / f"{key}.{os.getpid()}"
        try:
            return self._put(key, new, Path(library), arguments, old)
        except Exception:  # no room, somebody has tidied up, a program that fails: it goes without, as before
            self.drop(key)
            return None
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _put(
        self, key: str, new: Path, library: Path, arguments: Sequence[Any], old: Reference | None
    ) -> Reference | None:
        shutil.rmtree(new, ignore_errors=True)
        (new / LIBRARY).mkdir(parents=True)
        # A name that no library here ever had: of a path that it has loaded the system gives the same one
        # again, the reference that this takes the place of, whatever lies there now.
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
        """The last reference's best cost is no more than `cost`."""
        reference = self._reference
        if reference is not None and cost < reference.best:
            reference.best = cost
            with suppress(OSError):  # for processes to come, which can do without
                self._note(reference)

    def drop(self, key: str) -> None:
        """Forget the reference of `key`."""
        shutil.rmtree(self.folder / key, ignore_errors=True)
        self._key, self._reference = "", None

    def _note(self, reference: Reference) -> None:
        best = reference.best if math.isfinite(reference.best) else None
        note = {**self._about, "base": reference.base, "best": best}
        new = self.folder / self._key / f"{NOTE}.new"
        new.write_text(json.dumps(note), encoding="utf-8")
        new.replace(self.folder / self._key / NOTE)


def fits(arguments: Iterable[tuple[Sequence[int], str]]) -> bool:
    """Whether a program with arguments of such shapes and types can stay in memory as a reference."""
    bits = sum(math.prod(shape) * int((re.findall(r"\d+", dtype) or ["8"])[0]) for shape, dtype in arguments)
    return bits <= 8 * MOST_BYTES
