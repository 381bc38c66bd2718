"""One way to write a network's weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def save_weights(
    path: str | Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any] | None = None
) -> None:
    """Write a safetensors file.

    Parameters
    ----------
    path : in an existing folder
    tensors : by name, contiguous or not
    header : JSON values, for the file's metadata under "wmsched"
    """
    from safetensors.torch import save

    metadata = None if header is None else {"wmsched": json.dumps(header)}
    # not safetensors' save_file: no other user could read what that writes
    Path(path).write_bytes(save({k: v.contiguous() for k, v in tensors.items()}, metadata=metadata))
