"""Times a program beside another one, so that what else a shared machine does falls out of the ratio.

A processor of a virtual machine runs at full speed for some seconds and at 1.5 to 1.8 times a program's time
for the next, while a neighbour has the other half of its core. Medians do not see that: all calls of one
candidate fall into one spell or the other. A reference that is called just before and just after is slowed
with it. On such a Xeon the times of one program vary by 0.13 to 0.28 (standard deviation of the logarithm) by
themselves and by 0.02 to 0.06 beside a reference (`benchmarks.timing_noise`).

No TVM here: what a timing is comes from `placements` and `meta_places`, in their runners' processes, where
this code is sent to.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean, median
from typing import Any

FLIP = 1.1  # a reference whose two times differ by more was disturbed in between: the timing is repeated,
AGAIN = 3  # so many times a program
BEATS, PAUSE = 5, 0.1  # beats that full speed is first taken from, and seconds between them
WAITS, TIMINGS = 15, 3  # pauses at most for full speed, before so many timings of a new reference
PRODUCTS, SIDE, TIMES = 100, 48, 5  # matrix products in a beat's timing, their extents, timings in a beat
CALLS, CALLS_SECONDS = 10, 0.01  # of the reference each time: so many, fewer if they take longer
MOST_SECONDS = 0.05  # a call of a slower program lasts long enough to see both kinds of spell
CLEARLY = 1.05  # a program that is the best so far by so much is timed a third time
FASTER = 1.5  # a program so many times as fast as the reference is the better one
MOST_BYTES = 256 << 20  # of arguments: a reference's stay in memory
NOTE, LIBRARY, TRIAL = "reference.json", "library", "trial"

#: Called with a number of calls, the seconds of each; it may make another number of them.
Clock = Callable[[int], Sequence[float]]


class Lost(Exception):
    """The reference cannot be timed any more."""


class Reference:
    """A program that was timed before, whose time at full speed is known.

    Parameters
    ----------
    clock : callable
        Times the program now.
    base : float
        Seconds it takes at full speed, as far as that was seen.
    best : float
        The least cost that a program timed beside it has had, seconds.
    """

    def __init__(self, clock: Clock, base: float, best: float = math.inf) -> None:
        self.clock, self.base, self.best = clock, base, best
        self._left = AGAIN
        self._last: float | None = None  # its time just now

    @classmethod
    def first(cls, clock: Clock, pulse: Pulse) -> Reference | None:
        """A program that nothing was timed beside before; None if it is too slow to be one."""
        once = settled(clock(1))
        if not 0.0 < once <= MOST_SECONDS:
            return None
        pulse.wait()
        seconds = []
        for _ in range(TIMINGS):
            before = pulse.speed()
            now = settled(clock(calls(once)))
            seconds.append(now * math.sqrt(before * pulse.speed()))
        return cls(clock, median(seconds))

    def begin(self) -> None:
        """A program's timing begins: nothing of the one before is taken up."""
        self._left, self._last = AGAIN, None

    def beside(self, timing: Callable[[], tuple[tuple[float, ...], bool]]) -> tuple[tuple[float, ...], bool]:
        """The costs that `timing` finds, as at full speed: times `base` over the reference's time around it.

        What it finds besides, whether the program is slow, is passed on.

        A timing around which the speed changed is repeated, `AGAIN` times a program; of the last one counts
        what the costs are at most.

        Raises
        ------
        Lost
            The reference fails. What `timing` raises is passed on.
        """
        while True:
            before = self._last if self._last is not None else self.now()
            found, slow = timing()
            after = self._last = self.now()
            steady = max(before, after) <= FLIP * min(before, after)
            if steady or not self._left:
                # Which of the two speeds the program had is not known: it must not win by the slower one.
                around = math.sqrt(before * after) if steady else min(before, after)
                return tuple(cost * self.base / around for cost in found), slow
            self._left -= 1

    def now(self) -> float:
        """Seconds that the reference takes now; `Lost` if it fails."""
        try:
            return settled(self.clock(calls(self.base)))
        except Exception as error:
            raise Lost(f"{type(error).__name__}: {error}") from error


