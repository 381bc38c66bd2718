"""Search in the model alone: evolution, mutations, design spaces, tile quotas, diversity, budgets."""

from wmsched.base.face import lazy

_NAMES = {
    "DecisionSpace": "decision_space",
    "Evolution": "evolution",
    "History": "history",
    "Niches": "diversity",
    "TileQuota": "register_tiles",
}
__all__ = [
    "DecisionSpace",
    "Evolution",
    "History",
    "Niches",
    "TileQuota",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
