"""What kernels are written for: a target's vector registers and threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wmsched.features.hardware import hardware_features
from wmsched.features.vector_width import AVX2, Registers, registers
from wmsched.schedules.types import Workload
from wmsched.toolchain.targets import target_text

__all__ = ["Core"]


@dataclass(frozen=True)
class Core:
    """Registers of a core, and how many threads share a kernel's work.

    A kernel for other registers is right, too, and slower.
    """

    registers: Registers = AVX2
    threads: int = 1

    @classmethod
    def of(cls, target: Any) -> Core:
        """Return those of a target for a processor."""
        workload = Workload(key="", target=target_text(target))
        return cls(registers(hardware_features(workload)), int(target.attrs.get("num-cores", 1)))
