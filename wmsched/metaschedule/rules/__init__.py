"""Schedule rules that MetaSchedule lacks, and the space generators that have them."""

from wmsched.base.face import lazy

_NAMES = {
    "ColumnReduction": "column_reduction",
    "SplitReduction": "split_reduction",
    "space_generator": "spaces",
}
__all__ = [
    "ColumnReduction",
    "SplitReduction",
    "space_generator",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
