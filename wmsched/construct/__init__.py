"""Construction of schedules without a measurement: traversals of a task's schedules, and the final choice."""

from wmsched.base.face import lazy

_NAMES = {
    "CHOICES": "named",
    "TRAVERSALS": "named",
    "Agreement": "choice",
    "Choice": "choice",
    "Draw": "traversal",
    "First": "choice",
    "GensorWalk": "gensor",
    "Graph": "graph",
    "LearnedWalk": "learned",
    "Smoothed": "choice",
    "Spread": "choice",
    "Traversal": "traversal",
    "Walk": "traversal",
    "choice_of": "named",
    "traversal_of": "named",
}
__all__ = [
    "CHOICES",
    "TRAVERSALS",
    "Agreement",
    "Choice",
    "Draw",
    "First",
    "GensorWalk",
    "Graph",
    "LearnedWalk",
    "Smoothed",
    "Spread",
    "Traversal",
    "Walk",
    "choice_of",
    "traversal_of",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
