"""Target of a run, as plain facts that are read off TVM's object once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wmsched.toolchain.resolve import device_name, is_cpu
from wmsched.toolchain.targets import CORES, target_text

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """What programs are compiled for and run on.

    Attributes
    ----------
    text : str
        Compact JSON, the form in databases, datasets and reports.
    kind : str
        "llvm", "cuda", ...
    device : str
        TVM's name of the device: "cpu", "cuda".
    cores : int
        Cores that a processor's programs are scheduled for; 0 for another device, or where none is said.
    triple : str
        LLVM's triple; "" for this machine's.
    tvm : tvm.target.Target
        The object itself, for TVM's functions.

    Examples
    --------
    >>> target = Target.of(meta_target(None))
    >>> target.is_cpu, target.cores
    (True, 2)
    """

    text: str
    kind: str
    device: str
    cores: int
    triple: str
    tvm: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, target: Any) -> Target:
        """Read a `tvm.target.Target` once."""
        attributes = target.attrs
        return cls(
            text=target_text(target),
            kind=str(target.kind.name),
            device=device_name(target),
            cores=int(attributes.get(CORES, 0)) if is_cpu(target) else 0,
            triple=str(attributes.get("mtriple", "")),
            tvm=target,
        )

    @property
    def is_cpu(self) -> bool:
        """Whether programs run on a processor."""
        return self.device == "cpu"
