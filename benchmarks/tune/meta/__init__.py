"""Benchmark runs with MetaSchedule."""
