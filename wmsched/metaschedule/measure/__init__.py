"""Builders and runners of MetaSchedule's candidates."""

__all__: list[str] = []
