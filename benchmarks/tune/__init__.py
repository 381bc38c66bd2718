"""Benchmark runs with AutoScheduler and MetaSchedule."""
