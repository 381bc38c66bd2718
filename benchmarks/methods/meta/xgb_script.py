"""Stock MetaSchedule as a script calls it: `tune_tir` with its defaults."""

from __future__ import annotations

from typing import Any

from benchmarks.methods import Settings

NAME = "meta-xgb-script"
HOW: dict[str, Any] = {"places": 1, "paired": False}


def tune(settings: Settings, *given: Any, **options: Any) -> Any:
    """Upstream's, which makes an XGBModel."""
    from tvm.s_tir import meta_schedule as ms

    return ms.tune_tir(*given, **options)
