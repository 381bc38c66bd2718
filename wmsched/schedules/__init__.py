"""Schedules as data, without TVM: steps, traces, their loop nests, logs and databases."""

from wmsched.base.face import lazy

_NAMES = {
    "LoopNest": "loop_nest",
    "Measurement": "types",
    "Record": "types",
    "TraceNest": "trace_nest",
    "Trajectory": "types",
    "Workload": "types",
    "parse_record": "steps",
}
__all__ = [
    "LoopNest",
    "Measurement",
    "Record",
    "TraceNest",
    "Trajectory",
    "Workload",
    "parse_record",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
