"""``--help`` answers at once: no heavy library is imported to print it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

HEAVY = ("torch", "tvm", "transformers", "xgboost", "pyarrow", "pandas", "scipy", "numpy")

PROBE = """
import json, resource, sys
sys.argv = json.loads(sys.argv[1])
from {module} import main
try:
    code = main() or 0
except SystemExit as stop:
    code = stop.code or 0
used = resource.getrusage(resource.RUSAGE_SELF)
heavy = [name for name in {heavy!r} if name in sys.modules]
print(json.dumps(dict(code=code, cpu=used.ru_utime + used.ru_stime, heavy=heavy)), file=sys.stderr)
"""

CASES = [
    ("wmsched.cli.main", ["wmsched", "--help"], ("train", "tune", "score", "info")),
    ("wmsched.cli.main", ["wmsched", "tune", "--help"], ("--trials",)),
    ("wmsched.cli.main", ["wmsched", "report", "--help"], ("--compare", "--json")),
    ("data_builder.cli.main", ["wmsched-data", "--help"], ("build",)),
    ("data_builder.cli.main", ["wmsched-data", "build", "--help"], ("--out",)),
]


@pytest.mark.parametrize(("module", "argv", "words"), CASES, ids=[" ".join(argv) for _, argv, _ in CASES])
def test_help_is_instant(module: str, argv: list[str], words: tuple[str, ...]) -> None:
    probe = PROBE.format(module=module, heavy=HEAVY)
    # with bytecode: the first start after an installation writes it
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for last in (False, True):
        run = subprocess.run(
            [sys.executable, "-c", probe, json.dumps(argv)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**own, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "120"},
            check=False,
        )
        assert run.returncode == 0, run.stderr
        told = json.loads(run.stderr.strip().splitlines()[-1])
        assert told["code"] == 0
        assert told["heavy"] == []
        instant = told["cpu"] < 1.0  # seconds of processor time, so that a busy machine fails nobody
        if instant or last:
            break
    assert instant, f"{told['cpu']:.2f} s"
    for word in words:
        assert re.search(rf"(?<![\w-]){word}(?![\w-])", run.stdout), f"{word} is not in the help"
