"""AutoScheduler integration: cost model, search policy, task scheduler, runner, Relay.

>>> from wmsched.ansor import TaskScheduler, host_target

Importing a name imports AutoScheduler's TVM; importing this package does not.
"""

from wmsched.base.face import lazy

_NAMES = {
    "ApplyHistoryBest": "relay",
    "TaskScheduler": "task_scheduler",
    "WorldModelCostModel": "cost_model",
    "host_target": "wmsched.toolchain.resolve",
    "vector_math": "codegen",
}
__all__ = [
    "ApplyHistoryBest",
    "TaskScheduler",
    "WorldModelCostModel",
    "host_target",
    "vector_math",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
