"""``wmsched info``: what a bundle says of itself, read without loading its models."""

from __future__ import annotations

import difflib
import glob
import importlib.metadata
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from wmsched.base.errors import BundleError, UnknownName
from wmsched.features.hardware import hardware_features
from wmsched.features.vector_width import AVX2, registers
from wmsched.schedules.types import Workload

if TYPE_CHECKING:
    pass

SHIPPED = Path(__file__).parents[1] / "bundles"
CONFIG = "config.json"
LONGEST = 80  # characters of a list that are shown


def shipped() -> list[str]:
    """The names of the bundles that come with wmsched."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def find(name: str | Path) -> Path:
    """The folder of a bundle by its path or, if there is no such folder, by its shipped name.

    Raises
    ------
    UnknownName
        If it is neither; the message lists the near names.
    """
    for folder in (Path(name), SHIPPED / name):
        if folder.is_dir():
            return folder
    names = shipped()
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.4) or names
    advice = f"did you mean {', '.join(near)}?" if near else "none is shipped with this copy of wmsched"
    raise UnknownName(f"no bundle and no folder is called {str(name)!r}; {advice}")


def describe(name: str | Path) -> list[tuple[str, str]]:
    """A bundle's ``config.json`` as (dotted name, value) rows, long lists by their length, and its size.

    Raises
    ------
    UnknownName
        If there is no such bundle.
    BundleError
        If the folder holds no readable ``config.json``.
    """
    folder = find(name)
    try:
        config = orjson.loads((folder / CONFIG).read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise BundleError(
            f"{folder / CONFIG} cannot be read ({error}): a bundle is a folder that `wmsched train` wrote"
        ) from error
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    rows = [("folder", str(folder)), ("size", f"{size / 1e6:.1f} MB"), *_flat(config, "")]
    if (folder / "MODEL_CARD.md").is_file():
        rows.append(("model card", str(folder / "MODEL_CARD.md")))
    return rows


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        text = ", ".join(str(item) for item in value)
        whole = len(text) <= LONGEST
        yield name, text if whole else f"{len(value)}: {text[: LONGEST - 20].rsplit(', ', 1)[0]}, ..."
    else:
        yield name, f"{value:.4g}" if isinstance(value, float) else str(value)


# Which of the shipped bundles ranks AutoScheduler's schedules for a target, where none is named.


AVX512_BUNDLE, AVX2_BUNDLE = "x86-avx512", "x86-avx2"


def has_avx2(target: str) -> bool:
    """Whether a target's text is of an x86 processor without AVX-512."""
    return registers(hardware_features(Workload("", target))) == AVX2


def default_bundle(target: str) -> str:
    """The name of the bundle for a target's text: the one that has learnt from vectors as wide as its are.

    ARM and whatever else is no x86 processor with AVX2 alone gets the one of most records.
    """
    return AVX2_BUNDLE if has_avx2(target) and AVX2_BUNDLE in shipped() else AVX512_BUNDLE


FORMAT_VERSION = 1
LIBRARIES = ("wmsched", "numpy", "torch", "transformers", "xgboost")


def resolve_output(directory: str | Path) -> Path:
    """The folder that a bundle for `directory` is written to; links are followed, so that they stay.

    Raises
    ------
    BundleError
        The folder is there and is something else than a bundle, or it cannot be written.
    """
    try:
        folder = Path(directory).resolve()
        if folder.exists() and not folder.is_dir():
            raise BundleError(f"{directory} is a file: name another folder")
        if folder.is_dir() and not (folder / CONFIG).is_file() and any(folder.iterdir()):
            raise BundleError(f"{directory} is there and is no bundle: name another folder, or empty it")
        if folder.is_mount():  # it has to be exchanged for a new one as a whole
            raise BundleError(f"{directory} is a mount point, which cannot be replaced: name a folder in it")
        above = next(path for path in folder.parents if path.exists())
        writable = above.is_dir() and os.access(above, os.W_OK | os.X_OK) and not folder.is_symlink()
    except (OSError, RuntimeError) as error:  # a folder that may not be read, a link to itself
        raise BundleError(f"{directory} cannot be written ({error}): name another folder") from error
    if not writable:
        raise BundleError(f"{directory} cannot be written: {above} is a file, or closed; name another folder")
    return folder


def recover_interrupted_save(out: Path) -> None:
    """Remove what a kill while the bundle was written has left beside it.

    A kill between the two renames of `save_pretrained` leaves the older bundle under another name only: it
    gets its own back.
    """
    if not out.parent.is_dir():
        return
    name = re.compile(rf"\.{re.escape(out.name)}-(?P<old>old-)?[a-z0-9_]{{8}}")  # as tempfile names them
    for path in sorted(out.parent.glob(f".{glob.escape(out.name)}-*")):
        found = name.fullmatch(path.name)
        if found is None or not path.is_dir():
            continue
        if found["old"] and out.with_name(f"{out.name}-old.training").exists():
            continue  # of a bundle of that name, which may be being written
        if found["old"] and not out.exists() and (path / CONFIG).is_file():
            path.replace(out)
        else:
            shutil.rmtree(path, ignore_errors=True)


def library_versions() -> dict[str, str]:
    """Versions of what a bundle's numbers depend on."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
