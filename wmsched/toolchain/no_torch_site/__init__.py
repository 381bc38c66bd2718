"""Folder that comes first on the path of workers without PyTorch (`wmsched.toolchain.no_torch`)."""
