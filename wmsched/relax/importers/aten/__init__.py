"""PyTorch's core operators: which converter each has, ours or TVM's, and which are refused by name.

What TVM's importer lacks or computes otherwise is here, or PyTorch itself writes it out (`decompositions`).
"""

from wmsched.base.face import lazy

_NAMES = {"Importer": "importer", "decomposed": "decompositions"}
__all__ = ["Importer", "decomposed"]
__getattr__, __dir__ = lazy(__name__, _NAMES)
