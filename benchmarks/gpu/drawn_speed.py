"""Candidates a second of tensor-core spaces: rows of decisions in the model, and schedules that TVM makes.

    python -m benchmarks.gpu.drawn_speed --out benchmarks/results/gpu-drawn.jsonl

A line for each kind of product: random rows of its spaces, read and ranked by the shipped model, a second;
how many schedules TVM makes a second of some of them, with its postprocessors; and whether both have
the same columns, to the bit. No GPU is needed, and no kernel is compiled.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.compile_kinds import context_of, is_tensor_core
from benchmarks.gpu.kinds import KINDS, Kind

BUNDLE = "cuda-meta"


def compare(kind: Kind, board: str, *, rows: int, made: int) -> dict[str, Any]:
    """Return the line of a kind: `rows` rows of each space, and `made` schedules of TVM's in all."""
    from wmsched.metaschedule.cost_model import WorldModelCostModel
    from wmsched.metaschedule.design_space import DrawnSpaces

    context, designs = context_of(kind, board)
    spaces = DrawnSpaces(context, designs)
    scores = WorldModelCostModel(BUNDLE).scores(context)
    reader: Any = scores.reader
    drawn = spaces.random(rows, np.random.default_rng(1))
    start = time.perf_counter()
    read, fits = spaces.read(reader, drawn)
    scores.shared([key for key in scores.take(read, fits) if key is not None])
    ranked = time.perf_counter() - start
    some = [drawn[k] for k in np.linspace(0, len(drawn) - 1, made).astype(int)]
    start = time.perf_counter()
    candidates = [spaces.candidate(one, checked=False) for one in some]
    making = time.perf_counter() - start
    whole = all(one is not None for one in candidates)
    ours = spaces.read(reader, some)[0]
    return {
        "kind": kind.name,
        "board": board,
        "spaces": len(spaces),
        "tensor_cores": sum(map(is_tensor_core, designs)),
        "rows": len(drawn),
        "fit": int(fits.sum()),
        "rows_a_second": round(len(drawn) / ranked),
        "made": len(some),
        "made_a_second": round(len(some) / making, 1),
        "equal": whole and np.array_equal(ours.columns, reader(candidates).columns, equal_nan=True),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--board", default="RTX 4090")
    parser.add_argument("--kinds", default="", help="some of the kinds; by default all")
    parser.add_argument("--rows", type=int, default=1024, help="of each space")
    parser.add_argument("--made", type=int, default=8, help="schedules that TVM makes")
    parser.add_argument("--out", type=Path, help="file that a line is added to")
    options = parser.parse_args(arguments)
    different = 0
    for kind in KINDS:
        if options.kinds and kind.name not in options.kinds.split(","):
            continue
        line = compare(kind, options.board, rows=options.rows, made=options.made)
        different += not line["equal"]
        print(json.dumps(line), flush=True)
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
