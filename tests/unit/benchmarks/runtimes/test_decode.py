"""A decoder's step beside other runtimes: the ratio, only of equal tokens, and the greedy loop."""

from __future__ import annotations

import pytest

from benchmarks.runtimes import decode
from benchmarks.runtimes.decode_child import greedy


def line(runtime: str, turns: list[float], tokens: list[int]) -> dict:
    return {
        "kind": "decode", "model": "gpt2", "runtime": runtime, "cache": 128, "median": turns[1],
        "turns": turns, "tokens": tokens,
    }  # fmt: skip


def test_the_ratio_is_of_the_turns() -> None:
    lines = [line("wmsched", [10.0, 20.0, 40.0], [1, 2]), line("onnxruntime", [20.0, 30.0, 50.0], [1, 2])]
    assert decode.over(lines, "onnxruntime") == 1.5
    with pytest.raises(ValueError, match="gpt2 was not decoded by wmsched and eager"):
        decode.over(lines, "eager")


def test_other_tokens_are_no_ratio() -> None:
    lines = [line("wmsched", [1.0, 1.0], [1, 2]), line("onnxruntime", [1.0, 1.0], [1, 3])]
    with pytest.raises(ValueError, match="continue the prompt of gpt2 with other tokens"):
        decode.over(lines, "onnxruntime")
    rows = decode.table(lines).rows
    assert [row[-1] for row in rows] == ["", "others"]


class Adding:
    """A decoder whose next token is the last one and its place."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def start(self) -> None:
        self.seen = []

    def step(self, token: int, place: int) -> int:
        self.seen.append((token, place))
        return token + place


def test_a_prompt_is_taken_token_by_token_and_continued() -> None:
    decoder = Adding()
    for _ in range(2):
        assert greedy(decoder, [5, 6], 3) == [5, 6, 7, 9, 12]
        assert decoder.seen == [(5, 0), (6, 1), (7, 2), (9, 3)]
