"""The programs that a schedule passes through, each distinct prefix of its steps replayed once.

Candidates of one workload share most of their beginnings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from data_builder.base.disk_set import DiskSet
from wmsched.base.errors import WmschedError
from wmsched.learn.data.dataset import state_hash

MAX_PREFIXES = 20_000  # some 5 MB, and the prefixes of some 1,500 schedules


class ReplayError(WmschedError):
    """TVM does not accept a prefix of the steps. `step` counts the steps of that prefix."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"step {step} cannot be replayed: {reason}")
        self.step = step
        self.reason = reason


class Prefixes:
    """What is known of the prefixes of one workload's schedules.

    Parameters
    ----------
    on_text : callable (hash, text) -> None
        Called once for each distinct program text, in the order in which they are first met.
    told : Seen, optional
        Remembers which texts have been told.

    Notes
    -----
    Holds 16 bytes a distinct prefix and one hash a distinct text, not the texts; beyond `MAX_PREFIXES` it
    starts anew, which costs replaying some prefixes again, and the texts' hashes move to a file (see
    `seen.Seen`).
    """

    def __init__(self, on_text: Callable[[str, str], None], told: DiskSet | None = None) -> None:
        self.on_text = on_text
        self._by_prefix: dict[bytes, str] = {}
        self._told = told or DiskSet()

    def states(self, steps: Sequence[Any], text: Callable[[int], str]) -> tuple[str, ...]:
        """Hashes of s0 .. sK for K steps.

        Parameters
        ----------
        text : callable (length) -> str
            The program after so many of the steps. What it raises is passed on; texts met before have been
            told all the same.
        """
        hashes = []
        digest = b""
        for length in range(len(steps) + 1):
            if length:
                digest = hashlib.blake2b(digest + orjson.dumps(steps[length - 1]), digest_size=16).digest()
            known = self._by_prefix.get(digest)
            if known is None:
                known = self._tell(text(length))
                if len(self._by_prefix) >= MAX_PREFIXES:
                    self._by_prefix.clear()
                self._by_prefix[digest] = known
            hashes.append(known)
        return tuple(hashes)

    def _tell(self, text: str) -> str:
        name = state_hash(text)
        if self._told.add(bytes.fromhex(name[:32])):
            self.on_text(name, text)
        return name
