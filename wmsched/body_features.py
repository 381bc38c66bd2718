"""What is left to load once the innermost loops are unrolled and what does not change is moved out.

The code generator unrolls the innermost loops up to the pragma's number. In the straight line that results,
an element read twice is loaded once, and one that the loop around the line does not move is loaded before
that loop. So 48 columns of weights far apart in memory cost their gathers once for 64 rows if the rows are
that loop, and 64 times if the columns are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

from wmsched.kernel_features import _loads, _log, _product, _tile, _vector
from wmsched.schedules.loop_nest import UNROLL, VECTORIZE, Loop, StageState

LEAST = 1e-4  # loads or stores a multiply; fewer are counted as so many

BODY_NAMES: tuple[str, ...] = (
    "body_loads_per_fma",
    "body_gathers_per_fma",
    "body_stores_per_fma",
    "body_held",
)


def unrolled(main: StageState, loops: Sequence[Loop]) -> tuple[int, float]:
    """The first loop of the body that unrolling leaves, and how many statements it has."""
    start, body = len(loops), 1.0
    for x in reversed(loops):
        if x.ann != VECTORIZE:
            if body * x.extent > max(main.unroll, 1) and x.ann != UNROLL:
                break
            body *= x.extent
        start -= 1
    return start, body


def body_features(
    main: StageState, loops: Sequence[Loop], start: int, reads: Sequence[Any]
) -> dict[str, float]:
    """Columns of the heaviest stage's unrolled body.

    Parameters
    ----------
    main : StageState
        The stage; its source is known.
    loops : sequence of Loop
        Its loops longer than one, outermost first.
    start : int
        Which of them is the body's first, as `unrolled` says.
    reads : sequence of Access

    Returns
    -------
    dict
        By `BODY_NAMES`, in powers of two: loads, those of them that gather (by element), and stores of the
        output for a vector multiply; registers that hold what is moved out of the loops around.
    """
    src = main.source
    assert src is not None
    _, lanes, vectors, axis = _vector(loops)
    tile = _tile(src.iters, loops[start:])
    fmas = max(1.0, _product(loops[start:]) / lanes * vectors)
    loads = gathers = held = 0.0
    for access in reads:
        runs = _still(loops[:start], {it for dim in access.dims for it, _ in dim})
        count, gathered = _loads(access, tile, axis, vectors)
        loads += count / runs
        gathers += gathered / runs
        if runs > 1:
            held += count * vectors / lanes if gathered else count
    spatial = {n for n, i in enumerate(src.iters) if i.kind == "S"}
    runs = _still(loops[:start], spatial)
    stores = 1.0
    for it in sorted(spatial):
        stores *= tile[it]
    if axis in spatial:
        stores *= vectors / lanes
    held += stores if runs > 1 else 0.0
    return {
        "body_loads_per_fma": log2(max(loads / fmas, LEAST)),
        "body_gathers_per_fma": log2(max(gathers / fmas, LEAST)),
        "body_stores_per_fma": log2(max(stores / runs / fmas, LEAST)),
        "body_held": _log(held),
    }


def _still(outside: Sequence[Loop], iterators: set[int]) -> float:
    """Iterations of the loops right around the body that move none of these iterators."""
    runs = 1.0
    for x in reversed(outside):
        if any(it in iterators and extent > 1 for it, extent in x.parts):
            break
        runs *= max(1, x.extent)
    return runs
