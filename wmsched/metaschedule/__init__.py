"""MetaSchedule integration: cost model, search strategy, task scheduler, builder, runner, native reader.

>>> from wmsched.metaschedule import host_target, tune_relax

Importing a name imports apache-tvm; importing this package does not.
"""

from wmsched.base.face import lazy

_NAMES = {
    "WorldModelCostModel": "cost_model",
    "compile_relax": "tune",
    "compile_tir": "tune",
    "construct_relax": "construct",
    "construct_tir": "construct",
    "host_target": "tune",
    "static_shape_tuning_pipeline": "tune",
    "tune_relax": "tune",
    "tune_tir": "tune",
}
__all__ = [
    "WorldModelCostModel",
    "compile_relax",
    "compile_tir",
    "construct_relax",
    "construct_tir",
    "host_target",
    "static_shape_tuning_pipeline",
    "tune_relax",
    "tune_tir",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
