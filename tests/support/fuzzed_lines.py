"""What holds for a line of a log, whatever its bytes are."""

from __future__ import annotations

from wmsched.base.errors import LogError
from wmsched.schedules.steps import check_steps, decode_steps, dump_record, parse_record


def check_line(line: bytes) -> bool:
    """What must hold of any line: it is a record that can be written again, or there is a short reason."""
    try:
        record = parse_record(line, place="log:1")
    except LogError as error:
        assert error.reason and len(str(error)) < 1000
        return False
    check_steps(record.steps)
    try:
        assert len(decode_steps(record.steps)) == len(record.steps)
    except LogError as error:
        assert "cannot be followed" in error.reason and len(str(error)) < 1000
        return False
    again = parse_record(dump_record(record))
    assert (again.workload_key, again.steps) == (record.workload_key, record.steps)
    return True
