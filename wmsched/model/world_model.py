"""E, F and G composed (section 3.6): the actions of a candidate in, a score out; no lowering, no compiler.

For a task, the initial program is encoded once. For a candidate, its actions are rolled out from there in
the latent space, and the predicted terminal state, the action features and the hardware's go to the ranker.
"""

from __future__ import annotations

import glob
import importlib.metadata
import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wmsched.base.errors import BundleError
from wmsched.features.hardware import hardware_features
from wmsched.features.step_features import PHI_VERSION
from wmsched.features.table import TRACE_NAMES
from wmsched.model import bundles
from wmsched.model.bundles import CONFIG
from wmsched.model.online import Residual
from wmsched.model.ranker import FILES, Ranker
from wmsched.model.rows import RowBuilder, column_names
from wmsched.schedules.types import Workload

if TYPE_CHECKING:
    from benchmarks.rankers.attention_ranker import AttentionRanker
    from benchmarks.rankers.latent_ranker import LatentRanker
    from wmsched.model.encoder import StateEncoder
    from wmsched.model.transition import TransitionModel

FORMAT_VERSION = 1
LIBRARIES = ("wmsched", "numpy", "torch", "transformers", "xgboost")

Floats = NDArray[np.float32]
Steps = Sequence[Sequence[Any]]


def kind_of(folder: Path) -> str:
    """Which G a bundle's folder has: "trees", or by its file "latent" or "attention"."""
    return next((kind for kind, file in FILES.items() if (folder / file).is_file()), "trees")


def load_ranker(folder: Path, kind: str) -> Ranker | AttentionRanker | LatentRanker:
    """A bundle's G of a `kind_of` it: trees, the latent ranker, or the one with cross-candidate attention."""
    if kind == "latent":
        from benchmarks.rankers.latent_ranker import LatentRanker

        return LatentRanker.load(folder)
    if kind == "attention":
        from benchmarks.rankers.attention_ranker import AttentionRanker

        return AttentionRanker.load(folder)
    return Ranker.load(folder)


def destination(directory: str | Path) -> Path:
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


def mend(out: Path) -> None:
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


