"""Lines of operators' tests: JSON, one for each case and runtime."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    """Lines of a file; none if it is not there. A line that a kill cut off is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def table(
    argv: Sequence[str] | None,
    name: str,
    doc: str | None,
    files: tuple[Path, ...],
    written: Callable[[str, Sequence[Line]], str],
    counts: Callable[[Sequence[Line]], str],
) -> int:
    """Print the counts of a file of lines, or write the page that has them, as its command says.

    Parameters
    ----------
    argv : sequence of str, optional
    name, doc : str
        Of the table's module.
    files : tuple of Path
        The page, and the lines by default.
    written : callable (page, lines) -> page
    counts : callable (lines) -> text
    """
    page, *lines = files
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=doc)
    parser.add_argument("--lines", type=Path, nargs="+", default=lines)
    parser.add_argument("--write", action="store_true", help=f"write {page.relative_to(ROOT)}")
    options = parser.parse_args(argv)
    found = [line for path in options.lines for line in read(path)]
    if options.write:
        page.write_text(written(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    print(counts(found))
    return 0
