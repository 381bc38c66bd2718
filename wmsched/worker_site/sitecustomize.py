"""Runs when a Python process starts with this folder on its path: the one name TVM before 0.17 takes from
old numpy."""

try:
    import numpy
except ImportError:  # a child that has no numpy has no TVM either
    pass
else:
    if not hasattr(numpy, "float_"):
        numpy.float_ = numpy.float64  # type: ignore[attr-defined, misc]
