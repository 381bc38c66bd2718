"""TVM, LLVM, CUDA and C++ compiler of this process and its workers, and the targets they build for."""

from wmsched.base.face import lazy

_NAMES = {
    "autoscheduler_tvm": "resolve",
    "measurable_target": "targets",
    "meta_schedule_tvm": "resolve",
    "meta_target": "targets",
}
__all__ = [
    "autoscheduler_tvm",
    "measurable_target",
    "meta_schedule_tvm",
    "meta_target",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
