"""What is made of the table: the page for people, and the header for the C++ reader."""

from __future__ import annotations

import textwrap

from wmsched.features.table import HARDWARE, PHI, TRACES, Column, Group

COMMAND = "python -m wmsched.features.table"
HEADER = "wmsched/metaschedule/native/columns_enum.h"
PAGE = "docs/reference/features.md"
WIDTH = 120  # characters of a line of prose

_INTRODUCTION = f"""# Features

<!-- Made by `{COMMAND} --docs {PAGE}`; change the table, not this page. -->

Every column that the ranker sees, in the order of its rows: phi, what a schedule does and the loops it leaves
behind; columns of MetaSchedule's traces alone; h, the machine. The table is `wmsched/features/table`; the
library's lists of names and the C++ reader's enum are made of it too.

- A bundle of AutoScheduler has phi and h, one of MetaSchedule has the traces' columns between them. A bundle
  whose ranker sees the program's state has the encoder's `z.0`, `z.1`, ... in front; these have no meaning
  one by one. `config.json` of a bundle names its columns.
- Log2(1 + x) is 0 for x = 0. NaN is missing, for the trees. Extents are in iterations, elements are float32.
- `cores` in phi is what `cores` in the bundle's `config.json` says for a CPU, 1 in all that are shipped: what
  trees learn of one number of cores does not hold for another. `parallel_slowdown` alone takes the real
  number of threads. For a GPU `cores` are its multiprocessors.
- Registers in phi hold 16 float32 and there are 32 of them, as with AVX-512. For a processor with others,
  `features.vector_width` restates the columns of vectors and registers as of a twin on AVX-512.
- "MetaSchedule" in the last column: traces have it alone. "AutoScheduler": 0 in traces.
"""


def page() -> str:
    """Text of ``docs/reference/features.md``."""
    return "\n".join([_INTRODUCTION, *(_section(group) for group in (*PHI, *TRACES, HARDWARE))])


def _section(group: Group) -> str:
    rows = [
        f"| `{c.name}` | {_cell(c.unit)} | {_cell(c.meaning)} | {_cell(c.formula)} | {c.scheduler} |"
        for c in group.columns
    ]
    head = ["| column | unit | meaning | formula | scheduler |", "| --- | --- | --- | --- | --- |"]
    note = textwrap.fill(group.note, WIDTH)
    return "\n".join([f"## {group.title}", "", note, "", *head, *rows, ""])


def _cell(text: str) -> str:
    """Text of a cell: Markdown must not take a product of three factors for emphasis."""
    return text.replace("*", "\\*").replace("|", "\\|")


def header() -> str:
    """Text of the C++ header: the enum of the columns that the reader computes, and their names."""
    columns = native_columns()
    lines = [
        f"// Made by `{COMMAND} --header {HEADER}`; change the table, not this file.",
        "#ifndef WMSCHED_COLUMNS_ENUM_H_",
        "#define WMSCHED_COLUMNS_ENUM_H_",
        "",
        "namespace wmsched {",
        "",
        "// The columns that are computed for each candidate, with the unit of each; in the table's order.",
        "enum Column {",
        *(f"  k_{column.name},  // {column.unit}" for column in columns),
        "  kColumns",
        "};",
        "",
        "inline constexpr const char* kColumnNames[kColumns] = {",
        *(f'    "{column.name}",' for column in columns),
        "};",
        "",
        "}  // namespace wmsched",
        "",
        "#endif  // WMSCHED_COLUMNS_ENUM_H_",
        "",
    ]
    return "\n".join(lines)


def native_columns() -> tuple[Column, ...]:
    """The columns that the C++ reader computes, in its order."""
    return tuple(column for group in (*PHI, *TRACES, HARDWARE) for column in group.columns if column.native)
