"""Inputs of an evaluation, computed once per dataset and cached on disk: phi, states, times.

Every measured candidate has phi and h, the initial state E(s0), the terminal state that F predicts, and the
true one E(s_T) if it was replayed. Inputs do not depend on G, so all variants of G and all folds share them.
Needs no TVM.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import DatasetError
from wmsched.base.files import try_write
from wmsched.features import step_features
from wmsched.features.hardware import hardware_features
from wmsched.features.parallel import SLOWDOWN
from wmsched.learn.data.dataset import Dataset, ranked
from wmsched.learn.data.operators import operator
from wmsched.learn.data.splits import networks_of
from wmsched.model.groups import RankGroup
from wmsched.model.rows import RowBuilder
from wmsched.schedules.traces import is_trace_key
from wmsched.schedules.types import Trajectory, Workload

if TYPE_CHECKING:
    from wmsched.model.encoder import StateEncoder
    from wmsched.model.transition import TransitionModel
    from wmsched.model.world_model import WorldModel

Floats = NDArray[np.float32]
Log = Callable[[dict[str, Any]], None]

#: name -> (state, phi): inputs of a variant of G. "true" needs replayed records.
VARIANTS: dict[str, tuple[str, bool]] = {
    "phi": ("none", True),
    "initial + phi": ("initial", True),
    "predicted + phi": ("predicted", True),
    "true + phi": ("true", True),
    "initial": ("initial", False),
    "predicted": ("predicted", False),
    "true": ("true", False),
}


@dataclass(frozen=True)
class TaskInputs:
    """One workload's measured candidates.

    Attributes
    ----------
    key : of the rank group in the dataset;  program : sha256 of the workload's key, the same on each machine
    network, operator : of the workload
    weight : occurrences of the workload in its network
    seconds : float64 [N], NaN if failed
    phi : float32 [N, P];  hardware : float32 [H]
    initial : float32 [d];  predicted : float32 [N, d];  true : float32 [N, d], NaN if not replayed. The
        width is 0 without an encoder (or, for `predicted`, a transition).
    """

    key: str
    program: str
    network: str
    operator: str
    weight: int
    seconds: NDArray[np.float64]
    phi: Floats
    hardware: Floats
    initial: Floats
    predicted: Floats
    true: Floats

    def rows(self, state: str, phi: bool) -> Floats:
        """Return the ranker's columns [z, phi, h] float32 [N, F], in the order of
        :mod:`wmsched.model.rows`."""
        n = len(self.seconds)
        parts: list[Floats] = []
        if state == "initial":
            parts.append(np.broadcast_to(self.initial, (n, len(self.initial))))
        elif state != "none":
            parts.append(self.predicted if state == "predicted" else self.true)
        if phi:
            parts.append(self.phi)
        parts.append(np.broadcast_to(self.hardware, (n, len(self.hardware))))
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def group(self, state: str, phi: bool) -> RankGroup:
        """Return the rows as a rank group."""
        rows = self.rows(state, phi)
        before = rows.shape[1] - self.phi.shape[1] - len(self.hardware)  # columns of the state
        slowdown = before + step_features.FEATURE_NAMES.index(SLOWDOWN) if phi else -1
        return RankGroup(self.program, rows, self.seconds, self.network, slowdown)

    def only(self, keep: NDArray[np.bool_]) -> TaskInputs:
        """Return the candidates selected by `keep` [N]."""
        return dataclasses.replace(self, **{name: getattr(self, name)[keep] for name in _FIELDS})

    @property
    def replayed(self) -> NDArray[np.bool_]:
        """Whether each candidate has a true terminal state, bool [N]."""
        if not self.true.shape[1]:
            return np.zeros(len(self.seconds), bool)
        return np.isfinite(self.true[:, 0])


def named(path: Path) -> Path:
    """Return the path, resolved if it is "." or "..", so that it has a name."""
    return path if path.name.strip(".") else path.resolve()


def cache_of(dataset: Path) -> Path:
    """Return the cache folder of a dataset's rows: ``<dataset>.eval``, next to it."""
    root = named(dataset)
    return root.with_name(root.name + ".eval")


