"""How MetaSchedule's candidates are built and timed."""

__all__: list[str] = []
