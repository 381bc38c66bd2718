"""Import paths of version 0.1 work once more, and say where their modules are now."""

import importlib

import pytest

from wmsched.backends import MOVED

META = [old for old in MOVED if "auto_scheduler" not in old and old != "wmsched.resolve"]


@pytest.mark.parametrize("old", META)
def test_an_old_module_is_the_new_one(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}"):
        found = importlib.import_module(old)
    new = importlib.import_module(MOVED[old])
    assert found is new
    assert new.__spec__ is not None and new.__spec__.name == MOVED[old]
