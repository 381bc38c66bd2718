"""C++ reader of MetaSchedule's candidates and its Python interface."""

__all__: list[str] = []
