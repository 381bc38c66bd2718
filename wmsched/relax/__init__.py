"""Import and build of models as Relax programs: `importers` (ONNX, torch.export) and `passes`.

>>> from wmsched.relax import load
>>> model = load("resnet50.onnx", {"data": (1, 3, 224, 224)})
"""

from wmsched.base.face import lazy

_NAMES = {
    "Model": "importers.load",
    "compile_module": "passes.pipeline",
    "load": "importers.load",
}
__all__ = [
    "Model",
    "compile_module",
    "load",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
