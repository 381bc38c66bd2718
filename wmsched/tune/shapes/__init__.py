"""Several shapes in one tuned model: one run, one folder, shared records, and the choice at a call.

The folder has one database, and a folder for each shape in ``shapes``, which `TunedModel` loads alone, too.
"""

from wmsched.base.face import lazy

_NAMES = {
    "Shaped": "several",
    "choices_of": "choices",
    "construct_shapes": "construction",
    "padding_of": "padding",
    "parse_extents": "choices",
    "tune_shapes": "tuning",
    "variants": "choices",
}
__all__ = [
    "Shaped",
    "choices_of",
    "construct_shapes",
    "padding_of",
    "parse_extents",
    "tune_shapes",
    "variants",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
