"""What a build for CUDA needs besides TVM's pipeline: short headers, asynchronous copies, and one mended pass."""

from __future__ import annotations

from typing import Any

import tvm

from wmsched.codegen import cuda_headers, shared_types

#: Copies that a schedule marks as asynchronous become instructions; other schedules stay as they are.
CONFIG = {"tirx.use_async_copy": True}


def install() -> None:
    """Prepare this process for builds for CUDA; once is enough."""
    cuda_headers.install()
    shared_types.install()


def settings(**config: Any) -> Any:
    """Return the context in which TVM builds for CUDA, with what the present one has."""
    present = tvm.transform.PassContext.current()
    kept = {str(name): value for name, value in present.config.items()}
    return tvm.transform.PassContext(opt_level=present.opt_level, config=kept | CONFIG | config)
