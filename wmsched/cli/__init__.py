"""Command lines of wmsched, and what they print."""

__all__: list[str] = []
