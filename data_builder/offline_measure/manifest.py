"""What a parcel holds, as its builders list it; `parcel` says what a parcel is. Needs no TVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from data_builder.offline_measure.time_parcel import FOLDER, PROGRAMS, mend, rows


class ParcelList:
    """The programs of a parcel by key; a folder that is none yet becomes one.

    Parameters
    ----------
    folder : Path
        Of the parcel. A line that a kill left unfinished is cut off: its program is built again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        mend(folder / PROGRAMS)
        self._keys = {row["key"] for row in rows(folder / PROGRAMS)}

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def library(self, key: str) -> Path:
        """Where the library of a program is, or goes before it is listed."""
        return self.folder / FOLDER / f"{key}.so"

    def add(self, key: str, arguments: list[Any]) -> None:
        """List a program whose library is in place, with TVM's JSON of each argument."""
        with open(self.folder / PROGRAMS, "ab") as stream:
            stream.write(orjson.dumps({"key": key, "arguments": arguments}) + b"\n")
        self._keys.add(key)
