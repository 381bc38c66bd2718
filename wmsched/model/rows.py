"""The ranker's input: [predicted terminal state, phi, h], the same code in training and in serving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import BundleError
from wmsched.features.batch.batch import BatchFeatures
from wmsched.features.hardware import is_gpu, run_threads
from wmsched.features.parallel import SLOWDOWN
from wmsched.features.step_features import action_texts
from wmsched.features.table import FEATURE_NAMES, HARDWARE_NAMES, TRACE_NAMES
from wmsched.features.trace_features import trace_features
from wmsched.features.vector_width import in_units, registers
from wmsched.schedules.traces import is_trace, is_trace_key
from wmsched.schedules.types import Workload

if TYPE_CHECKING:
    from wmsched.model.encoder import StateEncoder
    from wmsched.model.transition import TransitionModel

STATES = ("predicted", "initial", "none")  # what of the program's state the ranker is given
CACHED_ACTIONS = 200_000  # embeddings kept before the cache starts anew: some 50 MB

Floats = NDArray[np.float32]
Steps = Sequence[Sequence[Any]]


def column_names(*, dim: int, state: str = "predicted", phi: bool = True, traces: bool = False) -> list[str]:
    """Names of the ranker's columns: the state's ``z.0`` to ``z.{dim-1}``, then phi, then h.

    With `traces`, phi has the columns of MetaSchedule traces after those that both schedulers share.
    """
    z = [f"z.{k}" for k in range(dim)] if state != "none" else []
    own = TRACE_NAMES if phi and traces else ()
    return [*z, *(FEATURE_NAMES if phi else ()), *own, *HARDWARE_NAMES]


class RowBuilder:
    """From candidates to the ranker's rows, the same in training and in serving.

    Parameters
    ----------
    encoder, transition : E and F; not needed where `state` is "none"
    state : what the rows say of the program's state, one of `STATES`
    phi : whether they have the action features
    traces : whether phi has the columns of MetaSchedule traces; None: as the candidates are, for training
    cores : of a processor, as phi's columns but `SLOWDOWN` are to take them; 0: as each workload says. What
        trees learnt of one number of cores does not hold for another, so they see all as of one

    Raises
    ------
    BundleError
        A part that `state` needs is missing.
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
        # Places of a model's columns among all of today's, where it has not all of them.
        self._take: NDArray[np.int64] | None = None
        self._actions: dict[str, Floats] = {}  # by text: projected, what F takes

    def seen(self, workload: Workload) -> Workload:
        """A workload as phi's columns are to take it, with the cores that the ranker was trained on."""
        if not self.cores or not workload.hardware or is_gpu(workload.target):
            return workload
        return replace(workload, hardware=(self.cores, *workload.hardware[1:]))

    def batch(self, workload: Workload) -> BatchFeatures:
        """What `rows` takes, for a workload of AutoScheduler."""
        return BatchFeatures(self.seen(workload), threads=run_threads(workload))

    @property
    def slowdown(self) -> int:
        """The place of `SLOWDOWN` in the rows; -1 where they have none."""
        return self.columns.index(SLOWDOWN) if SLOWDOWN in self.columns else -1

    def initial(self, s0_text: str) -> Floats:
        """Encode an initial program: float32 [d]; zeros for ""."""
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
        """The ranker's input float32 [N, F] for candidates of one workload.

        Parameters
        ----------
        batch : PhiBatch, optional
            What the method `batch` gave before: it knows structures by now.
        """
        phi, texts = self._phi(workload, list_of_steps, batch or self.batch(workload))
        return self._joined(z0, hardware, phi, texts)

    def trace_rows(self, z0: Floats, hardware: Floats, phi: Floats, extra: Floats) -> Floats:
        """The ranker's input float32 [N, F] for traces whose phi and trace columns are known already.

        Raises
        ------
        ValueError
            The state is predicted from the actions' texts, which are not there.
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
        """Of rows with every column of today, those of `columns`: float32 [N, F]."""
        return rows if self._take is None else rows[:, self._take]

    def _phi(
        self, workload: Workload, list_of_steps: Sequence[Steps], batch: BatchFeatures
    ) -> tuple[Floats, list[list[str]]]:
        """Action features, and texts where the state is predicted from them.

        A ranker of one scheduler's columns can score the other's candidates: what they share means the same,
        and what its own has beside is missing or left out.
        """
        # A schedule without a step is of either; its workload's key tells.
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
        if len(self._actions) + len(texts) > CACHED_ACTIONS:
            self._actions = {}
        missing = [text for text in texts if text not in self._actions]
        if missing:
            encoded = torch.from_numpy(self.encoder.encode_actions(missing))
            with torch.no_grad():
                projected = self.transition.project(encoded).numpy()
            self._actions.update(zip(missing, projected))
