"""The grammar of schedules: AutoScheduler's transform steps and MetaSchedule's instructions, by field names.

A log or a database has them as JSON lists, and so have the functions that read, write and store schedules.
`typed` and `Instruction` give a list's fields their names, and ``[*step]`` gives a step's list back.

The fields of a step are those of TVM's ``transform_step.h``. ``stage`` is the number of the stage that a step
changes, and ``loop`` the number of one of its loops, both as they are when the step is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class AnnotationStep(NamedTuple):
    code: str  # "AN"
    stage: int
    loop: int
    annotation: int  # number in `loop_nest.ANNOTATIONS`


class FuseStep(NamedTuple):
    code: str  # "FU"
    stage: int
    loops: list[int]


class PragmaStep(NamedTuple):
    code: str  # "PR"
    stage: int
    loop: int
    pragma: str  # such as "auto_unroll_max_step$64"


class ReorderStep(NamedTuple):
    code: str  # "RE"
    stage: int
    order: list[int]


class SplitStep(NamedTuple):
    code: str  # "SP"
    stage: int
    loop: int
    extent: int | None
    lengths: Sequence[int | None]  # of all loops that it makes but one
    inner_to_outer: int  # 1: the loop without a length is the outermost


class FollowSplitStep(NamedTuple):
    code: str  # "FSP"
    stage: int
    loop: int
    source: int  # number of the split step that it follows
    n_split: int  # loops that it makes, without the outermost


class FollowFusedSplitStep(NamedTuple):
    code: str  # "FFSP"
    stage: int
    loop: int
    sources: list[int]  # numbers of the split steps that it follows
    level: int
    factor_or_nparts: int


class StorageAlignStep(NamedTuple):
    code: str  # "SA"
    stage: int
    loop: int
    factor: int
    offset: int


class ComputeAtStep(NamedTuple):
    code: str  # "CA"
    stage: int
    target: int  # stage at whose loop it is computed
    loop: int  # of the target


class ComputeInlineStep(NamedTuple):
    code: str  # "CI"
    stage: int


class ComputeRootStep(NamedTuple):
    code: str  # "CR"
    stage: int


class CacheReadStep(NamedTuple):
    code: str  # "CHR"
    stage: int
    scope: str
    readers: list[int]  # stages


class CacheWriteStep(NamedTuple):
    code: str  # "CHW"
    stage: int
    scope: str


class RfactorStep(NamedTuple):
    code: str  # "RF"
    stage: int
    loop: int
    axis: int  # of the factored output


Step = (
    AnnotationStep
    | FuseStep
    | PragmaStep
    | ReorderStep
    | SplitStep
    | FollowSplitStep
    | FollowFusedSplitStep
    | StorageAlignStep
    | ComputeAtStep
    | ComputeInlineStep
    | ComputeRootStep
    | CacheReadStep
    | CacheWriteStep
    | RfactorStep
)

#: Types of the steps, by code.
STEPS: dict[str, Callable[..., Step]] = {
    "AN": AnnotationStep,
    "FU": FuseStep,
    "PR": PragmaStep,
    "RE": ReorderStep,
    "SP": SplitStep,
    "FSP": FollowSplitStep,
    "FFSP": FollowFusedSplitStep,
    "SA": StorageAlignStep,
    "CA": ComputeAtStep,
    "CI": ComputeInlineStep,
    "CR": ComputeRootStep,
    "CHR": CacheReadStep,
    "CHW": CacheWriteStep,
    "RF": RfactorStep,
}


def typed(step: Sequence[Any]) -> Step:
    """Return a step with names for its fields.

    Raises
    ------
    KeyError, TypeError
        The code is unknown, or has another number of fields; `steps.check_steps` says so in words.
    """
    return STEPS[step[0]](*step)


def splits(steps: Sequence[Sequence[Any]]) -> list[SplitStep]:
    """Return the splits among a schedule's steps."""
    return [SplitStep(*step) for step in steps if step[0] == "SP"]


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


#: Decision of an instruction that decides nothing, or whose decision is not known. JSON's null is a decision.
ABSENT: Any = _Absent()


class Instruction(NamedTuple):
    """An instruction of a MetaSchedule trace, with its decision."""

    kind: str
    inputs: Sequence[Any]  # names of random variables, numbers, texts, lists of these
    attributes: Sequence[Any]
    outputs: Sequence[str]  # names of the random variables that it defines
    decision: Any = ABSENT

    def decided(self, otherwise: Any = None) -> Any:
        """Return the decision, or `otherwise` where there is none."""
        return otherwise if self.decision is ABSENT else self.decision
