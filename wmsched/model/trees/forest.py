"""XGBoost's ensembles as a `Forest`, which a C++ library evaluates (`forest.cc`), compiled on first use.

A search scores thousands of rows that differ in some columns. XGBoost follows each row down each tree: 30 us
a row of a shipped bundle. The library selects between bytes for 128 rows at once and sums the leaves in
XGBoost's order, so its margins are XGBoost's to the last bit. `forest_of` compares the two before it hands
one out.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from wmsched.base.cores import usable_cores

__all__ = ["Forest", "forest_of"]

logger = logging.getLogger("wmsched")

Floats = NDArray[np.float32]

SOURCE = Path(__file__).resolve().with_name("forest.cc")
OPTIONS = ("-std=c++17", "-pthread", "-fvisibility=hidden", "-O3")
#: Arrays of a tree, in the order of `wmsched_forest`; a leaf's split condition is its margin.
FIELDS: tuple[tuple[str, Any], ...] = (
    ("left_children", np.int32),
    ("right_children", np.int32),
    ("split_indices", np.int32),
    ("split_conditions", np.float32),
    ("default_left", np.uint8),
)
UBJSON_TYPES = {b"U": "u1", b"i": "i1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8"}
COMPARED_ROWS = 96  # random ones, some of whose values are missing


class Forest:
    """Ensembles of one set of columns.

    >>> forest = Forest(library, boosters)
    >>> forest.margins(rows)  # float32 [members, N]

    Parameters
    ----------
    library : ctypes.CDLL
        The compiled `forest.cc`.
    boosters : sequence of xgboost.Booster

    Raises
    ------
    ValueError
        A booster is none of numeric trees with one output, or one of its trees has over 256 leaves.
    """

    def __init__(self, library: ctypes.CDLL, boosters: Sequence[Any]) -> None:
        self._library, self._forest = library, None
        self.width = int(boosters[0].num_features())
        self.bases = np.array([_base(booster) for booster in boosters], dtype=np.float32)
        models = [bytes(booster.save_raw("ubj")) for booster in boosters]
        if any(len(each) for model in models for each in _arrays(model, "categories", np.int32)):
            raise ValueError("trees with categories")
        trees = [_arrays(model, "left_children", np.int32) for model in models]
        counts = np.array([len(some) for some in trees], dtype=np.int64)
        nodes = np.array([len(each) for some in trees for each in some], dtype=np.int64)
        arrays = [
            np.concatenate([each for model in models for each in _arrays(model, name, dtype)])
            for name, dtype in FIELDS
        ]
        if {len(array) for array in arrays} != {int(nodes.sum())}:
            raise ValueError("trees whose fields have other lengths than their nodes")
        self._forest = self._library.wmsched_forest(
            self.width, len(models), _at(counts), _at(nodes), *map(_at, arrays), _at(self.bases)
        )
        if not self._forest:
            raise ValueError("a tree has over 256 leaves, or a node that is in none")

    def __del__(self) -> None:
        if self._forest:
            self._library.wmsched_forest_free(self._forest)

    def margins(self, rows: Floats) -> Floats:
        """Return each member's margins, float32 [members, N], of rows float32 [N, width] without gaps."""
        if rows.dtype != np.float32 or rows.shape[1:] != (self.width,) or not rows.flags.c_contiguous:
            raise ValueError(f"rows of {rows.dtype} {rows.shape}, the trees read {self.width} columns")
        found = np.empty((len(self.bases), len(rows)), np.float32)
        done = self._library.wmsched_forest_margins(
            self._forest, _at(rows), len(rows), _at(found), usable_cores()
        )
        if not done:
            raise MemoryError(f"no memory for the margins of {len(rows)} rows")
        return found


def forest_of(boosters: Sequence[Any]) -> Forest | None:
    """Return the forest of some boosters; None where none computes what XGBoost does, which is logged."""
    library = _library()
    if library is None:
        return None
    try:
        forest = Forest(library, boosters)
        rows = _compared(forest.width)
        theirs = [
            booster.inplace_predict(rows, predict_type="margin", validate_features=False)
            for booster in boosters
        ]
        if not np.array_equal(np.stack(theirs), forest.margins(rows)):
            raise ValueError("other margins than XGBoost's")
        return forest
    except Exception as error:  # another version of XGBoost, or another kind of booster
        logger.warning(
            "wmsched: XGBoost scores candidates, several times slower than trees in C++ (%s: %s)",
            type(error).__name__,
            str(error)[-300:],
        )
        return None


def _arrays(model: bytes, name: str, dtype: Any) -> list[NDArray[Any]]:
    """Return each tree's array of a name, from a booster's UBJSON: type, length, and big-endian numbers."""
    mark = b"%b[$" % name.encode()
    lead = b"L" + len(name).to_bytes(8, "big")
    found, at = [], model.find(lead + mark)
    while at >= 0:
        start = at + len(lead) + len(mark)
        kind, count = (
            UBJSON_TYPES[model[start : start + 1]],
            int.from_bytes(model[start + 3 : start + 11], "big"),
        )
        if model[start + 1 : start + 3] != b"#L":
            raise ValueError(f"{name} has a length of another type")
        found.append(np.frombuffer(model, kind, count, start + 11).astype(dtype))
        at = model.find(lead + mark, start + 11)
    return found


def _base(booster: Any) -> float:
    """The margin before the first tree."""
    model = orjson.loads(booster.save_config())["learner"]
    text = str(model["learner_model_param"]["base_score"]).strip("[]")
    objective = str(model["objective"]["name"])
    if int(model["learner_model_param"].get("num_target", 1)) > 1 or int(
        model["learner_model_param"]["num_class"]
    ):
        raise ValueError("trees with several outputs")
    if not objective.startswith(("rank:", "reg:squarederror")):
        raise ValueError(f"the objective {objective!r}, whose base margin is not its base score")
    return float(text)


def _compared(width: int) -> Floats:
    rng = np.random.default_rng(0)
    scale = np.exp2(rng.integers(-4, 12, size=(COMPARED_ROWS, 1)))
    rows = (rng.standard_normal((COMPARED_ROWS, width)) * scale).astype(np.float32)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    rows[:, ::3] = rows[0, ::3]
    return rows


def _at(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@functools.cache
def _library() -> ctypes.CDLL | None:
    from wmsched.toolchain.compile_cache import compiled
    from wmsched.toolchain.parallel_launch import compiler

    try:
        library = ctypes.CDLL(str(compiled("forest", SOURCE, OPTIONS, compiler=compiler())))
    except Exception as error:
        logger.warning(
            "wmsched: XGBoost scores candidates, several times slower: trees in C++ could not be compiled or "
            "loaded (%s: %s)",
            type(error).__name__,
            str(error)[-300:],
        )
        return None
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    library.wmsched_forest.argtypes = (number, number, *(8 * (pointer,)))
    library.wmsched_forest.restype = pointer
    library.wmsched_forest_free.argtypes = (pointer,)
    library.wmsched_forest_free.restype = None
    library.wmsched_forest_margins.argtypes = (pointer, pointer, number, pointer, number)
    library.wmsched_forest_margins.restype = ctypes.c_int
    return library
