"""`python -m benchmarks.operators.torch_table`: the page of PyTorch's operators, from the committed lines."""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.operators.lines import ROOT, table
from benchmarks.outcomes.marks import Marks

LINES = ROOT / "benchmarks" / "results" / "torch-ops.jsonl"
PAGE = ROOT / "docs" / "reference" / "pytorch.md"
COUNTS = Marks("<!-- torch counts: begin -->", "<!-- torch counts: end -->")
REASONS = Marks("<!-- torch refused: begin -->", "<!-- torch refused: end -->")
OURS, STOCK = "ours", "stock"
NAMES = {OURS: "wmsched", STOCK: "TVM's importer"}
LEFT_OUT = ("no tensor", "not exportable")
VERDICTS = ("right", "refused", "unnamed", "wrong", "crash", *LEFT_OUT)
WIDTH = 118  # characters of a line of the page
MAX_REASON = 160  # characters of a reason


def last(lines: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the last line of each case and importer."""
    return {(line["case"], line["who"]): line for line in lines if line["kind"] == "torch_case"}


def tally(lines: Iterable[dict[str, Any]], who: str) -> Counter[str]:
    """Return the number of cases by verdict; "exported" counts those that torch.export takes."""
    found = Counter(line["verdict"] for line in last(lines).values() if line["who"] == who)
    found["exported"] = found.total() - sum(found[word] for word in LEFT_OUT)
    return found


def counts(lines: Sequence[dict[str, Any]]) -> str:
    """Return the table of verdicts by importer."""
    found = {who: tally(lines, who) for who in NAMES}
    rows = ["| | " + " | ".join(NAMES.values()) + " |", "| --- |" + " ---: |" * len(NAMES)]
    for verdict in VERDICTS:
        rows.append(f"| {verdict} | " + " | ".join(str(found[who][verdict]) for who in NAMES) + " |")
    shares = (f"{found[who]['right'] / max(found[who]['exported'], 1):.0%}" for who in NAMES)
    rows.append("| right, of those that torch.export takes | " + " | ".join(shares) + " |")
    return "\n".join(rows)


def refused(lines: Iterable[dict[str, Any]]) -> str:
    """Return the samples that are refused, by reason, the most usual one first."""
    found: dict[str, list[str]] = defaultdict(list)
    for (case, who), line in last(lines).items():
        if who == OURS and line["verdict"] == "refused":
            found[_reason(line["reason"])].append(case)
    parts = []
    for why, names in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        listed = ", ".join(f"`{name}`" for name in sorted(names))
        parts.append(_wrapped(f"- {why} ({len(names)}): {listed}"))
    return "\n".join(parts)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _reason(said: str) -> str:
    why = re.sub(r"^(\w+\.)+\w+: ", "", said)
    why = why.split(": export the model")[0]
    why = re.sub(r"elements of the type (\S+) are not supported", r"elements of \1", why)
    return why if len(why) <= MAX_REASON else f"{why[: MAX_REASON - 3]}..."


def written(page: str, lines: Sequence[dict[str, Any]]) -> str:
    """Return the page with the tables of these lines."""
    for marks, shown in ((COUNTS, counts), (REASONS, refused)):
        page = marks.replaced(page, shown(lines))
    return page


def main(argv: Sequence[str] | None = None) -> int:
    """Print the counts, or write the page."""
    return table(argv, "operators.torch_table", __doc__, (PAGE, LINES), written, counts)


if __name__ == "__main__":
    sys.exit(main())
