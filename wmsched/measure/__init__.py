"""Reliable timing on a shared machine, for either scheduler."""

from wmsched.base.face import lazy

_NAMES = {
    "ClockProbe": "clock_probe",
    "Reference": "reference",
    "ReferenceStore": "reference_store",
    "costs_of": "paired",
    "steady_buffers": "malloc_env",
}
__all__ = [
    "ClockProbe",
    "Reference",
    "ReferenceStore",
    "costs_of",
    "steady_buffers",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
