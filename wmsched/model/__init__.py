"""Models E (encoder), F (transition) and G (ranker), their input rows, and bundles on disk."""

from wmsched.base.face import lazy

_NAMES = {
    "RankGroup": "ranker",
    "Ranker": "ranker",
    "RankerConfig": "ranker",
    "StateEncoder": "encoder",
    "TaskScorer": "task_scorer",
    "TransitionModel": "transition",
    "WorldModel": "world_model",
    "default_bundle": "bundles",
    "shipped": "bundles",
}
__all__ = [
    "RankGroup",
    "Ranker",
    "RankerConfig",
    "StateEncoder",
    "TaskScorer",
    "TransitionModel",
    "WorldModel",
    "default_bundle",
    "shipped",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
