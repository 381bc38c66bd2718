"""Where a tuned model's time goes: each function's time in the model, beside what this machine allows."""

from wmsched.base.face import lazy

_NAMES = {
    "Profile": "profiler",
    "Row": "profiler",
    "make_report": "report",
    "profile": "profiler",
}
__all__ = [
    "Profile",
    "Row",
    "make_report",
    "profile",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
