"""Learning without TVM: `training` uses `evaluate` (metrics), which uses `data` (datasets, splits,
caches)."""

from wmsched.base.face import lazy

_NAMES = {
    "Dataset": "data.dataset",
    "FinetuneOptions": "training.finetune",
    "TrainOptions": "training.train",
}
__all__ = [
    "Dataset",
    "FinetuneOptions",
    "TrainOptions",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
