"""Choice of a model's graph: timed regions, an integer program, and the best few in the model."""

from wmsched.base.face import lazy

_NAMES = {"best_choices": "program", "choose_graph": "choose", "settled_graph": "choose"}
__all__ = ["best_choices", "choose_graph", "settled_graph"]
__getattr__, __dir__ = lazy(__name__, _NAMES)
