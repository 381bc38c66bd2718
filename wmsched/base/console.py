"""Print plain lines for the user: file and model names stay as they are, and no line is wrapped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands load it when they run
    from rich.console import Console


def own_console() -> Console:
    """Return the console of a command; it animates only on a terminal.

    FORCE_COLOR makes Rich take a pipe for a terminal. Jupyter and some build systems set it, and a table
    drawn twice a second then fills the notebook's cell.
    """
    from rich.console import Console

    terminal = sys.stdout is not None and sys.stdout.isatty()
    return Console(force_terminal=None if terminal else False)


def say(console: Console, text: str) -> None:
    """Print a text without colour, without Rich's markup and without wrapping."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)