def check_scheduler(model: WorldModel, dataset: Dataset, bundle: str | Path) -> None:
    """Raise DatasetError for records of a scheduler that the bundle does not rank: their columns differ.

        Without phi both schedulers have the same columns.

    Raises
    ------
    DatasetError
        Workloads of the dataset are the other scheduler's.
    """
    if not model.phi:
        return
    workloads = dataset.workloads()
    own = bool(model.traces)
    other = [workload.id for workload in workloads if is_trace_key(workload.key) is not own]
    if not other:
        return
    names = {False: ("AutoScheduler", "x86-avx512"), True: ("MetaSchedule", "x86-meta")}
    (ours, _), (theirs, fitting) = names[own], names[not own]
    whole = len(other) == len(workloads)
    raise DatasetError(
        f"{dataset.root}, workload {other[0]}: these records are {theirs}'s, and {bundle} ranks {ours}'s: "
        + (f"--bundle {fitting}" if whole else "build a dataset of the logs of one of them alone")
    )


def gather(
    dataset: Dataset,
    *,
    encoder: StateEncoder | None = None,
    transition: TransitionModel | None = None,
    cache: Path | None = None,
    embeddings: Path | None = None,
    true_states: bool = True,
    cores: int = 1,
    log: Log | None = None,
) -> list[TaskInputs]:
    """Return inputs of every workload with a measured time, from the cache if possible.

        Disturbed records (by a noise check) are left out.

    Parameters
    ----------
    cache : folder of the rows; None or a read-only folder: no cache. The file name hashes the data, E, F and
        the code, so a stale file is never read.
    embeddings : folder of state embeddings from training; default: `cache`
    true_states : False skips E(s_T), which takes nearly all of the time
    cores : see `rows.RowBuilder`; the model's own

    Raises
    ------
    DatasetError
        No record has a measured time, or all are disturbed.
    """
    kind = "rows2" if true_states else "rows-only-predicted"
    path = None if cache is None else cache / f"{kind}-{_digest(dataset, encoder, transition, cores)}.npz"
    found = _read(path)
    if found is None:
        found = _compute(dataset, encoder, transition, embeddings or cache, true_states, cores, log)
        if path is not None:
            try_write(path, functools.partial(_write, found))
    found = [task for task in found if np.isfinite(task.seconds).any()]
    if not found:
        raise DatasetError(f"{dataset.root}: no record has a measured time to rank by")
    return found


def _compute(
    dataset: Dataset,
    encoder: StateEncoder | None,
    transition: TransitionModel | None,
    embeddings: Path | None,
    true_states: bool,
    cores: int,
    log: Log | None,
) -> list[TaskInputs]:
    from wmsched.learn.data.embeddings import EmbeddingCache

    if encoder is None:
        transition = None
    state = "predicted" if transition is not None else ("initial" if encoder is not None else "none")
    builder = RowBuilder(encoder=encoder, transition=transition, state=state, cores=cores)
    # "auto": the precision of training's state embeddings, so their cache is reused
    states = None
    if encoder is not None and true_states:
        states = EmbeddingCache(encoder, embeddings, precision="auto")
    workloads, result, left_out = dataset.workloads(), [], 0
    for number, (workload, network) in enumerate(zip(workloads, networks_of(workloads), strict=True)):
        trajectories, disturbed = ranked(dataset, workload.id)
        left_out += disturbed
        if not trajectories:
            continue
        try:
            text = dataset.initial(workload.id) if builder.dim else ""
        except DatasetError:  # not replayable: no state, as in a search
            text = ""
        z0, h = builder.initial(text), hardware_features(workload)
        rows = builder.rows(workload, z0, h, [trajectory.steps for trajectory in trajectories])
        n, dim = len(rows), builder.dim
        true = np.full((n, dim), np.nan, np.float32)
        if states is not None:
            _true_states(dataset, workload, trajectories, states, true)
        result.append(
            TaskInputs(
                key=workload.id,
                program=hashlib.sha256(workload.key.encode()).hexdigest(),
                network=network,
                operator=operator(workload),
                weight=workload.weight,
                seconds=np.array([t.measurement.seconds for t in trajectories], np.float64),
                phi=np.ascontiguousarray(rows[:, dim : rows.shape[1] - len(h)]),
                hardware=h,
                initial=z0,
                predicted=np.ascontiguousarray(rows[:, :dim])
                if transition is not None
                else np.zeros((n, 0), np.float32),
                true=true,
            )
        )
        if log is not None and (number + 1) % 50 == 0:
            log({"rows_of": number + 1, "of": len(workloads)})
    if left_out and log is not None:
        log({"disturbed_left_out": left_out})
    if not result:
        why = f" but {left_out} that a noise check marked as disturbed; measure again" if left_out else ""
        raise DatasetError(f"{dataset.root}: no records to rank{why}")
    return result


