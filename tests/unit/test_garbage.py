"""Collections are held off within, and come back however it ends."""

import gc

import pytest

from wmsched.base.gc import held_off


def test_held_off_and_back() -> None:
    assert gc.isenabled()
    with held_off():
        assert not gc.isenabled()
        with held_off():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="within"), held_off():
        raise ValueError("within")
    assert gc.isenabled()


def test_left_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with held_off():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
