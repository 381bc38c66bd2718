"""One run over a whole model: what it was asked for, and what stays the same from its start to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wmsched.relax.importers.model import Model
from wmsched.toolchain.target import Target
from wmsched.tune.options import ModelOptions

if TYPE_CHECKING:  # it imports TVM
    from wmsched.metaschedule.rpc.runner import DeviceRunner
    from wmsched.relax.passes.objects import Objects

__all__ = ["Run"]


def _never() -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that tunes or constructs a model.

    Parameters
    ----------
    options : ModelOptions
    model : Model
    target : Target
    settings : mapping of str to bool
        `wmsched.tune.prepare.SETTINGS`, as the folder began, whatever the options say.
    tell : callable (text)
        Shows the user a line.
    objects : Objects, optional
        Compiled functions, for all builds of the run.
    interrupted : callable ()
        Whether the user wants to leave.
    devices : DeviceRunner, optional
        Times programs in place of this machine (`wmsched.metaschedule.rpc`).
    records : Path, optional
        Folder of the database, where it is not the options' `out`: several shapes share one.
    """

    options: ModelOptions
    model: Model
    target: Target
    settings: Mapping[str, bool]
    tell: Callable[[str], None]
    objects: Objects | None = None
    interrupted: Callable[[], bool] = _never
    devices: DeviceRunner | None = None
    records: Path | None = None
