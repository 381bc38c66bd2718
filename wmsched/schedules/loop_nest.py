"""Loop nests of an AutoScheduler candidate, simulated step by step without TVM.

The simulation tracks each stage's iterators, their origin and their extents. It resolves references in a step
("iterator 18 of stage 3") and is the input of phi. There is no bound inference: an iterator's extent is what
its splits say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from wmsched.schedules import grammar as g
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
        code, stage = step[0], self.stage(step[1])
        self._splits.append(())
        if code not in _STEPS:  # without effect here, such as a storage alignment: kept as text
            return " ".join(str(field)[:40] for field in step)
        step_type, handler = _STEPS[code]
        return handler(self, stage, step_type(*step))

    # -- one method for each code

    def _apply_split(self, s: StageState, step: g.SplitStep) -> str:
        lengths = tuple(x or 0 for x in step.lengths)
        return self._split(s, step.loop, lengths, bool(step.inner_to_outer), step.extent or 0)

    def _apply_follow_split(self, s: StageState, step: g.FollowSplitStep) -> str:
        return self._split(s, step.loop, self._follow(step.source, step.n_split), True, 0)

    def _apply_follow_fused_split(self, s: StageState, step: g.FollowFusedSplitStep) -> str:
        length = prod((self._length(source, step.level) for source in step.sources), start=1)
        return self._split(s, step.loop, (length,), bool(step.factor_or_nparts), 0)

    def _apply_annotation(self, s: StageState, step: g.AnnotationStep) -> str:
        loop, number = s.loop(step.loop), step.annotation
        loop.ann = number
        name = ANNOTATIONS[number] if 0 <= number < len(ANNOTATIONS) else f"annotation{number}"
        return f"{name} {s.name} {_ax(loop)} {loop.extent}"

    def _apply_reorder(self, s: StageState, step: g.ReorderStep) -> str:
        # Loop numbers mean little in a text: write the loops' origins.
        s.loops = [s.loop(i) for i in step.order]
        return f"reorder {s.name} " + " ".join(_ax(x) for x in s.loops)

    def _apply_fuse(self, s: StageState, step: g.FuseStep) -> str:
        return self._fuse(s, step.loops)

    def _apply_compute_at(self, s: StageState, step: g.ComputeAtStep) -> str:
        target = self.stage(step.target)
        loop = target.loop(step.loop)
        s.at = (target, step.loop)
        s.inlined = False
        return f"compute_at {s.name} {target.name} {step.loop} of {len(target.loops)} {loop.extent}"

    def _apply_compute_inline(self, s: StageState, step: g.ComputeInlineStep) -> str:
        s.inlined = True
        return f"inline {s.name}"

    def _apply_compute_root(self, s: StageState, step: g.ComputeRootStep) -> str:
        s.at = None
        s.inlined = False
        return f"compute_root {s.name}"

    def _apply_pragma(self, s: StageState, step: g.PragmaStep) -> str:
        pragma, _, value = step.pragma.partition("$")
        if pragma == "auto_unroll_max_step":
            s.unroll = int(value) if value.isdecimal() and len(value) < 8 else 0
        return f"pragma {s.name} {pragma[:40]} {value[:10]}"

    def _apply_cache_read(self, s: StageState, step: g.CacheReadStep) -> str:
        new = StageState(f"{s.name}.{step.scope}", None, _copy_loops(s), (), "cache_read")
        self.stages.insert(step.stage + 1, new)
        readers = " ".join(self.stage(i + 1).name for i in step.readers[:8])
        return f"cache_read {s.name} {step.scope[:20]} for {readers}"

    def _apply_cache_write(self, s: StageState, step: g.CacheWriteStep) -> str:
        new = StageState(f"{s.name}.{step.scope}", s.source, s.loops, s.reads, "cache_write")
        s.loops, s.reads, s.role = [x for x in _copy_loops(s) if x.kind == "S"], (), "copy"
        self.stages.insert(step.stage, new)
        return f"cache_write {s.name} {step.scope[:20]}"

    def _apply_rfactor(self, s: StageState, step: g.RfactorStep) -> str:
        loop = s.loop(step.loop)
        new = StageState(f"{s.name}.rf", s.source, _copy_loops(s), s.reads, "rfactor")
        new.loop(step.loop).kind = "S"
        s.reads = ()
        s.loops = [x for x in s.loops if x.kind == "S" or x is loop]
        self.stages.insert(step.stage, new)
        return f"rfactor {s.name} {_ax(loop)} {loop.extent} to {step.axis}"

    def _follow(self, source: int, n: int) -> tuple[int, ...]:
        base = self._splits[source] if 0 <= source < len(self._splits) else ()
        if n < 1 or not base:
            return ()
        return (*base[: n - 1], prod(base[n - 1 :]))

    def _length(self, source: int, level: int) -> int:
        base = self._splits[source] if 0 <= source < len(self._splits) else ()
        return base[level] if 0 <= level < len(base) else 1

    def _split(self, s: StageState, i: int, lengths: tuple[int, ...], inner: bool, extent: int) -> str:
        """Split loop `i`; the lengths are kept for the steps that follow this one."""
        self._splits[-1] = lengths
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


_STEPS: dict[str, tuple[Callable[..., g.Step], Callable[[LoopNest, StageState, Any], str]]] = {
    "SP": (g.SplitStep, LoopNest._apply_split),
    "FSP": (g.FollowSplitStep, LoopNest._apply_follow_split),
    "FFSP": (g.FollowFusedSplitStep, LoopNest._apply_follow_fused_split),
    "AN": (g.AnnotationStep, LoopNest._apply_annotation),
    "RE": (g.ReorderStep, LoopNest._apply_reorder),
    "FU": (g.FuseStep, LoopNest._apply_fuse),
    "CA": (g.ComputeAtStep, LoopNest._apply_compute_at),
    "CI": (g.ComputeInlineStep, LoopNest._apply_compute_inline),
    "CR": (g.ComputeRootStep, LoopNest._apply_compute_root),
    "PR": (g.PragmaStep, LoopNest._apply_pragma),
    "CHR": (g.CacheReadStep, LoopNest._apply_cache_read),
    "CHW": (g.CacheWriteStep, LoopNest._apply_cache_write),
    "RF": (g.RfactorStep, LoopNest._apply_rfactor),
}


def _copy_loops(s: StageState) -> list[Loop]:
    return [Loop(x.extent, x.kind, x.parts) for x in s.loops]


def _ax(loop: Loop) -> str:
    if len(loop.parts) != 1:
        return "fused"
    return f"{'r' if loop.kind == 'R' else 'x'}{loop.parts[0][0]}"
