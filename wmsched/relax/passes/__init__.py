"""Passes over a whole model: layouts, fusion, constants, and the build."""

__all__: list[str] = []
