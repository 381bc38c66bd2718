"""Shared helpers that need no other room: errors, atomic files and locks, cores, memory, console."""

__all__: list[str] = []
