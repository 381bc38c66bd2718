"""Attention kernels on the processor, as the source that a GPU's compiler gets: they are what numpy says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu.attentions import ATTENTIONS, SMALL_ATTENTIONS
from benchmarks.gpu.compile_kinds import BOARDS, source_of
from benchmarks.gpu.right_kinds import ARCH, MOST, check_kind

SMALL = {kind.name: kind for kind in SMALL_ATTENTIONS}
FAST = "attention-bf16-keys"


def test_a_kernel_computes_its_attention_and_not_another() -> None:
    kind = SMALL[FAST]
    schedule, target = kind.scheduled(BOARDS[ARCH])
    source, _ = source_of(schedule, target)
    assert kind.off_by(source, schedule.mod) <= MOST[kind.out]
    assert replace(kind, causal=0).off_by(source, schedule.mod) > MOST[kind.out]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SMALL if name != FAST])
def test_every_kind_computes_its_attention(name) -> None:
    (line,) = check_kind(SMALL[name], ARCH)
    assert line["right"], line


def test_the_small_kinds_are_the_kinds() -> None:
    assert [kind.name for kind in ATTENTIONS] == list(SMALL)
    for kind in ATTENTIONS:
        small = SMALL[kind.name]
        assert replace(small, shape=kind.shape) == kind
