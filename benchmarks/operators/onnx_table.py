"""`python -m benchmarks.operators.onnx_table`: the page of ONNX's operators, from the committed lines.

Rows are of the cases of one operator; cases that write a function's body out count in the totals alone.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.operators.lines import ROOT, table
from benchmarks.outcomes.marks import Marks

LINES = ROOT / "benchmarks" / "results" / "onnx-backend.jsonl"
PAGE = ROOT / "docs" / "reference" / "onnx.md"
COUNTS = Marks("<!-- onnx counts: begin -->", "<!-- onnx counts: end -->")
OPERATORS = Marks("<!-- onnx operators: begin -->", "<!-- onnx operators: end -->")
REASONS = Marks("<!-- onnx refused: begin -->", "<!-- onnx refused: end -->")
OURS, STOCK, RUNTIME = "ours", "stock", "onnxruntime"
NAMES = {OURS: "wmsched", STOCK: "TVM's importer", RUNTIME: "onnxruntime"}
VERDICTS = ("right", "refused", "unnamed", "wrong", "crash")
SORTS = {
    "tensors": "tensors of known sizes",
    "data-sized": "sizes that hang on data",
    "sequences": "sequences and optionals",
    "strings": "strings",
}
MAX_REASON = 78  # characters, so that a row fits the page


def last(lines: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the last line of each case and runtime."""
    return {(line["case"], line["who"]): line for line in lines if line["kind"] == "onnx_case"}


def counts(lines: Iterable[dict[str, Any]]) -> str:
    """Return the table of verdicts by runtime, and of right ones by the sort of the case."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for line in last(lines).values():
        found[line["who"]][line["verdict"]] += 1
        found[line["who"]][f"{line['sort']}/{line['verdict']}"] += 1
        found[line["who"]][line["sort"]] += 1
    rows = ["| | " + " | ".join(NAMES.values()) + " |", "| --- |" + " ---: |" * len(NAMES)]
    for verdict in VERDICTS:
        rows.append(f"| {verdict} | " + " | ".join(str(found[who][verdict]) for who in NAMES) + " |")
    for sort, words in SORTS.items():
        cells = (f"{found[who][f'{sort}/right']} of {found[who][sort]}" for who in NAMES)
        rows.append(f"| right, {words} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def operators(lines: Iterable[dict[str, Any]]) -> str:
    """Return the table of right cases by operator."""
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for (case, who), line in last(lines).items():
        if "_expanded" not in case:
            by_operator[line["operator"]][who] += 1
            by_operator[line["operator"]][f"{who}/right"] += line["verdict"] == "right"
    rows = ["| operator | cases | wmsched | TVM's importer | onnxruntime |", "| --- |" + " ---: |" * 4]
    for name, found in sorted(by_operator.items()):
        cells = [str(found[f"{who}/right"]) for who in NAMES]
        rows.append(f"| {name} | {found[OURS]} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def refused(lines: Iterable[dict[str, Any]]) -> str:
    """Return the table of what is refused, with the most usual reason of each operator."""
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for (case, who), line in last(lines).items():
        if who == OURS and line["verdict"] == "refused" and "_expanded" not in case:
            reasons[line["operator"]][_reason(line["reason"])] += 1
    rows = ["| operator | cases | why |", "| --- | ---: | --- |"]
    for name, found in sorted(reasons.items()):
        why, _ = min(found.items(), key=lambda item: (-item[1], item[0]))
        rows.append(f"| {name} | {sum(found.values())} | {why} |")
    return "\n".join(rows)


def _reason(said: str) -> str:
    why = said.split(": ", 1)[-1]
    why = re.sub(r"^\S+ has elements of the type (\S+), which is not supported", r"elements of \1", why)
    why = re.sub(
        r"^\S+ is an? (sequence|optional), and programs have tensors", r"\1: programs have tensors", why
    )
    return why if len(why) <= MAX_REASON else f"{why[: MAX_REASON - 3]}..."


def written(page: str, lines: Sequence[dict[str, Any]]) -> str:
    """Return the page with the tables of these lines."""
    for marks, shown in ((COUNTS, counts), (OPERATORS, operators), (REASONS, refused)):
        page = marks.replaced(page, shown(lines))
    return page


def main(argv: Sequence[str] | None = None) -> int:
    """Print the counts, or write the page."""
    return table(argv, "operators.onnx_table", __doc__, (PAGE, LINES), written, counts)


if __name__ == "__main__":
    sys.exit(main())
