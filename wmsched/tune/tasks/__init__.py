"""Runs of single tasks with AutoScheduler: ``wmsched tune TASK``."""

__all__: list[str] = []
