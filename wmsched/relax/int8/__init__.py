"""Quantized networks in eight bits: products by the processor's integer dot products, and what is between."""

__all__: list[str] = []
