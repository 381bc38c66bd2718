"""Results blocks of a page: written from results files, and checked against them by a test.

There is one for each kind of processor; the first has no name. A block names the command that wrote it, so
that it can be made again from the same files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.methods import META
from benchmarks.outcomes import along, sooner
from benchmarks.outcomes.marks import Marks
from benchmarks.outcomes.outcomes import Outcomes
from benchmarks.outcomes.tables import Table, seeds
from benchmarks.plan import read_all
from benchmarks.report import against, sections, subgraph_table, whole
from benchmarks.report.model import Report
from benchmarks.studies import ceiling

COMMAND = re.compile(r"`python -m benchmarks\.report (.+?) --readme (?:\S+?)(?: --block [^\s`]+)?`")
PAGE = Path("benchmarks/results/results.md")
BEGINS = re.compile(r"<!-- results(?: (\S+))?:begin -->")
RESULTS = Path("benchmarks/results")  # what is committed
UNCONFIRMED = "Some schedules have not been measured a second time; their first measurement is used."


def marks(name: str = "") -> Marks:
    """What a block stands between."""
    which = f"results {name}".rstrip()
    return Marks(f"<!-- {which}:begin -->", f"<!-- {which}:end -->")


def names(page: str) -> list[str]:
    """The blocks of a page, "" for the one without a name."""
    return [found or "" for found in BEGINS.findall(page)]


def block(root: Path, files: Sequence[Path], name: str = "", *, page: Path = PAGE) -> str:
    """The block's text for results files, given as the page is relative to the repository `root`."""
    made = Report(Outcomes(read_all([root / file for file in files])))
    data = made.data
    if not data.all:
        raise ValueError(f"no run has finished in {', '.join(map(str, files))}: there is nothing to report")
    tables = made.overview() + _details(made)
    options = f" --block {name}" if name else ""
    parts = [
        f"### Results on {data.processor}" if name else "## Results",
        f"{_coverage(data)}, {_seeds(data)}. "
        "All of this is printed from the result lines in this repository, by "
        f"`python -m benchmarks.report {' '.join(file.as_posix() for file in files)} "
        f"--readme {page.as_posix()}{options}`; "
        "with `--html FILE` the same command makes a page with every task and figure.",
        sections.provenance(data),
        *(
            Table(title=t.title, head=t.head, rows=t.rows, note=t.note, level=4 if name else 3).markdown()
            for t in tables
        ),
    ]
    return "\n\n".join([*parts, *([UNCONFIRMED] if made.unconfirmed else [])])


def _details(made: Report) -> list[Table]:
    data = made.data
    tables: list[Table] = against.table3(data)
    for setting in data.settings:
        tables += sections.models(data, setting)
    return (
        tables
        + whole.tables(data)
        + along.tables(data)
        + sooner.tables(data)
        + subgraph_table.tables(data)
        + against.ablations(data)
        + sections.headroom(data)
        + ceiling.summary(data)
        + ceiling.models(data)
        + sections.costs(data)
        + made.offline()
    )


def _coverage(data: Outcomes) -> str:
    """How many of the representatives there are; for each search, where one has fewer than the other."""
    shown = set(data.representatives)
    counts = {
        name: len({run.task for run in data.all if run.method.startswith(META) == meta and run.task in shown})
        for name, meta in (("AutoScheduler", False), ("MetaSchedule", True))
    }
    some = {name: count for name, count in counts.items() if count}
    if set(some.values()) == {len(shown)}:
        return f"{len(shown)} of the {against.ALL} representative subgraphs"
    each = " and ".join(f"{count} in {name}" for name, count in some.items())
    return f"Of the {against.ALL} representative subgraphs {each}"


def _seeds(data: Outcomes) -> str:
    """How many seeds there are of each representative, method and setting: of some more than of others."""
    shown = set(data.representatives)
    cells = Counter(
        (run.task, run.method, outcome.setting) for run, outcome in data.all.items() if run.task in shown
    )
    return seeds(cells.values())


def command_of(text: str, name: str = "") -> list[Path]:
    """The results files named in a page's block. ValueError if it names none."""
    found = COMMAND.search(marks(name).between(text))
    if not found:
        raise ValueError(
            "the results block does not name the command that wrote it; write it with "
            f"python -m benchmarks.report FILES --readme {PAGE}{f' --block {name}' if name else ''}"
        )
    return [Path(name) for name in found.group(1).split()]


def write(path: Path, files: Sequence[Path], name: str = "") -> None:
    """Replace a block of the page at `path`; every file must be among the committed results."""
    page = path.resolve()
    root = next((each for each in page.parents if (each / RESULTS).is_dir()), page.parent)
    kept = []
    for file in files:
        try:
            kept.append(file.resolve().relative_to(root))
        except ValueError:
            kept.append(file)
        if not kept[-1].is_relative_to(RESULTS):
            raise ValueError(
                f"{file} is not in {RESULTS}/: copy it there and commit it, then write the block"
            )
    text = path.read_text(encoding="utf-8")
    marks(name).between(text)  # before the minute that the block takes
    made = block(root, kept, name, page=page.relative_to(root))
    path.write_text(marks(name).replaced(text, made), encoding="utf-8")
