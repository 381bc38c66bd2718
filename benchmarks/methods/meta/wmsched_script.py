"""World model in the script of `meta-xgb-script`; only the import of `tune_tir` differs."""

from __future__ import annotations

from typing import Any

from benchmarks.methods import Settings
from wmsched.measure.buffer_offsets import PLACES

NAME = "meta-wmsched-script"
HOW: dict[str, Any] = {"places": PLACES, "paired": True, "vector_math": True}


def tune(settings: Settings, *given: Any, **options: Any) -> Any:
    """Ours with its defaults and the run's bundle."""
    from wmsched.metaschedule.tune import tune_tir

    return tune_tir(*given, cost_model=settings.bundle, **options)
