"""phi of many candidates of one workload at once."""

from wmsched.base.face import lazy

_NAMES = {
    "BatchFeatures": "batch",
}
__all__ = [
    "BatchFeatures",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
