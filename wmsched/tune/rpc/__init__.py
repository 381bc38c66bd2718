"""Whole models on one device of a fleet: timed there, asked for from here."""

from wmsched.base.face import lazy

_NAMES = {"OneDevice": "one_device", "handlers": "timed_models"}
__all__ = ["OneDevice", "handlers"]
__getattr__, __dir__ = lazy(__name__, _NAMES)
