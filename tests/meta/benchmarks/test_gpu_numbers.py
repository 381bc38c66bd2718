"""GPU schedules that run on the processor as loops: a wrong one is seen, and each kind is what numpy says."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu.compile_kinds import BOARDS, context_of, drawn, spaces_of
from benchmarks.gpu.programs import SMALL_PROGRAMS, Program
from benchmarks.gpu.right_kinds import ARCH, MOST, TIR, check_kind, off_by

PROGRAMS = {program.name: program for program in SMALL_PROGRAMS}


def test_threads_as_loops_compute_the_program_and_not_another(tmp_path) -> None:
    chain = PROGRAMS["chain"]
    context, designs = context_of(chain, BOARDS[ARCH])
    (_, design), *_ = spaces_of(chain, designs)
    schedule = next(filter(None, (drawn(context, design, seed) for seed in range(1, 100))))
    how, off = off_by(chain, schedule, context.target, folder=tmp_path)
    assert how == TIR and off <= MOST[chain.out]
    other = Program(
        name="other",
        shape=chain.shape,
        make=chain.make,
        reference=lambda *arrays: chain.reference(*arrays) + np.float32(0.5),
    )
    assert off_by(other, schedule, context.target, folder=tmp_path)[1] > MOST[chain.out]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_space_of_a_program_computes_it(name) -> None:
    lines = [line for line in check_kind(PROGRAMS[name], ARCH) if line["valid"]]
    assert lines and all(line["right"] for line in lines), lines