def _true_states(
    dataset: Dataset, workload: Workload, trajectories: Sequence[Trajectory], states: Any, out: Floats
) -> None:
    last = {n: t.states[-1] for n, t in enumerate(trajectories) if t.states}
    if not last:
        return
    texts = dataset.states(workload.id)
    states.add(texts[name] for name in last.values())
    for n, name in last.items():
        out[n] = states[texts[name]]


def _digest(
    dataset: Dataset, encoder: StateEncoder | None, transition: TransitionModel | None, cores: int
) -> str:
    """Return a hash of everything that the rows depend on, code included."""
    digest = hashlib.sha256(repr(sorted(dataset.fingerprint().items())).encode())
    digest.update(f"undisturbed, of {cores} cores".encode())
    # more replayed records change the manifest, not the logs
    digest.update((dataset.root / "manifest.json").read_bytes())
    for path in _code():
        digest.update(path.read_bytes())
    if encoder is not None:
        digest.update(encoder.fingerprint().encode())
    if transition is not None:
        for name, tensor in sorted(transition.state_dict().items()):
            digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


def _code() -> list[Path]:
    """Return the source files that rows may depend on: whole packages, so that none is forgotten."""
    home = Path(str(step_features.__file__)).parents[1]
    names = ("base/*.py", "schedules/*.py", "features/**/*.py", "model/*.py", "learn/data/*.py")
    return sorted(path for name in names for path in home.glob(name))


_LABELS = ("key", "program", "network", "operator")
_FIELDS = ("seconds", "phi", "predicted", "true")  # one row a candidate


def _write(tasks: Sequence[TaskInputs], file: IO[bytes]) -> None:
    arrays: dict[str, Any] = {name: np.concatenate([getattr(t, name) for t in tasks]) for name in _FIELDS}
    arrays |= {name: np.stack([getattr(t, name) for t in tasks]) for name in ("hardware", "initial")}
    arrays |= {name: np.array([getattr(t, name) for t in tasks]) for name in _LABELS}
    arrays["weight"] = np.array([t.weight for t in tasks])
    arrays["count"] = np.array([len(t.seconds) for t in tasks])
    np.savez(file, **arrays)


def _read(path: Path | None) -> list[TaskInputs] | None:
    import zipfile

    if path is None or not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            data = {name: file[name] for name in file.files}
        ends = np.cumsum(data["count"])[:-1]
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None  # a cache may be thrown away; the next write replaces the damaged file
    columns = {name: np.split(data[name], ends) for name in _FIELDS}
    return [
        TaskInputs(
            weight=int(data["weight"][n]),
            hardware=data["hardware"][n],
            initial=data["initial"][n],
            **_row(data, columns, n),
        )
        for n in range(len(data["count"]))
    ]


def _row(data: dict[str, Any], columns: dict[str, Any], n: int) -> dict[str, Any]:
    return {name: str(data[name][n]) for name in _LABELS} | {name: columns[name][n] for name in _FIELDS}
