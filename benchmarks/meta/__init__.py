"""The 22 representatives in MetaSchedule's search: workloads in TensorIR, tuning, second measurement.

Everything here runs in child processes with MetaSchedule's TVM; `benchmarks.run` runs both searches.
"""
