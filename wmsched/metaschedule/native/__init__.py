"""The C++ reader of MetaSchedule's candidates, and what calls it."""

__all__: list[str] = []
