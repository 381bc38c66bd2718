"""Datasets on disk, their splits, and caches of inputs computed from them."""

from wmsched.base.face import lazy

_NAMES = {
    "Dataset": "dataset",
}
__all__ = [
    "Dataset",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
