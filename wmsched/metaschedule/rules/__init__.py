"""Schedule rules that MetaSchedule lacks, and the space generators that have them."""

from wmsched.base.face import lazy

_NAMES = {
    "ColumnReduction": "column_reduction",
    "FitsRegisters": "tensor_cores",
    "SplitReduction": "split_reduction",
    "TensorCores": "tensor_cores",
    "space_generator": "spaces",
}
__all__ = [
    "ColumnReduction",
    "FitsRegisters",
    "SplitReduction",
    "TensorCores",
    "space_generator",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
