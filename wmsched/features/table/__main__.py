"""`python -m wmsched.features.table`: write the page and the C++ header that the table is shown in."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wmsched.features.table import pages


def main(argv: list[str] | None = None) -> int:
    """Write what is asked for; the exit code is 2 where a file cannot be written."""
    parser = argparse.ArgumentParser(
        prog=pages.COMMAND,
        description="Write the files that are made of the table of features.",
    )
    parser.add_argument("--docs", type=Path, metavar="FILE", help=f"write the page, {pages.PAGE}")
    parser.add_argument("--header", type=Path, metavar="FILE", help=f"write the C++ enum, {pages.HEADER}")
    options = parser.parse_args(argv)
    if options.docs is None and options.header is None:
        parser.error("nothing to write: give --docs, --header or both")
    for path, make in ((options.docs, pages.page), (options.header, pages.header)):
        if path is None:
            continue
        try:
            path.write_text(make(), encoding="utf-8")
        except OSError as error:
            print(f"{path}: {error.strerror or error}; is its folder there?", file=sys.stderr)
            return 2
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
