"""README and docs: their links lead somewhere, their lines are short, their pictures are what is drawn."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from checkout import ROOT

import wmsched
from benchmarks.report import pictures

DOCS = sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)
FINDINGS = ROOT / "docs" / "explanation" / "findings"
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
RESULTS = ("benchmarks/README.md", "benchmarks/results/results.md")
DATA = ("data_builder/README.md", "data_builder/logs/README.md")
PAGES = [*(ROOT / name for name in (*TOP, *RESULTS, *DATA)), *DOCS]
WIDTH = 120
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    return LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    lines = prose(page).splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    dead = []
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            dead.append(target)
    assert not dead


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or begins a name in one."""
    place, parts = ROOT, name.split(".")
    while parts and place.is_dir() and ((place / parts[0]).is_dir() or (place / f"{parts[0]}.py").is_file()):
        place /= parts.pop(0)
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return not parts or (
        source.is_file() and re.search(rf"\b{parts[0]}\b", source.read_text("utf-8")) is not None
    )


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent != FINDINGS and page.name != "CHANGELOG.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_modules_and_files_that_pages_name_are_there(page: Path) -> None:
    text = LINK.sub("]", page.read_text(encoding="utf-8"))
    names = set(
        re.findall(r"(?<![\w/.-])((?:wmsched|data_builder|benchmarks)(?:\.[a-zA-Z_]\w*)+)(?![\w/])", text)
    )
    assert sorted(name for name in names if not is_there(name)) == []
    files = set(re.findall(r"`((?:wmsched|data_builder|benchmarks|tests|scripts)/[\w./-]+)`", text))
    assert sorted(file for file in files if not (ROOT / file).exists()) == []


def test_every_page_is_reached_from_another() -> None:
    linked = {(page.parent / target.partition("#")[0]).resolve() for page in PAGES for target in links(page)}
    assert {ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS} - {ROOT / "docs" / "index.md"} <= linked


def test_the_readme_is_read_at_a_glance() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 130 and max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_prose_are_short(page: Path) -> None:
    written = re.sub(r"(?ms)^<!-- [\w -]*?(:begin| begins) -->.*?(:end| ends) -->$", "", prose(page))
    lines = [line for line in written.splitlines() if not line.lstrip().startswith("|")]
    assert [line for line in lines if len(line) > WIDTH] == []


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_without_lines_are_in_dated_entries_alone(page: Path) -> None:
    found = re.search(r"\bby hand\b", prose(page))
    assert page.parent == FINDINGS or page.name == "findings.md" or not found


@pytest.mark.parametrize("page", sorted(FINDINGS.glob("*.md")), ids=lambda page: page.name)
def test_an_entry_has_its_date_and_is_listed(page: Path) -> None:
    date = re.match(r"\d{4}-\d\d-\d\d", page.name)
    listed = (FINDINGS.parent / "findings.md").read_text(encoding="utf-8")
    assert date and f"| {date.group()} | [" in listed and f"(findings/{page.name})" in listed


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_what_the_command_draws(name: str) -> None:
    drawn = pictures.PICTURES[name]()
    committed = (pictures.FOLDER / name).read_text(encoding="utf-8")
    assert committed == drawn, "python -m benchmarks.report.pictures"
    assert ElementTree.fromstring(drawn).tag.endswith("svg") and "prefers-color-scheme: dark" in drawn


def test_every_picture_is_shown() -> None:
    shown = {(page.parent / target).resolve() for page in PAGES for target in links(page)}
    assert {pictures.FOLDER / name for name in pictures.PICTURES} <= shown


def test_the_version_is_in_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{wmsched.__version__}]" in text
