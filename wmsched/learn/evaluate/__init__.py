"""Evaluation of rankings: metrics, cross-validation, the noise ceiling, and the report."""

from wmsched.base.face import lazy

_NAMES = {
    "EvalOptions": "evaluate",
}
__all__ = [
    "EvalOptions",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
