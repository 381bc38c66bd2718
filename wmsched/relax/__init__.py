"""Models as Relax programs: `importers` (ONNX, torch.export) on `passes`."""

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
