"""One way to write networks' weights, and to read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmsched.errors import BundleError

if TYPE_CHECKING:
    from torch import Tensor, nn

KEY = "wmsched"  # of the header, in a file's metadata


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

    metadata = None if header is None else {KEY: json.dumps(header)}
    # not safetensors' save_file: no other user could read what that writes
    Path(path).write_bytes(save({k: v.contiguous() for k, v in tensors.items()}, metadata=metadata))


def read_weights(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file that has both; whatever safetensors raises where there is none."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        header = json.loads((file.metadata() or {})[KEY])
        return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@contextmanager
def saved_weights(
    path: str | Path, what: str, version: int
) -> Iterator[tuple[dict[str, Any], dict[str, Tensor]]]:
    """Read what `save_weights` wrote; what fails while something is made of it says that the file is no good.

    Parameters
    ----------
    path : of the file
    what : what is in it, for the message
    version : that the header's "format_version" has to be

    Yields
    ------
    header, tensors

    Raises
    ------
    BundleError
        The file is missing, damaged or of another release.
    """
    from safetensors import SafetensorError

    try:
        header, tensors = read_weights(path)
        if header["format_version"] != version:
            raise BundleError(
                f"{path}: {what} format {header['format_version']}, this library reads {version}; use the "
                "wmsched release that wrote it, or train it again"
            )
        yield header, tensors
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise BundleError(
            f"{path}: no usable {what} ({type(error).__name__}: {str(error)[:200]}); train or copy it again"
        ) from error


def together(networks: Sequence[nn.Module]) -> dict[str, Tensor]:
    """The weights of several networks, each name with its network's number before it."""
    return {
        f"{number}.{name}": tensor
        for number, network in enumerate(networks)
        for name, tensor in network.state_dict().items()
    }


def take_apart(tensors: Mapping[str, Tensor], networks: Sequence[nn.Module]) -> None:
    """Give networks the weights that `together` made of theirs; RuntimeError where one has others."""
    for number, network in enumerate(networks):
        own = f"{number}."
        network.load_state_dict({name[len(own) :]: t for name, t in tensors.items() if name.startswith(own)})
