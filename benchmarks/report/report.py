"""`python -m benchmarks.report RESULTS...` with `--md`, `--png`, `--html`, `--readme`, `--block`.

Tables and figures from results files (JSON lines of `benchmarks.run`, `benchmarks.models.pytorch` and
`benchmarks.offline.offline`, gzipped or not), and from nothing else. A latency is the median of the second,
interleaved measurement; a run without one (a simulated run, or a kill before it) is shown by its first
measurement, with "*".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.outcomes import along, sooner
from benchmarks.outcomes.outcomes import Outcomes
from benchmarks.plan import Line, read_all
from benchmarks.report import against, sections, subgraph_table, whole
from benchmarks.report.tables import Table
from benchmarks.studies import ceiling

FIRST = "\\* the first measurement: these schedules have not been measured again."


class Report:
    """What is told about some outcomes, in order; Markdown, HTML and README take their parts from here."""

    def __init__(self, data: Outcomes) -> None:
        self.data = data

    @property
    def simulated(self) -> bool:
        return any(o.line.get("simulated") for o in self.data.all.values())

    @property
    def title(self) -> str:
        return "Benchmark results" + (
            " (simulated: recorded measurements replayed)" if self.simulated else ""
        )

    @property
    def unconfirmed(self) -> bool:
        """Whether some latency is a first measurement only."""
        return not self.simulated and not all(o.again for o in self.data.all.values())

    def overview(self) -> list[Table]:
        """The paper's figures and ours, and the means."""
        data = self.data
        return [
            *against.claims(data),
            *sections.summary(data),
            *sections.cross_budget(data),
            *sections.smaller_rounds(data),
        ]

    def details(self) -> list[Table]:
        """Every task, model and time."""
        data, tables = self.data, against.table3(self.data)
        for setting in data.settings:
            tables += sections.latencies(data, setting) + sections.speedups(data, setting)
        for setting in data.settings:
            tables += sections.models(data, setting)
        tables += sections.coverage(data) + whole.tables(data) + subgraph_table.tables(data)
        tables += (
            sections.headroom(data)
            + ceiling.tables(data)
            + ceiling.models(data)
            + sections.times(data)
            + along.tables(data)
            + sooner.tables(data)
            + against.efficiency(data)
            + against.ablations(data)
        )
        return tables + sections.costs(data) + self.offline()

    def offline(self) -> list[Table]:
        """The ranking of recorded programs, if `benchmarks.offline.offline` has written any."""
        lines = self.data.others.get("offline")
        if not lines:
            return []
        from benchmarks.offline import offline

        return [offline.table(lines)]

    def markdown(self) -> str:
        """All tables that the lines have data for."""
        troubles = sections.troubles(self.data)
        if not self.data.all and not self.data.others:
            return "No run has finished.\n" + troubles
        parts = [f"# {self.title}", sections.provenance(self.data)]
        parts += [table.markdown() for table in self.overview() + self.details()]
        parts += [FIRST] if self.unconfirmed else []
        return "\n\n".join(part for part in [*parts, troubles] if part) + "\n"


def markdown(lines: Sequence[Line], *, ours: Sequence[str] = ()) -> str:
    """All tables of some result lines."""
    return Report(Outcomes(lines, ours=ours)).markdown()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument(
        "--ours", default="", help="methods whose speedups are reported, by commas (wmsched...)"
    )
    parser.add_argument("--md", type=Path, help="write the tables here instead of printing them")
    parser.add_argument("--png", type=Path, help="plot the speedups here, and the time curves beside it")
    parser.add_argument("--html", type=Path, help="write one page with all tables and figures in it")
    parser.add_argument("--readme", type=Path, help="write this page's results block")
    parser.add_argument(
        "--block", default="", help="which of its blocks, by the name in its marks; the one without"
    )
    options = parser.parse_args(argv)
    try:
        data = Outcomes(read_all(options.results), ours=[m for m in options.ours.split(",") if m])
        made = Report(data)
        if options.md:
            options.md.write_text(made.markdown(), encoding="utf-8")
            print(options.md)
        if options.png:
            from benchmarks.report import plots

            for path in plots.draw(data, options.png):
                print(path)
        if options.html:
            from benchmarks.report import page

            options.html.write_text(page.html(made), encoding="utf-8")
            print(options.html)
        if options.readme:
            from benchmarks.report import readme

            readme.write(options.readme, options.results, options.block)
            print(options.readme)
        if not (options.md or options.html or options.readme):
            print(made.markdown())
    except (ValueError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    return 0
