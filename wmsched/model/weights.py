"""Safetensors files of network weights: atomic write, checked read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmsched.base.errors import BundleError

if TYPE_CHECKING:
    from torch import Tensor, nn

METADATA_KEY = "wmsched"  # of the header


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

    metadata = None if header is None else {METADATA_KEY: json.dumps(header)}
    # not safetensors' save_file: its files are readable by their owner alone
    Path(path).write_bytes(save({k: v.contiguous() for k, v in tensors.items()}, metadata=metadata))


def read_weights(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return header and tensors of a file; errors of safetensors pass through."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return _header(file), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read_header(path: str | Path) -> dict[str, Any]:
    """Return the header alone."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return _header(file)


def _header(file: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((file.metadata() or {})[METADATA_KEY])
    return found


@contextmanager
def usable(path: str | Path, what: str, remedy: str = "train or copy it again") -> Iterator[None]:
    """Turn errors in the block into a BundleError that names the file or folder."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise BundleError(
            f"{path}: no usable {what} ({type(error).__name__}: {str(error)[:200]}); {remedy}"
        ) from error


def check_version(path: str | Path, what: str, found: Any, version: int) -> None:
    """Raise BundleError if a format version is another release's."""
    if found != version:
        raise BundleError(
            f"{path}: {what} format {found}, this library reads {version}; use the wmsched release that "
            "wrote it, or train it again"
        )


@contextmanager
def saved_weights(
    path: str | Path, what: str, version: int
) -> Iterator[tuple[dict[str, Any], dict[str, Tensor]]]:
    """Read a file of `save_weights`; errors in the block become a BundleError that names the file.

    Parameters
    ----------
    path : of the file
    what : what is in it, for the message
    version : required "format_version" of the header

    Yields
    ------
    header, tensors

    Raises
    ------
    BundleError
        The file is missing, damaged or of another release.
    """
    with usable(path, what):
        header, tensors = read_weights(path)
        check_version(path, what, header["format_version"], version)
        yield header, tensors


def together(networks: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the weights of several networks, each name prefixed with its network's number."""
    return {
        f"{number}.{name}": tensor
        for number, network in enumerate(networks)
        for name, tensor in network.state_dict().items()
    }


def take_apart(tensors: Mapping[str, Tensor], networks: Sequence[nn.Module]) -> None:
    """Load the result of `together` into networks; raise RuntimeError if the names differ."""
    for number, network in enumerate(networks):
        own = f"{number}."
        network.load_state_dict({name[len(own) :]: t for name, t in tensors.items() if name.startswith(own)})
