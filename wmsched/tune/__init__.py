"""Tuning of whole models and tasks: prepare, search, select, build, compare, report; `TunedModel`."""

from wmsched.base.face import lazy

_NAMES = {
    "ModelOptions": "options",
    "TuneOptions": "options",
    "TunedModel": "tuned_model",
    "compile_model": "compile",
}
__all__ = [
    "ModelOptions",
    "TuneOptions",
    "TunedModel",
    "compile_model",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
