"""Collections are held off within, and come back however it ends."""

import gc

import pytest

from wmsched.base.gc import paused


def test_held_off_and_back() -> None:
    assert gc.isenabled()
    with paused():
        assert not gc.isenabled()
        with paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="within"), paused():
        raise ValueError("within")
    assert gc.isenabled()


def test_left_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
