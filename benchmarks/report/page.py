"""One HTML page of a report: every table, and the figures in it as SVG. It loads nothing from elsewhere."""

from __future__ import annotations

import base64
import html as escape
import re

from benchmarks.outcomes.tables import Table, inline
from benchmarks.report import against, figures, sections
from benchmarks.report.model import FIRST, Report

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 76em; color: #1b1b1b }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin-top: 2em } nav { columns: 3; font-size: 0.9em }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: 0.87em }
th, td { padding: 0.25em 0.7em; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left } thead th { border-bottom: 2px solid #999 }
figure { margin: 1.5em 0 } figure img { max-width: 100% } figcaption, .note { color: #555; font-size: 0.9em }
code { background: #f2f2f2; padding: 0 0.2em }
"""


def html(report: Report) -> str:
    """The page of a report, as one text."""
    data = report.data
    parts: list[tuple[str, str]] = []  # (title, fragment)
    for table in report.overview():
        parts.append(_table(table))
    for figure in figures.draw(data):
        image = base64.b64encode(figure.svg.encode("utf-8")).decode("ascii")
        # an image and not bare SVG: identifiers of several drawings would clash in one document
        fragment = (
            f"<figure><h2>{inline(figure.title)}</h2>\n"
            f'<img alt="{escape.escape(figure.title)}" src="data:image/svg+xml;base64,{image}">\n'
            f"<figcaption>{inline(figure.caption)}</figcaption></figure>"
        )
        parts.append((figure.title, fragment))
    for table in report.details() + against.counts():
        parts.append(_table(table))
    body, index = [], []
    for number, (title, fragment) in enumerate(parts):
        index.append(f'<a href="#s{number}">{inline(title)}</a><br>')
        body.append(f"<section id=s{number}>{fragment}</section>")
    if report.unconfirmed:
        body.append(f"<p class=note>{inline(FIRST)}</p>")
    body.append(_list(sections.troubles(data)))
    return (
        f'<!doctype html>\n<html lang=en><meta charset="utf-8"><title>{inline(report.title)}</title>'
        f"<style>{STYLE}</style>\n<h1>{inline(report.title)}</h1>\n{_list(sections.provenance(data))}\n"
        f"<nav>{''.join(index)}</nav>\n" + "\n".join(body) + "\n</html>\n"
    )


def _table(table: Table) -> tuple[str, str]:
    return table.title, table.html()


def _list(text: str) -> str:
    """A Markdown list, with a heading perhaps, as HTML."""
    heading = "".join(f"<h2>{inline(title)}</h2>" for title in re.findall(r"^## (.+)$", text, re.MULTILINE))
    items = "".join(f"<li>{inline(item)}</li>" for item in re.findall(r"^- (.+)$", text, re.MULTILINE))
    return f"{heading}<ul>{items}</ul>" if items else ""
