"""Attention in Relax modules: found for all kernels (`match`), one CUDA kernel on NVIDIA GPUs (`rewrite`)."""

__all__: list[str] = []