class WorldModel(RowBuilder):
    """A pretrained evaluator of schedules.

    Parameters
    ----------
    ranker : G
    encoder, transition : E and F; None where `state` is "none"
    state : what the ranker is given of the program's state, one of `STATES`
    phi : whether it is given the action features
    about : what config.json says beside: the data's fingerprint, metrics, settings
    online : whether task scorers learn from what they observe
    columns : names of what the ranker was trained on, where today's rows have more; None: all that they have
    cores : as for `RowBuilder`

    Raises
    ------
    BundleError
        A part is missing, or the ranker has another number of columns than the parts give.
    """

    def __init__(
        self,
        ranker: Ranker | AttentionRanker | LatentRanker,
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
        for traces in (True, False):  # the ranker knows which scheduler's columns it was trained on
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
            cores = int(config.get("cores", 0))  # older ones took the workload's
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
        there = kind_of(folder)
        kind = config.pop("ranker", None) or there  # older ones do not say
        if kind != there:
            raise BundleError(
                f"{folder}: its ranker is {kind!r}, and {FILES.get(kind, 'ranker.ubj')} is missing: copy the "
                "whole bundle, or run `wmsched train` again"
            )
        encoder = transition = None
        if state != "none":
            from wmsched.model.encoder import StateEncoder

            encoder = StateEncoder.load(folder / "encoder")
        if state == "predicted":
            from wmsched.model.transition import TransitionModel

            transition = TransitionModel.load(folder / "transition.safetensors")
        about = {key: value for key, value in config.items() if key not in _OWN}
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
        """Write a bundle folder, all or nothing; an older bundle there, or where a link leads, is replaced.

        Parameters
        ----------
        card : text of MODEL_CARD.md; without it the model's own, if it was given one

        Raises
        ------
        BundleError
            The folder exists and is something else than a bundle, or cannot be written.
        """
        folder = destination(directory)
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
            config = dict(zip(_OWN, own)) | {"ranker": kind_of(fresh)} | about
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
        """A scorer of one workload's candidates.

        Parameters
        ----------
        s0_text : TensorIR of the unscheduled program; "" where its compute DAG is not known: the state is
            then all zeros, as it was in training
        """
        return TaskScorer(self, workload, s0_text)


class TaskScorer:
    """Scores the candidates of one workload; made by :meth:`WorldModel.task`."""

    def __init__(self, model: WorldModel, workload: Workload, s0_text: str) -> None:
        self.model, self.workload, self.s0_text = model, workload, s0_text
        self._z0: Floats | None = None  # encoded when the first candidate comes
        self._hardware = hardware_features(workload)
        self._batch = model.batch(workload)
        self._scale: tuple[float, float] | None = None  # centre and spread of the first batch's margins
        self._residual: Residual | None = Residual() if model.online else None

    @property
    def takes_columns(self) -> bool:
        """Whether `score_columns` can be used: no state is predicted from the steps."""
        return self.model.state != "predicted"

    def rows(self, list_of_steps: Sequence[Steps]) -> Floats:
        """The ranker's input float32 [N, F]."""
        return self.model.rows(
            self.workload, self._initial(), self._hardware, list_of_steps, batch=self._batch
        )

    def _initial(self) -> Floats:
        if self._z0 is None:
            self._z0 = self.model.initial(self.s0_text)
        return self._z0

    def margins(self, list_of_steps: Sequence[Steps]) -> Floats:
        """Higher is faster; float32 [N], any finite numbers, comparable within this task."""
        if not len(list_of_steps):
            return np.zeros(0, np.float32)
        return self._margins(self.rows(list_of_steps))

    def _margins(self, rows: Floats) -> Floats:
        margins = self.model.ranker.margins(rows)
        return margins if self._residual is None else self._residual.correct(rows, margins)

    def score_columns(self, phi: Floats, extra: Floats) -> Floats:
        """`score` of traces whose phi float32 [N, P] and trace columns float32 [N, E] are known already."""
        if not len(phi):
            return np.zeros(0, np.float32)
        rows = self.model.trace_rows(self._initial(), self._hardware, phi, extra)
        return self._squeezed(self._margins(rows))

    def score(self, list_of_steps: Sequence[Steps]) -> Floats:
        """Margins squeezed into (0, 1], float32 [N], finite.

        The map is fitted to the first batch and then stays, so that scores of different batches can be
        compared. It is close to linear over the range of a batch: a search that selects by another scale
        (`search.selection`) fits its own to these scores, and must find the margins' distribution in them.
        """
        return self._squeezed(self.margins(list_of_steps))

    def _squeezed(self, margins: Floats) -> Floats:
        if not len(margins):
            return margins
        if self._scale is None:
            low, centre, high = np.quantile(margins, [0.25, 0.5, 0.75])
            spread = (high - low) / 1.349  # a normal's sigma; less moved by failures than the deviation
            self._scale = float(centre), float(spread) if spread > 1e-6 else 1.0
        centre, spread = self._scale
        z = (margins.astype(np.float64) - centre) / spread
        with np.errstate(over="ignore"):
            scores = 1.0 / (1.0 + np.exp(-z / 4.0))
        return np.clip(scores, 1e-6, 1.0).astype(np.float32)

    def observe(self, list_of_steps: Sequence[Steps], seconds: ArrayLike) -> None:
        """Learn from measurements if the model is online; nothing otherwise.

        Parameters
        ----------
        seconds : [N]; NaN, zero or infinite for a failed one
        """
        if self._residual is None or not len(list_of_steps):
            return
        rows = self.rows(list_of_steps)
        self._residual.observe(rows, self.model.ranker.margins(rows), seconds)


_OWN = ("format_version", "features", "phi_version", "state", "phi", "cores", "libraries")


def _check_columns(folder: Path, names: Sequence[str], phi_version: int) -> None:
    """Refuse a bundle with columns that this library does not compute, or computes otherwise.

    One that lacks some is older and goes on as it was: `PHI_VERSION` says that what it has means the same.
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
