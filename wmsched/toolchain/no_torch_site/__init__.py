"""What is first on the path of worker processes that need no PyTorch (`wmsched.toolchain.no_torch`)."""
