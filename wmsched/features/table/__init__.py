"""Every column that the ranker sees: name, unit, meaning, formula and scheduler, in one place.

The Python lists of names, ``docs/reference/features.md`` and the C++ reader's enum are made of it. A test
compares the three.

    python -m wmsched.features.table --docs docs/reference/features.md \\
        --header wmsched/metaschedule/native/columns_enum.h

A new column goes to the end of its group or to a new group. A bundle keeps the names of its columns, so
bundles of before leave the new one out.
"""

from wmsched.features.table.column import Column, Group
from wmsched.features.table.hardware import HARDWARE
from wmsched.features.table.kernel import BODY, KERNEL, TRAFFIC
from wmsched.features.table.schedule import PHI
from wmsched.features.table.trace import CARD, TRACES

__all__ = [
    "BODY",
    "CARD",
    "FEATURE_NAMES",
    "FEATURE_TABLE",
    "HARDWARE",
    "HARDWARE_NAMES",
    "KERNEL",
    "PHI",
    "TRACES",
    "TRACE_NAMES",
    "TRAFFIC",
    "Column",
    "Group",
]

#: Columns of phi, for both schedulers; columns of MetaSchedule's traces alone; columns of h.
FEATURE_NAMES: tuple[str, ...] = tuple(name for group in PHI for name in group.names)
TRACE_NAMES: tuple[str, ...] = tuple(name for group in TRACES for name in group.names)
HARDWARE_NAMES: tuple[str, ...] = HARDWARE.names

#: All of them, in the order of a ranker's row.
FEATURE_TABLE: tuple[Column, ...] = tuple(
    column for group in (*PHI, *TRACES, HARDWARE) for column in group.columns
)
