"""Training of E, F and G from a dataset directory, and fine-tuning; needs no TVM."""

from wmsched.base.face import lazy

_NAMES = {
    "EncoderTraining": "train_encoder",
    "FinetuneOptions": "finetune",
    "TrainOptions": "train",
    "TransitionTraining": "train_transition",
}
__all__ = [
    "EncoderTraining",
    "FinetuneOptions",
    "TrainOptions",
    "TransitionTraining",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
