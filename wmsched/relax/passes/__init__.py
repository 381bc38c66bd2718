"""Relax passes over a whole model: layouts, fusion, constants, legalization, and the build."""

__all__: list[str] = []
