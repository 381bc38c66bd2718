"""Input rows of the ranker: [predicted terminal state, phi, h]. Training and inference share this code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import BundleError
from wmsched.features.batch.batch import BatchFeatures
from wmsched.features.hardware import run_threads
from wmsched.features.parallel import SLOWDOWN
from wmsched.features.step_features import action_texts
from wmsched.features.table import FEATURE_NAMES, HARDWARE_NAMES, TRACE_NAMES
from wmsched.features.target_options import is_gpu
from wmsched.features.trace_features import trace_features
from wmsched.features.vector_width import in_units, registers
from wmsched.schedules.traces import is_trace, is_trace_key
from wmsched.schedules.types import Workload

if TYPE_CHECKING:
    from wmsched.model.encoder import StateEncoder
    from wmsched.model.transition import TransitionModel

STATES = ("predicted", "initial", "none")  # which embedding of the program a row holds
MAX_CACHED_ACTIONS = 200_000  # embeddings, some 50 MB; the cache is then cleared

Floats = NDArray[np.float32]
Steps = Sequence[Sequence[Any]]


def column_names(*, dim: int, state: str = "predicted", phi: bool = True, traces: bool = False) -> list[str]:
    """Return the ranker's column names: state ``z.0`` to ``z.{dim-1}``, then phi, then h.

    If `traces`, phi also has the columns of MetaSchedule traces, after those that both schedulers share.
    """
    z = [f"z.{k}" for k in range(dim)] if state != "none" else []
    own = TRACE_NAMES if phi and traces else ()
    return [*z, *(FEATURE_NAMES if phi else ()), *own, *HARDWARE_NAMES]


class RowBuilder:
    """Turns candidates into the ranker's rows, in training and in inference.

    Parameters
    ----------
    encoder, transition : E and F; not needed if `state` is "none"
    state : which embedding of the program the rows hold, one of `STATES`
    phi : whether the rows have action features
    traces : whether phi has the columns of MetaSchedule traces; None (training): decided by the candidates
    cores : core count assumed when phi is computed; 0: the workload's own. Trees do not transfer between core
        counts, so by default every workload is featurised as single-core. Only `SLOWDOWN` uses the real
        thread count.

    Raises
    ------
    BundleError
        A part that `state` needs is missing.

    Examples
    --------
    >>> builder = RowBuilder(state="none")  # doctest: +SKIP
    >>> builder.rows(workload, builder.initial(""), hardware, list_of_steps)  # [N, F]  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        encoder: StateEncoder | None = None,
        transition: TransitionModel | None = None,
        state: str = "predicted",
        phi: bool = True,
        traces: bool | None = None,
        cores: int = 1,
    ) -> None:
        if state not in STATES:
            raise BundleError(f"state={state!r} is none of {', '.join(STATES)}")
        if state != "none" and (encoder is None or (state == "predicted" and transition is None)):
            raise BundleError(f"state={state!r} needs an encoder, and a transition if predicted: train them")
        self.encoder, self.transition, self.state, self.phi = encoder, transition, state, phi
        self.dim = encoder.config.dim if encoder is not None and state != "none" else 0
        self.traces, self.cores = traces, cores
        self.columns = column_names(dim=self.dim, state=state, phi=phi, traces=bool(traces))
        # Indices of a model's columns among today's, if it has fewer.
        self._take: NDArray[np.int64] | None = None
        self._actions: dict[str, Floats] = {}  # projected action by text, F's input

    def seen(self, workload: Workload) -> Workload:
        """Return the workload with the core count that the ranker was trained on."""
        if not self.cores or not workload.hardware or is_gpu(workload.target):
            return workload
        return replace(workload, hardware=(self.cores, *workload.hardware[1:]))

    def batch(self, workload: Workload) -> BatchFeatures:
        """Return the featurizer that `rows` takes, for a workload of AutoScheduler."""
        return BatchFeatures(self.seen(workload), threads=run_threads(workload))

    @property
    def slowdown(self) -> int:
        """Index of `SLOWDOWN` in the rows; -1 if they have none."""
        return self.columns.index(SLOWDOWN) if SLOWDOWN in self.columns else -1

    def initial(self, s0_text: str) -> Floats:
        """Return the embedding of an initial program: float32 [d]; zeros for ""."""
        if not s0_text or self.encoder is None or self.state == "none":
            return np.zeros(self.dim, np.float32)
        return self.encoder.encode([s0_text])[0]

    def rows(
        self,
        workload: Workload,
        z0: Floats,
        hardware: Floats,
        list_of_steps: Sequence[Steps],
        *,
        batch: BatchFeatures | None = None,
    ) -> Floats:
        """Return the ranker's input float32 [N, F] for candidates of one workload.

        Parameters
        ----------
        batch : PhiBatch, optional
            Earlier result of the method `batch`, which has cached program structures.
        """
        phi, texts = self._phi(workload, list_of_steps, batch or self.batch(workload))
        return self._joined(z0, hardware, phi, texts)

    def trace_rows(self, z0: Floats, hardware: Floats, phi: Floats, extra: Floats) -> Floats:
        """Return the ranker's input float32 [N, F] for traces with known phi and trace columns.

        Raises
        ------
        ValueError
            The state is predicted, which needs the actions' texts.
        """
        if self.state == "predicted":
            raise ValueError('state="predicted" is rolled out from the steps: give these')
        return self._joined(z0, hardware, self._trace_phi(phi, extra), [])

    def _joined(self, z0: Floats, hardware: Floats, phi: Floats, texts: Sequence[Sequence[str]]) -> Floats:
        parts: list[Floats] = []
        if self.state == "initial" or (self.state == "predicted" and not z0.any()):
            parts.append(np.broadcast_to(z0, (len(phi), self.dim)))
        elif self.state == "predicted":
            parts.append(self._terminal(z0, texts))
        if self.phi:
            parts.append(in_units(phi, registers(hardware)))
        parts.append(np.broadcast_to(hardware, (len(phi), len(hardware))))
        return self.own(np.concatenate(parts, axis=1, dtype=np.float32))

    def _trace_phi(self, phi: Floats, extra: Floats) -> Floats:
        return phi if self.traces is False else np.concatenate([phi, extra], axis=1)

    def own(self, rows: Floats) -> Floats:
        """Select the model's columns from rows with all of today's: float32 [N, F]."""
        return rows if self._take is None else rows[:, self._take]

    def _phi(
        self, workload: Workload, list_of_steps: Sequence[Steps], batch: BatchFeatures
    ) -> tuple[Floats, list[list[str]]]:
        """Return action features, and action texts if the state is predicted from them.

        A ranker trained on one scheduler's columns can score the other's candidates. Shared columns mean the
        same; the other scheduler's own are missing or left out.
        """
        # An empty schedule fits both schedulers; the workload key decides.
        if any(map(is_trace, list_of_steps)) or is_trace_key(workload.key):
            worded = self.state == "predicted"
            phi, extra, texts = trace_features(
                list_of_steps, self.seen(workload), worded=worded, threads=run_threads(workload)
            )
            return self._trace_phi(phi, extra), texts
        phi = batch(list_of_steps)
        texts = action_texts(list_of_steps, workload) if self.state == "predicted" else []
        if self.traces:
            missing = np.full((len(phi), len(TRACE_NAMES)), np.nan, np.float32)
            phi = np.concatenate([phi, missing], axis=1)
        return phi, texts

    def _terminal(self, z0: Floats, texts: Sequence[Sequence[str]]) -> Floats:
        assert self.transition is not None
        place: dict[str, int] = {}
        sequences = [[place.setdefault(text, len(place)) for text in actions] for actions in texts]
        if not place:
            return np.broadcast_to(z0, (len(texts), self.dim))
        self._embed(list(place))
        return self.transition.terminal(z0, np.stack([self._actions[text] for text in place]), sequences)

    def _embed(self, texts: Sequence[str]) -> None:
        import torch

        assert self.encoder is not None and self.transition is not None
        if len(self._actions) + len(texts) > MAX_CACHED_ACTIONS:
            self._actions = {}
        missing = [text for text in texts if text not in self._actions]
        if missing:
            encoded = torch.from_numpy(self.encoder.encode_actions(missing))
            with torch.no_grad():
                projected = self.transition.project(encoded).numpy()
            self._actions.update(zip(missing, projected))