class Pulse:
    """How much of its full speed, the best seen so far, the processor has now.

    Of use where nothing of the task has been timed yet: it measures arithmetic in the first cache, and a
    program that waits for memory is slowed less.

    Parameters
    ----------
    path : path
        A file that full speed is kept in.
    beat : callable, optional
        Times the same work each time, seconds.
    sleep : callable, optional
    """

    def __init__(
        self,
        path: str | Path,
        beat: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path, self.beat, self.sleep = Path(path), beat or products(), sleep
        try:
            self.full = float(json.loads(self.path.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            self.full = math.inf
            for _ in range(BEATS):
                self.speed()
                sleep(PAUSE)

    def speed(self) -> float:
        """From 0 to 1, which is full speed."""
        now = self.beat()
        if now < self.full:
            self.full = now
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(now), encoding="utf-8")
            new.replace(self.path)
        return self.full / now

    def wait(self) -> None:
        """Until it has full speed, but not for long."""
        for _ in range(WAITS):
            if self.speed() * FLIP >= 1.0:
                return
            self.sleep(PAUSE)


def products() -> Callable[[], float]:
    """A beat: products of small matrices, which one core has in its registers and first cache."""
    import numpy as np

    factor = np.ones((SIDE, SIDE), np.float32)
    product = np.empty_like(factor)

    def beat() -> float:
        seconds = []
        for _ in range(TIMES):
            start = time.perf_counter()
            for _ in range(PRODUCTS):
                np.matmul(factor, factor, out=product)
            seconds.append(time.perf_counter() - start)
        return median(seconds)

    return beat


def fits(arguments: Iterable[tuple[Sequence[int], str]]) -> bool:
    """Whether a program with arguments of such shapes and types can stay in memory as a reference."""
    bits = sum(math.prod(shape) * int((re.findall(r"\d+", dtype) or ["8"])[0]) for shape, dtype in arguments)
    return bits <= 8 * MOST_BYTES


def settled(timings: Sequence[float]) -> float:
    """What the calls of a reference, one after the other, come to: the median of the later half.

    Other programs have just run, and the first calls find what they read farther away than the next ones do,
    of a Zen 5 twice as slow as the fifth. A time of all of them would depend on what was timed before.
    """
    return median(timings[len(timings) // 2 :])


def calls(seconds: float) -> int:
    """How many calls of a program that takes so many seconds make one time of a reference."""
    return max(1, min(CALLS, int(CALLS_SECONDS / seconds)))


class Shelf:
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
        self._pulse: Pulse | None = None

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

    def pulse(self) -> Pulse:
        """The processor's; what full speed is, is known to all that use this folder."""
        if self._pulse is None:
            self._pulse = Pulse(self.folder / "pulse.json")
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
        except OSError:  # no room, or somebody has tidied up: it goes without, as before
            self.drop(key)
            return None
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _put(
        self, key: str, new: Path, library: Path, arguments: Sequence[Any], old: Reference | None
    ) -> Reference | None:
        shutil.rmtree(new, ignore_errors=True)
        (new / LIBRARY).mkdir(parents=True)
        shutil.copy2(library, new / LIBRARY)
        clock = self.load(str(new / LIBRARY / library.name), arguments)
        if old is None:
            reference = Reference.first(clock, self.pulse())
        else:
            old.begin()
            once = settled(clock(1))
            (base,), _ = old.beside(lambda: ((settled(clock(calls(once))),), False))
            reference = Reference(clock, base, old.best)
        if reference is None:
            return None
        shutil.rmtree(self.folder / key, ignore_errors=True)
        new.rename(self.folder / key)
        self._key, self._reference = key, reference
        self._about = {"library": library.name, "arguments": arguments}
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


def costs_of(
    places: int,
    prepare: Callable[[int], Callable[[], tuple[tuple[float, ...], bool]]],
    shelf: Shelf | None,
    key: str,
    library: str | Path,
    arguments: Sequence[Any],
) -> tuple[float, ...]:
    """A program's costs on its sets of buffers, beside its task's reference.

    Where the task has none yet the program becomes it, and where it is much faster than the one there is. The
    best so far is timed again on other sets, a third time if it is `CLEARLY` so, and the slowest of these
    counts: the best of many is often a lucky one.

    Parameters
    ----------
    places : int
        How many sets.
    prepare : callable
        Given a set's number, from 0 on, what finds the costs there, in seconds, and whether the program is
        too slow for another.
    shelf : Shelf or None
        None: the program is timed by itself.
    key : str
        Tells the task from others.
    library, arguments
        See `Shelf.put`.
    """

    def all_places(reference: Reference | None, first: int = 0) -> tuple[float, ...]:
        costs: tuple[float, ...] = ()
        for place in range(first, first + places):
            timing = None  # the last set's buffers are freed before
            timing = prepare(place)
            found, slow = timing() if reference is None else reference.beside(timing)
            costs += found
            if slow:
                break
        return costs

    if shelf is None:
        return all_places(None)
    key = hashlib.sha256(key.encode()).hexdigest()[:32]  # the name of a folder
    reference = shelf.get(key)
    if reference is None:
        alone = all_places(None)
        # A task whose programs are all too slow has never a reference: none is loaded to find that out.
        if min(alone) > MOST_SECONDS or (reference := shelf.put(key, library, arguments)) is None:
            return alone
    reference.begin()
    try:
        costs = all_places(reference)
        for number, better in enumerate((1.0, CLEARLY), 1):
            if fmean(costs) * better >= reference.best:
                break
            reference.begin()
            costs = max(costs, all_places(reference, number * places), key=fmean)
        if fmean(costs) < reference.best:
            shelf.believe(fmean(costs))
            if fmean(costs) * FASTER < reference.base:
                shelf.put(key, library, arguments, reference)
    except Lost:
        shelf.drop(key)
        costs = all_places(None)
    return costs
