"""Features of a schedule (phi) and of a machine (h), the ranker's inputs."""

from wmsched.base.face import lazy

_NAMES = {
    "BatchFeatures": "batch.batch",
    "FEATURE_NAMES": "step_features",
    "TRACE_NAMES": "trace_features",
    "hardware_features": "hardware",
}
__all__ = [
    "BatchFeatures",
    "FEATURE_NAMES",
    "TRACE_NAMES",
    "hardware_features",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
