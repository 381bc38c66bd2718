"""States of a tuned model: what the folder says of them, and their memory between calls."""

from wmsched.base.face import lazy

_NAMES = {
    "Kept": "kept",
    "as_imported": "describe",
    "split": "describe",
    "write_starts": "describe",
}
__all__ = ["Kept", "as_imported", "split", "write_starts"]
__getattr__, __dir__ = lazy(__name__, _NAMES)
