"""Attention as one kernel on NVIDIA GPUs: found in a Relax module (`rewrite`), written in CUDA (`kernel`)."""

__all__: list[str] = []
