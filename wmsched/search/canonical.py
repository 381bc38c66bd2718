"""Removal of transform steps without effect, so that a program is not measured under several step lists.

AutoScheduler samples compute locations; a stage that stays at the root gets a step that says so. A program
with k such stages has 2^k lists of steps.
"""

from __future__ import annotations

from wmsched.schedules.grammar import FollowFusedSplitStep, FollowSplitStep
from wmsched.search.mutations import Steps

COMPUTE_ROOT, COMPUTE_AT = "CR", "CA"
#: Steps that add a stage, with its offset from the step's own. Later stages' numbers grow by one.
STAGE_ADDING = {"CHW": 0, "RF": 0, "CHR": 1}
FOLLOW_SPLIT, FOLLOW_FUSED_SPLIT = "FSP", "FFSP"  # they name other steps by number


def without_idle(steps: Steps) -> Steps:
    """Return the steps without those that move a stage at the root to the root; the program is the same.

    Parameters
    ----------
    steps : list of steps
        AutoScheduler's, as in a log.

    Returns
    -------
    list of steps
        The same list if there is none to remove.
    """
    if not any(step[0] == COMPUTE_ROOT for step in steps):
        return steps
    attached: set[int] = set()
    kept: Steps = []
    number: list[int] = []  # of each step among the kept ones; for a removed one, the next one's
    for step in steps:
        code, stage, *_ = step
        number.append(len(kept))
        if code == COMPUTE_ROOT and stage not in attached:
            continue
        if code in STAGE_ADDING:
            attached = {one + 1 if one >= stage + STAGE_ADDING[code] else one for one in attached}
        elif code == COMPUTE_AT:
            attached.add(stage)
        elif code == COMPUTE_ROOT:
            attached.discard(stage)
        elif code == FOLLOW_SPLIT:
            follow = FollowSplitStep(*step)
            step = [*follow._replace(source=number[follow.source])]
        elif code == FOLLOW_FUSED_SPLIT:
            fused = FollowFusedSplitStep(*step)
            step = [*fused._replace(sources=[number[one] for one in fused.sources])]
        kept.append(step)
    return kept if len(kept) < len(steps) else steps
