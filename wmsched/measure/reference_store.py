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
from wmsched.measure.corrections import JOURNAL, PROGRAM, REVISED
from wmsched.measure.evidence import Pace, append, too_high
from wmsched.measure.reference import Clock, Patience, Reference, paced

MAX_ARGUMENT_BYTES = 256 << 20  # a reference's arguments stay in memory
NOTE, LIBRARY, TRIAL = "reference.json", "library", "trial"
PACE = "pace.jsonl"
MAX_HIGHER = 2  # revisions of a lineage to a higher base: evidence for these is weaker


class ReferenceStore:
    """References in a folder, one a key; timing processes share them.

    Parameters
    ----------
    folder : path
    load : callable
        Takes a library's path and its stored arguments; returns the clock.
    revises : bool
        Whether bases are revised (`wmsched.measure.evidence`). Whoever asks for it reads the folder's journal
        (`wmsched.measure.corrections`) and corrects what it has recorded.

    Examples
    --------
    >>> store = ReferenceStore(folder, load)
    >>> store.put(key, "program.so", arguments)
    >>> reference = store.get(key)
    """

    def __init__(
        self, folder: str | Path, load: Callable[[str, Sequence[Any]], Clock], *, revises: bool = False
    ) -> None:
        self.folder, self.load, self.revises = Path(folder), load, revises
        self.patience = Patience()
        self._key = ""  # key of the reference that is loaded
        self._reference: Reference | None = None
        self._about: dict[str, Any] = {}  # what else is noted of that reference
        self._pulse: ClockProbe | None = None
        self._pace: Pace | None = None

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
            reference = Reference(clock, note["base"], best, self.patience)
            reference.now()
            (place / TRIAL).unlink()
        except Exception:  # any failure here is not the fault of the program to be timed
            self.drop(key)
            return None
        self._key, self._reference = key, reference
        self._about = {name: value for name, value in note.items() if name not in ("base", "best")}
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
            reference = Reference.first(clock, self.pulse(), self.patience)
        else:
            old.begin()
            once = paced(clock)
            (base,), _ = old.beside(lambda: ((paced(clock, once),), False))
            reference = Reference(clock, base, old.best, self.patience)
        if reference is None:
            return None
        shutil.rmtree(self.folder / key, ignore_errors=True)
        new.rename(self.folder / key)
        about = {"lineage": uuid.uuid4().hex, "scale": 1.0, "higher": 0} if old is None else self._about
        self._key, self._reference = key, reference
        self._about = {**about, "library": name, "arguments": arguments, "lows": []}
        self._note(reference)
        return reference

    def believe(self, cost: float) -> None:
        """Lower the loaded reference's best cost to `cost` seconds."""
        reference = self._reference
        if reference is not None and cost < reference.best:
            reference.best = cost
            with suppress(OSError):  # only later processes read the note, and they can do without
                self._note(reference)

    def settle(self, program: str) -> float:
        """Revise the loaded reference's base by what it took beside the last program.

        What is noted of the program, and of revisions, is for `wmsched.measure.corrections`.

        Returns
        -------
        factor : float
            The new base over the old one, by which the program's costs are to be multiplied.
        """
        reference = self._reference
        if reference is None or not self.revises:
            return 1.0
        factor = 1.0
        with suppress(OSError):  # without a disk nothing is revised
            if reference.steady:
                factor = self._judge(reference, min(reference.steady))
            append(self.folder / JOURNAL, (PROGRAM, program, self._about["lineage"], self._about["scale"]))
        reference.steady.clear()
        return factor

    def _judge(self, reference: Reference, seconds: float) -> float:
        self._about["lows"] = sorted([*self._about["lows"], seconds])[:2]
        factor, base = 1.0, reference.base
        if (lower := too_high(self._about["lows"], base)) is not None:
            factor = lower / base
            self._about["scale"] *= factor
            append(self.folder / JOURNAL, (REVISED, self._about["lineage"], self._about["scale"]))
            reference.base, reference.best = lower, reference.best * factor
        if self._pace is None:
            self._pace = Pace(self.folder / PACE)
        self._pace.add(self._about["lineage"], seconds, reference.base, self.pulse().speed())
        if (found := self._pace.too_low()) is not None:
            self._raise(*found)
        self._note(reference)
        return factor

    def _raise(self, lineage: str, base: float, seconds: float) -> None:
        """Give another task's reference the higher base `seconds`, if it still has `base`."""
        for place in self.folder.glob(f"*/{NOTE}"):
            note = json.loads(place.read_text(encoding="utf-8"))
            if note["lineage"] != lineage or note["base"] != base or note["higher"] >= MAX_HIGHER:
                continue
            factor = seconds / base
            note["base"], note["scale"], note["higher"] = seconds, note["scale"] * factor, note["higher"] + 1
            note["best"] = None if note["best"] is None else note["best"] * factor
            append(self.folder / JOURNAL, (REVISED, lineage, note["scale"]))
            _write(place, note)

    def drop(self, key: str) -> None:
        """Delete the reference of `key`."""
        shutil.rmtree(self.folder / key, ignore_errors=True)
        self._key, self._reference = "", None

    def _note(self, reference: Reference) -> None:
        best = reference.best if math.isfinite(reference.best) else None
        note = {**self._about, "base": reference.base, "best": best}
        _write(self.folder / self._key / NOTE, note)


def _write(place: Path, note: dict[str, Any]) -> None:
    new = place.with_name(f"{NOTE}.new")
    new.write_text(json.dumps(note), encoding="utf-8")
    new.replace(place)


def fits(arguments: Iterable[tuple[Sequence[int], str]]) -> bool:
    """Return whether a program's arguments, as (shape, dtype), are small enough to stay in memory."""
    bits = sum(math.prod(shape) * int((re.findall(r"\d+", dtype) or ["8"])[0]) for shape, dtype in arguments)
    return bits <= 8 * MAX_ARGUMENT_BYTES
