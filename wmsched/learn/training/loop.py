"""Training loop of E and F: steps within a budget, metrics lines, resumable checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from wmsched.learn.training.checkpoint import (
    Clock,
    check_settings,
    learning_rate,
    load_checkpoint,
    report,
    save_checkpoint,
    write_metrics,
)


class Steps(Protocol):
    """Training settings that the loop reads."""

    @property
    def seed(self) -> int: ...
    @property
    def epoch_steps(self) -> int: ...
    @property
    def checkpoint_steps(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def warmup(self) -> int: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def clip(self) -> float: ...


@dataclass
class Loop:
    """A training loop that writes checkpoints and resumes from them.

    Parameters
    ----------
    checkpoint, metrics : Path
        Output files.
    settings : dict
        Everything that determines the result; a checkpoint with other settings is refused.
    clock : Clock
    resume : bool
        Whether to resume from the checkpoint; set to False if there is none.
    log, on_step : callable, optional
        Receive each metrics line, and the number of each finished step.

    Raises
    ------
    BundleError
        The checkpoint has other settings or data.
    """

    checkpoint: Path
    metrics: Path
    settings: dict[str, Any] = field(repr=False)
    clock: Clock
    resume: bool = True
    log: Callable[[dict[str, Any]], None] | None = None
    on_step: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        self.resume = self.resume and self.checkpoint.is_file()
        if self.resume:
            check_settings(self.checkpoint, ours=self.settings)

    def run(
        self,
        model: torch.nn.Module,
        training: Steps,
        loss_of: Callable[[np.random.Generator], torch.Tensor],
        validate: Callable[[], dict[str, Any]],
    ) -> None:
        """Train a model in place, with AdamW.

        Parameters
        ----------
        loss_of : callable (generator) -> tensor
            Loss of a batch. Generator and PyTorch's seed depend on the step alone, so a resumed run draws the
            same batches.
        validate : callable () -> dict
            Further values of a metrics line.
        """
        t = training
        optimizer = torch.optim.AdamW(model.parameters(), lr=t.learning_rate, weight_decay=t.weight_decay)
        step, losses, history = 0, [], []  # type: int, list[float], list[dict[str, Any]]
        if self.resume:
            done = load_checkpoint(self.checkpoint, model=model, optimizer=optimizer)
            step, losses, history = done["step"], done["losses"], done["history"]
            self.clock.before = done["seconds"]
        self.clock.restart()
        while (progress := self.clock.progress(step)) < 1.0:
            torch.manual_seed(t.seed * 1_000_003 + step)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(progress, step, peak=t.learning_rate, warmup=t.warmup)
            model.train()
            loss = loss_of(np.random.default_rng([t.seed, step]))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), t.clip)
            optimizer.step()
            losses.append(loss.item())
            step += 1

            finished = self.clock.progress(step) >= 1.0
            if finished or step % t.epoch_steps == 0:
                row = report(history, step, self.clock, losses)
                torch.manual_seed(t.seed)
                history.append(row | validate())
                losses = []
            if finished or step % t.checkpoint_steps == 0 or not losses:
                done = {"settings": self.settings, "step": step, "losses": losses, "history": history}
                done["seconds"] = self.clock.seconds
                save_checkpoint(self.checkpoint, model=model, optimizer=optimizer, progress=done)
            if not losses:  # report only after the checkpoint is written
                write_metrics(self.metrics, history)
                if self.log is not None:
                    self.log(history[-1])
            if self.on_step is not None:
                self.on_step(step)
