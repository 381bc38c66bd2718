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

from benchmarks.outcomes.outcomes import Outcomes
from benchmarks.plan import Line, read_all
from benchmarks.report.model import Report


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
