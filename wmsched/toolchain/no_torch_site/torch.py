"""Hides PyTorch from worker processes that `wmsched.toolchain.no_torch` starts: the import fails."""

raise ModuleNotFoundError("torch is not imported in wmsched's worker processes on a processor", name="torch")
