"""Choices of a whole graph: the algorithm of each convolution, and what is fused with what."""

__all__: list[str] = []
