"""Command-line interface of wmsched."""

__all__: list[str] = []
