"""Datasets on disk, how they are split, and what is computed of them once."""

from wmsched.base.face import lazy

_NAMES = {
    "Dataset": "dataset",
}
__all__ = [
    "Dataset",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
