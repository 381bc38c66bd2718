r"""`python -m benchmarks.offline.ranking_table FILES`: docs/explanation/evaluation.md's tables from
`benchmarks.offline.ranking` lines.

    python -m benchmarks.offline.ranking_table benchmarks/results/state-* \
        --into docs/explanation/evaluation.md --offline benchmarks/results/offline.jsonl.gz

Lines of `benchmarks.offline.offline` stand in for methods that the files have no lines of: they are of the
same records and held out by network too, but hold no regret.
Intervals hold 95 % of 2,000 bootstrap means over workloads; "less ours" is the mean of the differences
workload by workload, with its own interval.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.outcomes.marks import Marks
from wmsched.learn.evaluate.quality import Estimate, estimate

BASE = "ours"
MARKS = Marks("<!-- ranking begins -->", "<!-- ranking ends -->")
SHOWN = (("top1", "top-1"), ("top5", "top-5"), ("pairwise", "pairs"), ("tau", "tau"),
         ("regret16", "regret at 16"), ("regret64", "regret at 64"))  # fmt: skip
BY_OPERATOR = ("random", "plain", "stock", BASE)

Lines = dict[str, dict[str, dict[str, Any]]]  # method -> group -> line


def read(files: Sequence[Path]) -> dict[str, Lines]:
    """The lines by kind of split, method and workload. A later line takes the place of an earlier one."""
    found: dict[str, Lines] = {}
    for file in files:
        for text in _text(file).splitlines():
            line = json.loads(text)
            if line.get("kind") == "ranking":
                found.setdefault(line["by"], {}).setdefault(line["method"], {})[line["group"]] = line
    return found


def _text(file: Path) -> str:
    content = file.read_bytes()
    return (gzip.decompress(content) if file.suffix == ".gz" else content).decode()


def add_offline(lines: Lines, file: Path) -> None:
    """Add the methods of a `benchmarks.offline.offline` file that are missing, for the workloads that are
    there."""
    known = {line["program"]: line for own in lines.values() for line in own.values()}
    added: Lines = {}
    for line in map(json.loads, _text(file).splitlines()):
        program = hashlib.sha256(line.get("workload_key", "").encode()).hexdigest()[:16]
        if line.get("kind") == "offline" and line["method"] not in (*lines, "wmsched") and program in known:
            same = known[program]
            named = {"pairwise": line["pairs"], "method": line["method"]}
            own = added.setdefault(line["method"], {})
            own[same["group"]] = same | {"regret16": None, "regret64": None} | named | {
                name: line[name] for name in ("top1", "top5", "tau", "programs")
            }  # fmt: skip
    lines |= added


def values(lines: dict[str, dict[str, Any]], groups: Sequence[str], metric: str) -> NDArray[np.float64]:
    """A metric of some workloads, NaN where it is not defined."""
    found = [lines[group].get(metric) if group in lines else None for group in groups]
    return np.array([np.nan if value is None else value for value in found], np.float64)


def overall(lines: Lines, less: str = BASE) -> list[str]:
    """A row for each method: means with intervals, and the differences to the method `less`."""
    groups = sorted({group for method in lines.values() for group in method})
    shown = [(key, name) for key, name in SHOWN
             if any(np.isfinite(values(method, groups, key)).any() for method in lines.values())]  # fmt: skip
    base = lines.get(less)
    head = ["", *(name for _, name in shown), *([f"less {less}: top-1", "top-5", "pairs"] if base else [])]
    rows = [head, ["---"] * len(head)]
    for method, own in lines.items():
        row = [method, *(estimate(values(own, groups, key)).text() for key, _ in shown)]
        if base:
            for key in ("top1", "top5", "pairwise"):
                gap = estimate(values(own, groups, key) - values(base, groups, key))
                row.append("" if method == less else _signed(gap))
        rows.append(row)
    return [f"| {' | '.join(row)} |" for row in rows]


def by_operator(lines: Lines) -> list[str]:
    """A row for each operator: top-1, top-5 and pairs of the main methods."""
    kinds: dict[str, list[str]] = {}
    for group, line in lines[BASE].items():
        kinds.setdefault(line["operator"], []).append(group)
    methods = [name for name in BY_OPERATOR if name in lines]
    head = ["operator", "workloads", *(f"{name}: top-1, pairs" for name in methods if name != BASE),
            *(f"{BASE}: {name}" for _, name in SHOWN[:3])]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for kind, groups in sorted(kinds.items(), key=lambda item: -len(item[1])):
        row = [kind, str(len(groups))]
        for name in methods:
            if name != BASE:
                means = [estimate(values(lines[name], groups, key)).mean for key in ("top1", "pairwise")]
                row.append(", ".join(f"{mean:.3f}" for mean in means))
        row += [estimate(values(lines[BASE], groups, key)).text() for key, _ in SHOWN[:3]]
        rows.append(row)
    return [f"| {' | '.join(row)} |" for row in rows]


def markdown(found: dict[str, Lines], less: str = BASE) -> str:
    """All tables."""
    text = []
    for by, lines in sorted(found.items(), key=lambda item: "(" in item[0]):  # explorations last
        anyone = next(iter(lines.values())).values()
        programs, networks = sum(x["programs"] for x in anyone), {x["network"] for x in anyone}
        where = f"{len(anyone)} workloads, {programs} programs, {len(networks)} networks"
        split = (
            f"held out by {by}, {next(iter(anyone))['folds']} folds" if by != "frozen" else "never trained on"
        )
        text += [f"**{split[0].upper() + split[1:]}** ({where})", "", *overall(lines, less), ""]
        if BASE in lines and by == "network":
            text += [f"By operator, {split}:", "", *by_operator(lines), ""]
    return "\n".join(text).rstrip() + "\n"


def _signed(gap: Estimate) -> str:
    return gap.signed("" if gap.low <= 0 <= gap.high else "**")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline.ranking_table", description="")
    parser.add_argument("files", type=Path, nargs="+", help="lines of `benchmarks.offline.ranking`")
    parser.add_argument("--offline", type=Path, help="lines of `benchmarks.offline.offline`")
    parser.add_argument("--less", default=BASE, help="the method that others are compared with (%(default)s)")
    parser.add_argument("--into", type=Path, help="a page with the two marks; else they are printed")
    options = parser.parse_args(argv)
    found = read(options.files)
    if options.offline is not None and "network" in found:
        add_offline(found["network"], options.offline)
    tables = markdown(found, options.less)
    if options.into is None:
        print(tables)
        return 0
    page = MARKS.replaced(options.into.read_text(encoding="utf-8"), tables)
    options.into.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
