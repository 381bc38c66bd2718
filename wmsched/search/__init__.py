"""Choosing what to measure next, in the model alone: evolution, mutation, quotas, diversity."""

from wmsched.base.face import lazy

_NAMES = {
    "DecisionSpace": "decision_space",
    "Evolution": "evolution",
    "Niches": "diversity",
    "History": "history",
    "TileQuota": "register_tiles",
}
__all__ = [
    "Draws",
    "Evolution",
    "Niches",
    "Observations",
    "TileShares",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
