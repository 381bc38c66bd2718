"""Bundles on disk: lookup by name, description (``wmsched info``), output folders. Loads no model."""

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
MAX_LIST_CHARS = 80  # of a printed list; longer ones are cut


def shipped() -> list[str]:
    """Return the names of the bundles shipped with wmsched."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def find(name: str | Path) -> Path:
    """Return a bundle's folder, given its path or else its shipped name.

    Raises
    ------
    UnknownName
        If it is neither; the message lists similar names.
    """
    for folder in (Path(name), SHIPPED / name):
        if folder.is_dir():
            return folder
    names = shipped()
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.4) or names
    advice = f"did you mean {', '.join(near)}?" if near else "none is shipped with this copy of wmsched"
    raise UnknownName(f"no bundle and no folder is called {str(name)!r}; {advice}")


def describe(name: str | Path) -> list[tuple[str, str]]:
    """Return a bundle's size and ``config.json`` as (dotted name, value) rows; long lists are cut.

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
        whole = len(text) <= MAX_LIST_CHARS
        yield name, text if whole else f"{len(value)}: {text[: MAX_LIST_CHARS - 20].rsplit(', ', 1)[0]}, ..."
    else:
        yield name, f"{value:.4g}" if isinstance(value, float) else str(value)


# Default bundle of a target, for AutoScheduler's schedules.


AVX512_BUNDLE, AVX2_BUNDLE = "x86-avx512", "x86-avx2"


def has_avx2(target: str) -> bool:
    """Return whether a target's text names an x86 processor with AVX2 but without AVX-512."""
    return registers(hardware_features(Workload("", target))) == AVX2


def default_bundle(target: str) -> str:
    """Return the name of the bundle trained on vectors as wide as the target's.

    Every target but x86 with AVX2 alone (ARM, say) gets the bundle trained on most records.
    """
    return AVX2_BUNDLE if has_avx2(target) and AVX2_BUNDLE in shipped() else AVX512_BUNDLE


FORMAT_VERSION = 1
LIBRARIES = ("wmsched", "numpy", "torch", "transformers", "xgboost")


def resolve_output(directory: str | Path) -> Path:
    """Return the folder to write a bundle to: `directory` with links followed, so that links survive.

    Raises
    ------
    BundleError
        The folder exists and is no bundle, or cannot be written.
    """
    try:
        folder = Path(directory).resolve()
        if folder.exists() and not folder.is_dir():
            raise BundleError(f"{directory} is a file: name another folder")
        if folder.is_dir() and not (folder / CONFIG).is_file() and any(folder.iterdir()):
            raise BundleError(f"{directory} is there and is no bundle: name another folder, or empty it")
        if folder.is_mount():  # cannot be renamed, so cannot be replaced
            raise BundleError(f"{directory} is a mount point, which cannot be replaced: name a folder in it")
        above = next(path for path in folder.parents if path.exists())
        writable = above.is_dir() and os.access(above, os.W_OK | os.X_OK) and not folder.is_symlink()
    except (OSError, RuntimeError) as error:  # no permission to read, a link to itself
        raise BundleError(f"{directory} cannot be written ({error}): name another folder") from error
    if not writable:
        raise BundleError(f"{directory} cannot be written: {above} is a file, or closed; name another folder")
    return folder


def recover_interrupted_save(out: Path) -> None:
    """Remove temporary folders that a killed `save_pretrained` left next to the bundle.

    A kill between its two renames leaves the older bundle under a temporary name; that rename is undone.
    """
    if not out.parent.is_dir():
        return
    name = re.compile(rf"\.{re.escape(out.name)}-(?P<old>old-)?[a-z0-9_]{{8}}")  # names made by tempfile
    for path in sorted(out.parent.glob(f".{glob.escape(out.name)}-*")):
        found = name.fullmatch(path.name)
        if found is None or not path.is_dir():
            continue
        if found["old"] and out.with_name(f"{out.name}-old.training").exists():
            continue  # another bundle has that name and may be in training
        if found["old"] and not out.exists() and (path / CONFIG).is_file():
            path.replace(out)
        else:
            shutil.rmtree(path, ignore_errors=True)


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that a bundle's numbers depend on."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
