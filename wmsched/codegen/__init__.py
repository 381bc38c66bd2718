"""TIR passes between a schedule and LLVM, for both TVMs."""

from wmsched.base.face import lazy

_NAMES = {
    "run_passes": "pipeline",
    "with_vector_math": "register",
}
__all__ = [
    "run_passes",
    "with_vector_math",
]
__getattr__, __dir__ = lazy(__name__, _NAMES)
