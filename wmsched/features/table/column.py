"""A column of the ranker's input, and a group of columns that are read together."""

from __future__ import annotations

from typing import Literal, NamedTuple

Scheduler = Literal["both", "AutoScheduler", "MetaSchedule"]


class Column(NamedTuple):
    """One column.

    Attributes
    ----------
    name : str
    unit : str
        What a value counts, and its scale: "log2(1 + bytes)" is the logarithm of a number of bytes.
    meaning : str
        One to three sentences.
    formula : str
        Of the quantity that the unit names.
    scheduler : "both", "AutoScheduler" or "MetaSchedule"
        Whose schedules the column tells apart. "AutoScheduler": in traces it is 0.
    native : bool
        Whether the C++ reader computes it for each candidate. The others are equal for all that it reads.
    """

    name: str
    unit: str
    meaning: str
    formula: str
    scheduler: Scheduler = "both"
    native: bool = True


class Group(NamedTuple):
    """Columns with a common subject, in the order of the ranker's row."""

    title: str
    note: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return tuple(column.name for column in self.columns)
