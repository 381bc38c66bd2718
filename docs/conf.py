"""The site: `make docs`. Pages in Markdown (MyST), API from the docstrings, with TVM mocked."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import MockFinder

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]

project = "wmsched"
author = "the wmsched maintainers"
release = re.search(r'__version__ = "(.+)"', (ROOT / "wmsched" / "__init__.py").read_text()).group(1)
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "command_options"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_ext"]
html_theme = "furo"
html_title = f"wmsched {release}"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # the anchors that GitHub makes, which links between pages use
suppress_warnings = [
    "myst.header",  # generated blocks begin at the level of the page that they are in
    "ref.python",  # each scheduler has a WorldModelCostModel
]

autodoc_typehints = "none"  # the docstrings say the types
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False

# A process has one TVM, and the API is of two. So both are mocks here.
sys.meta_path.insert(0, MockFinder(["tvm", "tvm_ffi"]))
resolve = importlib.import_module("wmsched.toolchain.resolve")
resolve.autoscheduler_tvm = resolve.meta_schedule_tvm = lambda: importlib.import_module("tvm")
importlib.import_module("tvm.ir.utils").derived_object = lambda wrapped: wrapped

LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s#]+)(?:#[^)\s]*)?\)")


def download_what_is_outside(app: Sphinx, name: str, source: list[str]) -> None:
    """Make links to files outside of docs/ downloads, which a site can have; a missing one is a warning."""
    docs = Path(app.srcdir)
    page = docs / name

    def replaced(found: re.Match[str]) -> str:
        inside = (page.parent / found[2]).resolve().is_relative_to(docs)
        return found[0] if inside else f"{{download}}`{found[1]} <{found[2]}>`"

    source[0] = LINK.sub(replaced, source[0])


def setup(app: Sphinx) -> None:
    """Sphinx's entry point."""
    app.connect("source-read", download_what_is_outside)
