"""Stands for PyTorch in the worker processes that `wmsched.toolchain.no_torch` starts: what looks for it
finds none."""

raise ModuleNotFoundError("torch is not imported in wmsched's worker processes on a processor", name="torch")
