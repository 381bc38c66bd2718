"""ONNX's operators: which converter each has, ours or TVM's, and which are refused by name.

Every TVM converter that errs is replaced here, with what it errs on in the module's first lines.
"""

from wmsched.base.face import lazy

_NAMES = {"Node": "node", "Refused": "node", "converter": "table"}
__all__ = ["Node", "Refused", "converter"]
__getattr__, __dir__ = lazy(__name__, _NAMES)
