"""JSON of index maps from their text: numbers put where they belong, TVM asked where that is not sure."""

import json

from wmsched.metaschedule.index_maps import IndexMaps


def stored(*numbers: int) -> str:
    """As TVM's JSON: numbers have nodes of their own, each distinct one once."""
    nodes = [{"type": "None"}, *({"type": "int", "data": n} for n in dict.fromkeys(numbers))]
    return json.dumps({"root_index": 0, "nodes": [*nodes, {"type": "prim.FloorDiv", "data": {"a": 1}}]},
                      separators=(",", ":"))  # fmt: skip


class Asked:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self, given: str) -> str:
        self.times += 1
        return given


def test_a_map_like_one_before_is_not_asked_for() -> None:
    asked = Asked()
    maps = IndexMaps(asked)
    for first, second in ((128, 16), (64, 8), (1024, 16)):
        text = f"lambda i0, i1: (i1 // {first}, i0 // {second}, i1 % {first})"
        assert maps(text, stored(first, second)) == stored(first, second)
    assert asked.times == 1


def test_numbers_that_are_equal_here_and_not_there_are_another_form() -> None:
    asked = Asked()
    maps = IndexMaps(asked)
    for numbers in ((128, 16), (16, 16), (32, 8), (8, 8)):
        text = "lambda i0, i1: (i1 // {}, i0 // {})".format(*numbers)
        assert maps(text, stored(*numbers)) == stored(*numbers)
    assert asked.times == 2


def test_json_that_does_not_agree_with_the_text_is_asked_for_each_time() -> None:
    asked = Asked()
    maps = IndexMaps(asked)
    for number in (4, 8, 16):
        assert maps(f"lambda i0: (i0 // {number})", stored(number, 1)) == stored(number, 1)
        assert maps(f"lambda i0: (i0 // {number}, i0 % 4096)", stored(number)) == stored(number)
    assert asked.times == 6


def test_names_with_numbers_are_names() -> None:
    asked = Asked()
    maps = IndexMaps(asked)
    assert maps("lambda i0, i1: (i1, i0 // 4)", stored(4)) == stored(4)
    assert maps("lambda i0, i1: (i1, i0 // 9)", stored(9)) == stored(9)
    assert maps("lambda i0, i1: (i0, i1 // 9)", stored(9)) == stored(9)  # another order of the variables
    assert asked.times == 2


def test_forms_are_forgotten_when_there_are_many(monkeypatch) -> None:
    monkeypatch.setattr("wmsched.metaschedule.index_maps.MAX_FORMS", 2)
    maps = IndexMaps(Asked())
    for place in range(5):
        assert maps(f"lambda i{place}: (i{place} // 4)", stored(4)) == stored(4)
    assert len(maps._known) <= 2
