"""Whole-model latency of PyTorch, eager and compiled, on the cores that the tuned programs run on."""
