"""Boxes, arrows and bars as SVG text, readable on light and dark pages; the same bytes each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

STYLE = """
  .page { fill: #ffffff; } .box { fill: #eef2f7; stroke: #5b7083; } .ours { fill: #d8ecff; stroke: #1f6fb2; }
  .file { fill: #fff6dd; stroke: #a07a1a; } text { fill: #1c2733; font-family: sans-serif; font-size: 13px; }
  .small { font-size: 11.5px; fill: #44535f; } .strong { font-weight: bold; }
  .line { stroke: #5b7083; fill: none; stroke-width: 1.5; } .head { fill: #5b7083; }
  .bar0 { fill: #9aa8b5; } .bar1 { fill: #6f8296; } .bar2 { fill: #1f7fd1; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #12171d; } .box { fill: #222c36; stroke: #8496a8; }
    .ours { fill: #123a5c; stroke: #58aef0; }
    .file { fill: #3a3214; stroke: #d1ab4a; } text { fill: #e8eef4; } .small { fill: #b3c0cc; }
    .line { stroke: #a3b3c2; } .head { fill: #a3b3c2; }
    .bar0 { fill: #66747f; } .bar1 { fill: #8b9cac; } .bar2 { fill: #4aa5f0; }
  }
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A box with a title and smaller lines below it; `kind` is a class of `STYLE`."""

    x: float
    y: float
    width: float
    title: str
    lines: tuple[str, ...] = ()
    kind: str = "box"
    height: float = 66

    def svg(self) -> str:
        """Draw the box, its text centred."""
        middle = self.x + self.width / 2
        top = self.y + self.height / 2 - 8 * len(self.lines) + 4
        parts = [
            f'<rect class="{self.kind}" x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" '
            f'height="{self.height:g}" rx="7"/>',
            text(middle, top, self.title, "strong", anchor="middle"),
        ]
        parts += [
            text(middle, top + 16 * (n + 1), line, "small", anchor="middle")
            for n, line in enumerate(self.lines)
        ]
        return "\n".join(parts)

    @property
    def right(self) -> tuple[float, float]:
        """Middle of the right edge."""
        return self.x + self.width, self.y + self.height / 2

    @property
    def left(self) -> tuple[float, float]:
        """Middle of the left edge."""
        return self.x, self.y + self.height / 2

    @property
    def top(self) -> tuple[float, float]:
        """Middle of the upper edge."""
        return self.x + self.width / 2, self.y

    @property
    def bottom(self) -> tuple[float, float]:
        """Middle of the lower edge."""
        return self.x + self.width / 2, self.y + self.height


@dataclass(slots=True)
class Drawing:
    """A picture in the making.

    Attributes
    ----------
    width, height : float
        Of the picture.
    title : str
        What a screen reader says.
    """

    width: float
    height: float
    title: str
    parts: list[str] = field(default_factory=list)

    def add(self, *boxes: Box) -> None:
        """Draw boxes."""
        self.parts += [box.svg() for box in boxes]

    def chain(self, *boxes: Box) -> None:
        """Draw boxes in a row with an arrow from each to the next."""
        self.add(*boxes)
        for one, other in pairwise(boxes):
            self.arrow(one.right, other.left)

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw a line through points with a head at the last."""
        (x0, y0), (x1, y1) = points[-2:]
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
        x2, y2 = x1 - 8 * dx, y1 - 8 * dy
        head = [(x1, y1), (x2 - 4 * dy, y2 - 4 * dx), (x2 + 4 * dy, y2 + 4 * dx)]
        corners = " ".join(f"{x:g},{y:g}" for x, y in head)
        self.parts.append(f'<polyline class="line" points="{path}"/>')
        self.parts.append(f'<polygon class="head" points="{corners}"/>')

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """Write a line of text."""
        self.parts.append(text(x, y, words, kind, anchor=anchor))

    def bar(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draw a bar."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" rx="2"/>'
        )

    def svg(self) -> str:
        """The file's text."""
        size = f"{self.width:g} {self.height:g}"
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
                f'width="{self.width:g}" height="{self.height:g}">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE}</style>",
                f'<rect class="page" width="{self.width:g}" height="{self.height:g}" rx="10"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def text(x: float, y: float, words: str, kind: str = "", *, anchor: str = "start") -> str:
    """A line of text; `anchor` is SVG's text-anchor."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'
