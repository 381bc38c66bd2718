"""Where things lie in the checkout, whatever room a test is in."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
DATA = ROOT / "tests" / "data"
SUPPORT = ROOT / "tests" / "support"
RESULTS = ROOT / "benchmarks" / "results"
