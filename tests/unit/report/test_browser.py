"""The page of a report in a browser: it fits a phone, its table sorts, and nothing fails or is asked for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import reports

from wmsched.report.page import page

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
PHONE = 390
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium")

# in the page: what its reader would see, told to the page that holds it in a frame
PROBE = """
<script>
const told = {errors: window.failed, width: document.documentElement.scrollWidth, inner: window.innerWidth};
const order = () => [...document.querySelectorAll("#functions tbody th")].map(cell => cell.dataset.v);
const click = place => document.querySelectorAll("#functions thead button")[place].click();
told.first = order();
click(1); told.seconds = order();
click(1); told.upwards = order();
click(5); told.warm = order();
click(0); click(0); told.names = order();
const style = getComputedStyle(document.body);
told.colours = [style.color, style.backgroundColor];
const shown = part => part.getBoundingClientRect();
told.bars = [...document.querySelectorAll(".bars:first-of-type rect")].map(part => shown(part).width);
told.charts = [...document.querySelectorAll(".chart")].map(part => shown(part).width);
told.asked = performance.getEntriesByType("resource").length;
parent.postMessage(JSON.stringify(told), "*");
</script>"""
FRAME = """<!doctype html><pre id="told"></pre>
<script>
window.addEventListener("message", one => document.querySelector("#told").textContent = one.data)
</script>
<iframe src="page.html" style="width: {width}px; height: 900px; border: 0"></iframe>"""
WATCH = "<head><script>window.failed = []; window.onerror = said => window.failed.push(String(said))</script>"


def seen(folder: Path, *options: str) -> dict[str, Any]:
    """What a browser makes of the page in a frame as wide as a phone."""
    text = page(reports.report()).replace("<head>", WATCH).replace("</body>", PROBE + "</body>")
    (folder / "page.html").write_text(text, encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.format(width=PHONE), encoding="utf-8")
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'own'}",
    ]
    command += [*options, "--virtual-time-budget=4000", "--dump-dom", (folder / "frame.html").as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="told">(.+?)</pre>', ran.stdout, re.DOTALL)
    assert found, ran.stdout[-500:] + ran.stderr[-500:]
    return json.loads(unescape(found.group(1)))


def test_the_page_fits_a_phone_and_its_table_sorts(tmp_path: Path) -> None:
    told = seen(tmp_path)
    rows = sorted(reports.report()["functions"], key=lambda row: -row["seconds"])
    names = [row["what"] for row in rows]
    assert told["errors"] == [] and told["asked"] == 0
    assert told["inner"] == PHONE and told["width"] <= PHONE
    assert told["first"] == told["seconds"] == names and told["upwards"] == names[::-1]
    assert told["warm"] == names  # what is not known comes last
    assert told["names"] == sorted(names)
    assert len(told["charts"]) == 2 and all(200 < width <= PHONE for width in told["charts"])
    assert told["bars"][0] > told["bars"][1] > told["bars"][2] > 10


def test_the_page_is_dark_where_the_reader_wants_it(tmp_path: Path) -> None:
    def brightness(colour: str) -> int:
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    ink, paper = map(brightness, seen(tmp_path, "--blink-settings=preferredColorScheme=0")["colours"])
    assert ink > 600 > 150 > paper
    ink, paper = map(brightness, seen(tmp_path, "--blink-settings=preferredColorScheme=1")["colours"])
    assert ink < 150 < 600 < paper
