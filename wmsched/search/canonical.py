"""Transform steps that change nothing: one program under several lists of steps is measured several times.

AutoScheduler draws where a stage is computed, and where that is its own place at the root it says so with a
step. So with k such stages one program has 2^k lists of steps.
"""

from __future__ import annotations

from wmsched.search.mutations import Steps

ROOT, AT = "CR", "CA"
#: Steps that add a stage. The numbers of those after it are one more then, and of the step's own where 0.
ADDS = {"CHW": 0, "RF": 0, "CHR": 1}
FOLLOWS, FOLLOW_ALL = "FSP", "FFSP"  # which name other steps by their number, in their fourth field


def without_idle(steps: Steps) -> Steps:
    """The steps without those that put a stage to the root that is there; the same program.

    Parameters
    ----------
    steps : list of steps
        Of AutoScheduler's, as in a log.

    Returns
    -------
    list of steps
        The same list where there is none to leave out.
    """
    if not any(step[0] == ROOT for step in steps):
        return steps
    attached: set[int] = set()
    kept: Steps = []
    number: list[int] = []  # of each step among those that are kept; of one left out, the next one's
    for step in steps:
        code, stage = step[0], step[1]
        number.append(len(kept))
        if code == ROOT and stage not in attached:
            continue
        if code in ADDS:
            attached = {one + 1 if one >= stage + ADDS[code] else one for one in attached}
        elif code == AT:
            attached.add(stage)
        elif code == ROOT:
            attached.discard(stage)
        elif code == FOLLOWS:
            step = [*step[:3], number[step[3]], *step[4:]]
        elif code == FOLLOW_ALL:
            step = [*step[:3], [number[one] for one in step[3]], *step[4:]]
        kept.append(step)
    return kept if len(kept) < len(steps) else steps
