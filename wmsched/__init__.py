"""wmsched: a pretrained world model that ranks tensor-program schedules before they are measured.

>>> fast = wmsched.compile(model.eval(), (example,))  # a module of PyTorch's, in seconds
>>> fast = wmsched.compile(model.eval(), (example,), out="tuned", minutes=60)  # after a search
>>> fast = wmsched.load("tuned")  # later, in another process
>>> output = fast(data)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wmsched.tune.tuned_model import TunedModel

__version__ = "0.2.0"


def compile(model: Any, example_inputs: Any = (), **options: Any) -> TunedModel:
    """Compile a PyTorch model, or one in a file, and load the result:
    `wmsched.tune.compile.compile_model`."""
    from wmsched.tune.compile import compile_model

    return compile_model(model, example_inputs, **options)


def load(folder: str | os.PathLike[str]) -> TunedModel:
    """What `compile` or ``wmsched tune MODEL --out FOLDER`` made: `tune.tuned_model.TunedModel`."""
    from wmsched.tune.tuned_model import TunedModel

    return TunedModel(folder)
