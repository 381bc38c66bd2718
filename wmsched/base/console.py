"""What the user is told in plain lines: names of files and models stand as they are, no line is broken."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands load it when they run
    from rich.console import Console


def own_console() -> Console:
    """A command's console: it draws in place on a terminal and nowhere else.

    FORCE_COLOR, which Jupyter and some builds set, would have Rich take a pipe for one, and a table that is
    drawn twice a second fills a notebook's cell.
    """
    from rich.console import Console

    terminal = sys.stdout is not None and sys.stdout.isatty()
    return Console(force_terminal=None if terminal else False)


def say(console: Console, text: str) -> None:
    """Print a text, neither coloured nor read as Rich's markup, nor wrapped to the terminal's width."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)
