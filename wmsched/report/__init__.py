"""Where a tuned model's time goes: each function's time in the model, beside what this machine allows."""

from wmsched.base.face import lazy

_NAMES = {
    "Profile": "profiler",
    "Row": "profiler",
    "profile": "profiler",
}
__all__ = [
    "Profile",
    "Row",
    "profile",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
