"""Command lines and what they print."""

__all__: list[str] = []
