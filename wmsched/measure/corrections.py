"""Corrections of measured programs whose reference's base was revised since; needs no TVM.

The timing process (`ReferenceStore`) writes a journal into its folder: the scale of each program that it has
timed, and each revision. The searching process reads it, and corrects its records.
"""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

JOURNAL = "journal.jsonl"
PROGRAM, REVISED = "program", "revised"  # kinds of lines


class Corrections:
    """A folder of references, and what their revisions change.

    Examples
    --------
    >>> corrections = Corrections()
    >>> corrections.due()  # {program: factor}, each factor once
    {}
    """

    def __init__(self) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="wmsched-paired-")
        self.folder = self._own.name
        self._read = 0  # bytes
        self._scales: dict[str, float] = {}  # by lineage, the latest
        self._programs: dict[str, tuple[str, float]] = {}  # lineage, and scale of the known cost

    def due(self) -> dict[str, float]:
        """Return the programs whose cost is to be multiplied since the last call, and by what."""
        for kind, *row in self._lines():
            if kind == PROGRAM:
                program, lineage, scale = row
                self._programs[program] = lineage, scale
            else:
                lineage, scale = row
            self._scales[lineage] = scale
        found = {}
        for program, (lineage, scale) in self._programs.items():
            latest = self._scales[lineage]
            if not math.isclose(latest, scale, rel_tol=1e-9):
                found[program] = latest / scale
                self._programs[program] = lineage, latest
        return found

    def _lines(self) -> list[list[Any]]:
        """The lines that were ended since the last call."""
        path = Path(self.folder) / JOURNAL
        try:
            with path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line) for line in whole.splitlines() if line.strip()]
