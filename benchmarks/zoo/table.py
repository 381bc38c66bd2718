"""`python -m benchmarks.zoo.table`: the page of architectures, from the committed lines."""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.operators.lines import ROOT, table
from benchmarks.outcomes.marks import Marks

RESULTS = ROOT / "benchmarks" / "results"
LINES = {name: RESULTS / f"zoo-{name}.jsonl" for name in ("transformers", "timm", "torchvision")}
PAGE = ROOT / "docs" / "reference" / "architectures.md"
COUNTS = Marks("<!-- zoo counts: begin -->", "<!-- zoo counts: end -->")
OTHERS = Marks("<!-- zoo others: begin -->", "<!-- zoo others: end -->")
#: PyTorch runs no small model of these, or torch.export takes none: no program comes to wmsched.
LEFT_OUT = ("no small model", "not exportable")
WORDS = "right with words alone"  # where sizes hang on an image or a sound
VERDICTS = ("right", WORDS, "refused", "unnamed", "wrong", "crash", *LEFT_OUT)
NOTHING = "No run is committed yet."
WIDTH = 118  # characters of a line of the page
MAX_REASON = 140  # characters of a reason


def last(lines: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the last line of each architecture."""
    return {line["case"]: line for line in lines if line["kind"] == "zoo_case" and line["who"] == "ours"}


def tally(lines: Iterable[dict[str, Any]], library: str) -> Counter[str]:
    """Return the number of architectures by verdict; "exported" counts those that torch.export takes.

    Those that are right with words alone are `WORDS`, and count as what came of all their inputs.
    """
    own = [line for line in last(lines).values() if line["library"] == library]
    found = Counter(_verdict(line) for line in own)
    left = sum(line.get("whole", line["verdict"]).startswith(LEFT_OUT) for line in own)
    return found + Counter(exported=found.total() - left)


def share(counted: Counter[str]) -> float:
    """Return how many of those that torch.export takes are right with all their inputs."""
    return counted["right"] / max(counted["exported"], 1)


def whole(lines: Sequence[dict[str, Any]], library: str) -> list[dict[str, Any]]:
    """Return the last lines of a library's architectures; none unless each of its list has one."""
    found = [line for line in last(lines).values() if line["library"] == library]
    return found if found and len(found) == found[0]["of"] else []


def counts(lines: Sequence[dict[str, Any]]) -> str:
    """Return the table of verdicts by library; a share only of a library whose whole list has lines."""
    found = {name: each for name in LINES if (each := tally(lines, name)).total()}
    if not found:
        return NOTHING
    sizes = {line["library"]: line["of"] for line in last(lines).values()}
    ran = {name: each.total() - each["exported"] for name, each in found.items()}
    rows = ["| | " + " | ".join(found) + " |", "| --- |" + " ---: |" * len(found)]
    rows.append("| judged | " + " | ".join(f"{ran[name]} of {sizes[name]}" for name in found) + " |")
    for verdict in VERDICTS:
        rows.append(f"| {verdict} | " + " | ".join(str(each[verdict]) for each in found.values()) + " |")
    shares = (
        f"{share(each):.1%}" if whole(lines, name) else "the list is not whole"
        for name, each in found.items()
    )
    rows.append("| right, of those that torch.export takes | " + " | ".join(shares) + " |")
    return "\n".join(rows)


def others(lines: Iterable[dict[str, Any]]) -> str:
    """Return the architectures that are not right as they are, by verdict and reason, usual ones first."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for case, line in last(lines).items():
        found[_verdict(line)][_reason(line)].append(case)
    parts = []
    for verdict in VERDICTS[1:]:
        parts += [f"**{verdict}**", ""] if found[verdict] else []
        for why, cases in sorted(found[verdict].items(), key=lambda item: (-len(item[1]), item[0])):
            listed = ", ".join(f"`{case.split('/')[1]}`" for case in sorted(cases))
            parts.append(_wrapped(f"- {why} ({len(cases)}): {listed}"))
        parts += [""] if found[verdict] else []
    return "\n".join(parts)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _verdict(line: dict[str, Any]) -> str:
    return WORDS if "whole" in line else str(line["verdict"])


def _reason(line: dict[str, Any]) -> str:
    """Return a reason without the numbers of one model, as code where it is no sentence of ours."""
    why = (
        line.get("whole", line["reason"]).split(": export the model")[0].removeprefix("wmsched.base.errors.")
    )
    why = re.sub(r"[<>`|*_\\]+", lambda found: found.group() if found.group() == "_" else " ", why)
    why = re.sub(r"\bu?\d+(\.\d+)?(e[-+]\d+)?\b", "N", why)
    why = " ".join(word for word in why.split() if len(word) <= MAX_REASON // 2)
    return why if len(why) <= MAX_REASON else f"{why[: MAX_REASON - 3]}..."


def written(page: str, lines: Sequence[dict[str, Any]]) -> str:
    """Return the page with the tables of these lines."""
    for marks, shown in ((COUNTS, counts), (OTHERS, others)):
        page = marks.replaced(page, shown(lines))
    return page


def main(argv: Sequence[str] | None = None) -> int:
    """Print the counts, or write the page."""
    return table(argv, "zoo.table", __doc__, (PAGE, *LINES.values()), written, counts)


if __name__ == "__main__":
    sys.exit(main())
