"""Made up for the timing of programs: a processor whose speed comes and goes, and libraries on it."""

from __future__ import annotations

from pathlib import Path

from wmsched.measure.clock_probe import ClockProbe
from wmsched.measure.reference_store import ReferenceStore

SHAPES = [([4, 4], "float32")]


class Machine:
    """Programs take their seconds times what the machine's slowness is at the time."""

    def __init__(self, *slowness: float) -> None:
        self.slowness, self.timings = list(slowness), 0

    def take(self, seconds: float) -> float:
        self.timings += 1
        slow = self.slowness.pop(0) if len(self.slowness) > 1 else self.slowness[0]
        return seconds * slow

    def clock(self, seconds: float):
        return lambda count: (self.take(seconds),)

    def pulse(self, folder: Path, naps: list[float] | None = None) -> ClockProbe:
        """Its pulse, kept in the folder; what is slept goes to `naps`."""
        return ClockProbe(
            folder / "pulse.json", lambda: self.take(1e-4), ([] if naps is None else naps).append
        )


class Built:
    """A library's file, and what loads it on a machine of steady speed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.loaded = folder, []

    def library(self, seconds: float) -> Path:
        place = self.folder / f"build-{seconds}"
        place.mkdir(exist_ok=True)
        (place / "program.tar").write_text(str(seconds))
        return place / "program.tar"

    def load(self, path: str, arguments):
        self.loaded.append((path, arguments))
        seconds = float(Path(path).read_text())
        return lambda count: (seconds,) * count

    def shelf(self) -> ReferenceStore:
        (self.folder / "shelf").mkdir(exist_ok=True)
        (self.folder / "shelf" / "pulse.json").write_text("1e-9")  # any beat is slower: nothing is waited for
        shelf = ReferenceStore(self.folder / "shelf", self.load)
        shelf.pulse().full, shelf.pulse().beat = 1e-4, lambda: 1e-4
        return shelf
