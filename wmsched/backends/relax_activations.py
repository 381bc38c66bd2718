"""The activation functions of ONNX's recurrent operators, in Relax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax

from wmsched.base.errors import WmschedError

op = relax.op
Function = Callable[[Any], Any]


def _number(like: Any, value: float) -> Any:
    return relax.const(value, str(like.ty.dtype))


def _elu(x: Any, alpha: float) -> Any:
    below = (op.exp(x) - _number(x, 1)) * _number(x, alpha)
    return op.where(op.less(x, _number(x, 0)), below, x)


# of the input, alpha and beta, as far as they take them, and their defaults
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "relu": (op.nn.relu, ()),
    "tanh": (op.tanh, ()),
    "sigmoid": (op.sigmoid, ()),
    "softsign": (lambda x: op.divide(x, op.abs(x) + _number(x, 1)), ()),
    "softplus": (lambda x: op.log(op.exp(x) + _number(x, 1)), ()),
    "leakyrelu": (lambda x, alpha: op.nn.leakyrelu(x, alpha), (0.01,)),
    "thresholdedrelu": (
        lambda x, alpha: op.where(op.greater(x, _number(x, alpha)), x, _number(x, 0)),
        (1.0,),
    ),
    "elu": (_elu, (1.0,)),
    "affine": (lambda x, alpha, beta: x * _number(x, alpha) + _number(x, beta), (1.0, 0.0)),
    "scaledtanh": (
        lambda x, alpha, beta: op.tanh(x * _number(x, beta)) * _number(x, alpha),
        (1.0, 1.0),
    ),
    "hardsigmoid": (
        lambda x, alpha, beta: op.clip(x * _number(x, alpha) + _number(x, beta), 0, 1),
        (0.2, 0.5),
    ),
}


def activations(
    emit: Callable[[Any], Any], attr: Mapping[str, Any], defaults: tuple[str, ...]
) -> list[Function]:
    """The functions of a recurrent operator, those of one direction after those of the other.

    Parameters
    ----------
    emit : callable
        Binds an expression, so that it has a type.
    attr : mapping
        The operator's attributes: `activations`, `activation_alpha` and `activation_beta`, of which each
        function that takes one reads the next, and `clip`, the bound of what they are of.
    defaults : tuple of str
        The functions where `attr` names none.

    Raises
    ------
    WmschedError
        It names one that ONNX does not have.
    """
    names = [name.decode() for name in attr.get("activations", ())] or list(defaults)
    given = [list(attr.get(f"activation_{which}", ())) for which in ("alpha", "beta")]
    bound = float(attr.get("clip", 0))
    found = []
    for name in names:
        if name.lower() not in FUNCTIONS:
            raise WmschedError(f"a recurrent operator has the activation {name!r}, which ONNX does not have")
        function, usual = FUNCTIONS[name.lower()]
        numbers = [values.pop(0) if values else value for values, value in zip(given, usual)]
        found.append(_bounded(emit, function, numbers, bound))
    return found


def _bounded(emit: Callable[[Any], Any], function: Function, numbers: list[float], bound: float) -> Function:
    def apply(value: Any) -> Any:
        value = emit(op.clip(value, -bound, bound) if bound else value)
        return emit(function(value, *numbers))

    return apply
