"""Models of the benchmark: their networks, PyTorch's latency, and compiled and tuned builds."""
