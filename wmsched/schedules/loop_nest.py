"""Loop nests of an AutoScheduler candidate, simulated step by step without TVM.

The simulation tracks each stage's iterators, their origin and their extents. It resolves references in a step
("iterator 18 of stage 3") and is the input of phi. There is no bound inference: an iterator's extent is what
its splits say.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from wmsched.schedules.types import Access, Stage

#: TVM's loop annotations, by their number in a step.
ANNOTATIONS = ("none", "unroll", "vectorize", "parallel", "vthread", "blockIdx.x", "threadIdx.x",
        "blockIdx.y", "threadIdx.y", "blockIdx.z", "threadIdx.z", "tensorize")  # fmt: skip
UNROLL, VECTORIZE, PARALLEL = 1, 2, 3


class Loop:
    """One loop: extent (0 unknown), kind "S", "R" or "M" (mixed), annotation, (iterator, extent) parts."""

    __slots__ = ("ann", "extent", "kind", "parts")

    def __init__(self, extent: int, kind: str, parts: tuple[tuple[int, int], ...], ann: int = 0) -> None:
        self.extent = extent
        self.kind = kind
        self.parts = parts
        self.ann = ann


class StageState:
    """A stage as scheduled so far.

    ``at`` is (target stage, loop position) after compute_at, else None. ``around`` is the iteration count of
    loops around the stage that are not in `loops`.
    """

    __slots__ = ("around", "at", "inlined", "loops", "name", "reads", "role", "source", "unroll")

    def __init__(self, name: str, source: Stage | None, loops: list[Loop], reads: tuple[Access, ...] = (),
                 role: str = "compute") -> None:  # fmt: skip
        self.name = name
        self.source = source
        self.loops = loops
        self.reads = reads
        self.role = role  # compute, placeholder, cache_read, cache_write, rfactor
        self.at: tuple[StageState, int] | None = None
        self.inlined = False
        self.unroll = 0
        self.around = 1.0

    def work(self) -> float:
        """Return the number of iterations of its loops."""
        total = 1.0
        for x in self.loops:
            total *= max(1, x.extent)
        return total

    def loop(self, i: int) -> Loop:
        """Return loop ``i``; if the DAG is unknown, create the loops that a step names."""
        if i < 0:
            i = 0
        while len(self.loops) <= i < 256:
            self.loops.append(Loop(0, "S", ((len(self.loops), 0),)))
        return self.loops[min(i, len(self.loops) - 1)]


class LoopNest:
    """All stages of one candidate; :meth:`apply` takes the steps in order and returns their texts.

    Examples
    --------
    >>> nest = LoopNest(workload.stages)
    >>> texts = [nest.apply(step) for step in steps]
    """

    def __init__(self, stages: Sequence[Stage] = ()) -> None:
        self.stages: list[StageState] = [
            StageState(
                s.name,
                s,
                [Loop(i.extent, i.kind, ((n, i.extent),)) for n, i in enumerate(s.iters)],
                s.reads,
                s.kind,
            )
            for s in stages
        ]
        self.known = bool(stages)
        self._splits: list[tuple[int, ...]] = []  # lengths by step number, for FSP and FFSP

    def stage(self, i: int) -> StageState:
        """Return stage ``i`` in the present numbering."""
        if i < 0:
            i = 0
        while len(self.stages) <= i < 1024:
            self.stages.append(StageState(f"s{len(self.stages)}", None, []))
        return self.stages[min(i, len(self.stages) - 1)]

    def apply(self, step: Sequence[Any]) -> str:
        """Apply one checked step; return the action as text, with its references resolved."""
        lengths: tuple[int, ...] = ()
        code = step[0]
        s = self.stage(step[1])
        if code == "SP":
            lengths = tuple(x or 0 for x in step[3 + 1])
            text = self._split(s, step[2], lengths, bool(step[5]), step[3] or 0)
        elif code == "FSP":
            lengths = self._follow(step[3], step[4])
            text = self._split(s, step[2], lengths, True, 0)
        elif code == "FFSP":
            n = prod((self._length(i, step[4]) for i in step[3]), start=1)
            lengths = (n,)
            text = self._split(s, step[2], lengths, bool(step[5]), 0)
        elif code == "AN":
            loop = s.loop(step[2])
            loop.ann = step[3]
            name = ANNOTATIONS[step[3]] if 0 <= step[3] < len(ANNOTATIONS) else f"annotation{step[3]}"
            text = f"{name} {s.name} {_ax(loop)} {loop.extent}"
        elif code == "RE":
            # Loop numbers mean little in a text: write the loops' origins.
            loops = [s.loop(i) for i in step[2]]
            s.loops = loops
            text = f"reorder {s.name} " + " ".join(_ax(x) for x in loops)
        elif code == "FU":
            text = self._fuse(s, step[2])
        elif code == "CA":
            target = self.stage(step[2])
            loop = target.loop(step[3])
            s.at = (target, step[3])
            s.inlined = False
            text = f"compute_at {s.name} {target.name} {step[3]} of {len(target.loops)} {loop.extent}"
        elif code == "CI":
            s.inlined = True
            text = f"inline {s.name}"
        elif code == "CR":
            s.at = None
            s.inlined = False
            text = f"compute_root {s.name}"
        elif code == "PR":
            pragma, _, value = step[3].partition("$")
            if pragma == "auto_unroll_max_step":
                s.unroll = int(value) if value.isdecimal() and len(value) < 8 else 0
            text = f"pragma {s.name} {pragma[:40]} {value[:10]}"
        elif code == "CHR":
            new = StageState(f"{s.name}.{step[2]}", None, _copy_loops(s), (), "cache_read")
            self.stages.insert(step[1] + 1, new)
            text = f"cache_read {s.name} {step[2][:20]} for " + " ".join(
                self.stage(i + 1).name for i in step[3][:8]
            )
        elif code == "CHW":
            new = StageState(f"{s.name}.{step[2]}", s.source, s.loops, s.reads, "cache_write")
            s.loops, s.reads, s.role = [x for x in _copy_loops(s) if x.kind == "S"], (), "copy"
            self.stages.insert(step[1], new)
            text = f"cache_write {s.name} {step[2][:20]}"
        elif code == "RF":
            loop = s.loop(step[2])
            new = StageState(f"{s.name}.rf", s.source, _copy_loops(s), s.reads, "rfactor")
            new.loop(step[2]).kind = "S"
            s.reads = ()
            s.loops = [x for x in s.loops if x.kind == "S" or x is loop]
            self.stages.insert(step[1], new)
            text = f"rfactor {s.name} {_ax(loop)} {loop.extent} to {step[3]}"
        else:  # a code of another scheduler: kept as text, without effect
            text = " ".join(str(f)[:40] for f in step)
        self._splits.append(lengths)
        return text

    def _follow(self, source: int, n: int) -> tuple[int, ...]:
        base = self._splits[source] if 0 <= source < len(self._splits) else ()
        if n < 1 or not base:
            return ()
        return (*base[: n - 1], prod(base[n - 1 :]))

    def _length(self, source: int, level: int) -> int:
        base = self._splits[source] if 0 <= source < len(self._splits) else ()
        return base[level] if 0 <= level < len(base) else 1

    def _split(self, s: StageState, i: int, lengths: tuple[int, ...], inner: bool, extent: int) -> str:
        loop = s.loop(i)
        total = loop.extent or extent
        rest = prod(lengths) if all(lengths) else 0
        outer = -(-total // rest) if rest and total else 0
        sizes = (outer, *lengths) if inner else (*lengths, outer)
        origin = loop.parts[0][0] if len(loop.parts) == 1 else -1
        at = s.loops.index(loop) if loop in s.loops else 0
        s.loops[at : at + 1] = [Loop(n, loop.kind, ((origin, n),)) for n in sizes]
        return f"split {s.name} {_ax(loop)} {total} by " + " ".join(map(str, sizes))

    def _fuse(self, s: StageState, ids: list[int]) -> str:
        loops = [s.loop(i) for i in ids]
        if not loops:
            return f"fuse {s.name}"
        kinds = {x.kind for x in loops}
        fused = Loop(
            prod(x.extent for x in loops),
            kinds.pop() if len(kinds) == 1 else "M",
            sum((x.parts for x in loops), ()),
        )
        at = s.loops.index(loops[0])
        s.loops = [x for x in s.loops if x not in loops]
        s.loops.insert(at, fused)
        # Compute locations in this nest shift by the number of loops removed.
        for other in self.stages:
            if other.at is not None and other.at[0] is s and other.at[1] >= at + len(loops):
                other.at = (s, other.at[1] - len(loops) + 1)
        return f"fuse {s.name} {len(loops)} loops to {fused.extent}"


def _copy_loops(s: StageState) -> list[Loop]:
    return [Loop(x.extent, x.kind, x.parts) for x in s.loops]


def _ax(loop: Loop) -> str:
    if len(loop.parts) != 1:
        return "fused"
    return f"{'r' if loop.kind == 'R' else 'x'}{loop.parts[0][0]}"
