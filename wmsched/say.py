"""What the user is told in plain lines: names of files and models stand as they are, no line is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands load it when they run
    from rich.console import Console


def say(console: Console, text: str) -> None:
    """Print a text, neither coloured nor read as Rich's markup, nor wrapped to the terminal's width."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)
