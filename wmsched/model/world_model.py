"""E, F and G composed (section 3.6): a candidate's actions in, a score out; no lowering, no compiler.

E encodes a task's initial program once. F rolls a candidate's actions out from there in the latent space. G
ranks the predicted terminal state with the action and hardware features.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import BundleError
from wmsched.features.step_features import PHI_VERSION
from wmsched.features.table import TRACE_NAMES
from wmsched.model import bundles
from wmsched.model.bundles import CONFIG, FORMAT_VERSION, library_versions, resolve_output
from wmsched.model.ranker_kinds import TREES, find_kind, load_ranker, ranker_kind
from wmsched.model.rows import RowBuilder, column_names
from wmsched.model.task_scorer import TaskScorer
from wmsched.schedules.types import Workload

if TYPE_CHECKING:
    from wmsched.model.encoder import StateEncoder
    from wmsched.model.transition import TransitionModel


Floats = NDArray[np.float32]


class WorldModel(RowBuilder):
    """A pretrained evaluator of schedules.

    Parameters
    ----------
    ranker : G
    encoder, transition : E and F; None if `state` is "none"
    state : which embedding of the program the ranker reads, one of `STATES`
    phi : whether the ranker reads action features
    about : further entries of config.json: the data's fingerprint, metrics, settings
    online : whether task scorers learn from measurements
    columns : the ranker's column names, if today's rows have more; None: all
    cores : see `RowBuilder`

    Raises
    ------
    BundleError
        A part is missing, or the ranker's number of columns does not match the parts.

    Examples
    --------
    >>> model = WorldModel.from_pretrained("x86-avx512")  # doctest: +SKIP
    >>> model.task(workload, s0_text).score(list_of_steps)  # float32 [N]  # doctest: +SKIP
    """

    def __init__(
        self,
        ranker: Any,
        *,
        encoder: StateEncoder | None = None,
        transition: TransitionModel | None = None,
        state: str = "predicted",
        phi: bool = True,
        about: dict[str, Any] | None = None,
        online: bool = False,
        columns: Sequence[str] | None = None,
        cores: int = 1,
    ) -> None:
        super().__init__(encoder=encoder, transition=transition, state=state, phi=phi, cores=cores)
        self.ranker, self.online = ranker, online
        self.about = dict(about or {})
        for traces in (True, False):  # the ranker's width says which scheduler's columns it was trained on
            self.traces = traces
            computed = column_names(dim=self.dim, state=state, phi=phi, traces=traces)
            self.columns = computed if columns is None else list(columns)
            if len(self.columns) == ranker.width and (
                columns is None or bool(set(columns) & set(TRACE_NAMES)) is traces
            ):
                break
        if self.columns != computed and set(self.columns) <= set(computed):
            self._take = np.array([computed.index(name) for name in self.columns])
        if len(self.columns) != ranker.width:
            raise BundleError(
                f"the ranker has {ranker.width} columns and its inputs {len(self.columns)}: the parts are of "
                "different models; train the bundle again"
            )

    @property
    def kind(self) -> str:
        """Kind of G: `ranker_kinds.TREES`, or a plug-in's name."""
        return getattr(self.ranker, "KIND", TREES)

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, *, online: bool = False) -> WorldModel:
        """Load a bundle by its folder or its shipped name.

        Raises
        ------
        UnknownName
            There is no such bundle.
        BundleError
            It is broken, or was written for other features or by another format version.
        """
        folder = bundles.find(name_or_path)
        try:
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            version, names = config["format_version"], config["features"]
            state, phi, phi_version = config["state"], config["phi"], config["phi_version"]
            cores = int(config.get("cores", 0))  # older bundles used the workload's
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BundleError(
                f"{folder / CONFIG}: no bundle's config ({type(error).__name__}: {error}); "
                "name a folder that `wmsched train` wrote, or train it again"
            ) from error
        if version != FORMAT_VERSION:
            raise BundleError(
                f"{folder}: bundle format {version!r}, this wmsched reads {FORMAT_VERSION}; "
                "install the wmsched that wrote it, or run `wmsched train` again"
            )
        _check_columns(folder, names, phi_version if phi else PHI_VERSION)
        there = ranker_kind(folder)
        kind = config.pop("ranker", None) or there  # absent in older bundles
        if kind != there:
            missing = "ranker.ubj" if kind == TREES else find_kind(kind).file
            raise BundleError(
                f"{folder}: its ranker is {kind!r}, and {missing} is missing: copy the "
                "whole bundle, or run `wmsched train` again"
            )
        encoder = transition = None
        if state != "none":
            from wmsched.model.encoder import StateEncoder

            encoder = StateEncoder.load(folder / "encoder")
        if state == "predicted":
            from wmsched.model.transition import TransitionModel

            transition = TransitionModel.load(folder / "transition.safetensors")
        about = {key: value for key, value in config.items() if key not in _CONFIG_KEYS}
        return cls(
            load_ranker(folder, kind),
            encoder=encoder,
            transition=transition,
            state=state,
            phi=phi,
            about=about,
            online=online,
            columns=names,
            cores=cores,
        )

    def save_pretrained(self, directory: str | Path, *, card: str | None = None) -> None:
        """Write a bundle folder atomically; it replaces an older bundle, links followed.

        Parameters
        ----------
        card : text of MODEL_CARD.md; default: the card that the model was loaded with, if any

        Raises
        ------
        BundleError
            The folder exists and is no bundle, or cannot be written.
        """
        folder = resolve_output(directory)
        folder.parent.mkdir(parents=True, exist_ok=True)
        card = card if card is not None else self.about.get("card")
        about = {key: value for key, value in self.about.items() if key != "card"}
        own = (
            FORMAT_VERSION, self.columns, PHI_VERSION, self.state, self.phi, self.cores, library_versions()
        )  # fmt: skip
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            self.ranker.save(fresh)
            if self.encoder is not None and self.state != "none":
                self.encoder.save(fresh / "encoder")
            if self.transition is not None and self.state == "predicted":
                self.transition.save(fresh / "transition.safetensors")
            if card:
                (fresh / "MODEL_CARD.md").write_text(card, encoding="utf-8")
            config = dict(zip(_CONFIG_KEYS, own)) | {"ranker": ranker_kind(fresh)} | about
            text = json.dumps(config, indent=1, allow_nan=False) + "\n"
            (fresh / CONFIG).write_text(text, encoding="utf-8")
            fresh.chmod(0o755)
            if folder.exists():
                old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
                os.replace(folder, old)  # a folder replaces an empty one
                os.replace(fresh, folder)
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.replace(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def task(self, workload: Workload, s0_text: str) -> TaskScorer:
        """Return a scorer of one workload's candidates.

        Parameters
        ----------
        s0_text : TensorIR of the unscheduled program; "" if its compute DAG is unknown, which gives a zero
            state as in training
        """
        return TaskScorer(self, self.ranker, workload, s0_text, online=self.online)


_CONFIG_KEYS = ("format_version", "features", "phi_version", "state", "phi", "cores", "libraries")


def _check_columns(folder: Path, names: Sequence[str], phi_version: int) -> None:
    """Raise BundleError for columns that this library does not compute, or computes differently.

    A bundle with fewer columns is older and still works: an equal `PHI_VERSION` keeps their meaning.
    """
    dim = sum(str(name).startswith("z.") for name in names)
    ours = column_names(dim=dim, state="predicted" if dim else "none", traces=True)
    missing = sorted(set(names) - set(ours))
    if not missing and phi_version == PHI_VERSION and len(set(names)) == len(names):
        return
    raise BundleError(
        f"{folder} was trained on other features: it has {len(names)} columns (phi version {phi_version}), "
        f"this wmsched computes {len(ours)} (phi version {PHI_VERSION}); unknown here: {missing[:5]}. "
        "Run `wmsched train` again, or install the wmsched that wrote it"
    )
