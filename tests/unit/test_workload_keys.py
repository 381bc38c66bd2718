"""A row of a workloads file is found by each key that a log may have of its task."""

from __future__ import annotations

from wmsched.workload_file import by_key


def test_rows_by_their_own_keys_and_by_those_of_another_tvm() -> None:
    ours = {"workload_key": "ours", "upstream_key": "theirs"}
    plain = {"workload_key": "plain", "upstream_key": None}
    old = {"workload_key": "old"}
    again = {"workload_key": "ours", "upstream_key": "plain"}
    found = by_key([ours, plain, old, again])
    assert found == {"ours": ours, "theirs": ours, "plain": plain, "old": old}
    assert found["ours"] is ours and found["plain"] is plain  # its own key goes before another's


def test_a_row_of_that_key_goes_before_one_that_names_it() -> None:
    theirs = {"workload_key": "theirs"}
    assert by_key([{"workload_key": "ours", "upstream_key": "theirs"}, theirs])["theirs"] is theirs
