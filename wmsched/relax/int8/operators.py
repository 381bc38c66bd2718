"""Relax operators of quantized networks: each handler says what is known of its result, or None."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from wmsched.relax.int8.facts import TO_LAST, Chain, Eight, Gated, Joined, Means, Parts, Real, Sums, Twin
from wmsched.relax.int8.finish import LARGEST
from wmsched.relax.int8.function import Handler, Rewrite
from wmsched.relax.int8.geometry import Geometry
from wmsched.relax.int8.images import MAX_PLANES
from wmsched.relax.int8.tables import codes_of, numbers_of, values_of
from wmsched.relax.passes.wide_fusion import shape_of

Limits = tuple[float | None, float | None]
EIGHT_TYPES = ("uint8", "int8")
UNARY = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "clip", "erf", "exp", "negative", "nn.gelu", "nn.leakyrelu", "nn.relu", "nn.relu6", "nn.silu",
        "sigmoid", "sqrt", "tanh",
    )
)  # fmt: skip
BINARY = frozenset(f"relax.{one}" for one in ("add", "divide", "maximum", "minimum", "multiply", "subtract"))


def _fact(rewrite: Rewrite, operand: Any) -> Any:
    return rewrite.facts.get(operand) if isinstance(operand, relax.Var) else None


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _type(rewrite: Rewrite, call: Any, dtype: str) -> tuple[float, int] | None:
    """Return scale and unsigned zero point of a quantization by tensor; None for another one."""
    scale, zero = rewrite.constants.number(call.args[1]), rewrite.constants.number(call.args[2])
    if dtype not in EIGHT_TYPES or scale is None or zero is None or scale <= 0:
        return None
    return float(np.float32(scale)), int(zero) + (128 if dtype == "int8" else 0)


def quantize(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Quantize: the end of a kernel."""
    dtype, shape = str(call.attrs.out_dtype), shape_of(call)
    to = _type(rewrite, call, dtype)
    data, fact = call.args[0], _fact(rewrite, call.args[0])
    if to is None or shape is None or not isinstance(data, relax.Var) or str(data.ty.dtype) != "float32":
        return None
    if isinstance(fact, Real) and fact.eight.same_steps(*to) and fact.eight.signed == (dtype == "int8"):
        return fact.eight
    if fact is None and len(shape) == 4 and not rewrite.has_images:
        return None  # no kernel here reads an attention's tensors: TVM rounds them where it computes them
    emitter, sums = rewrite.emitter, fact if isinstance(fact, Sums) else None
    codes = codes_of(fact.values, *to) if isinstance(fact, Chain) else None

    def make() -> Any:
        if isinstance(fact, Sums):
            return emitter.product(fact, to, None)
        if isinstance(fact, Means):
            return emitter.mean(fact, to)
        if isinstance(fact, Parts):
            return emitter.concatenated(fact, to)
        if isinstance(fact, Gated):
            return emitter.gated(fact, to)
        if isinstance(fact, Chain):
            return emitter.looked_up(fact, codes)
        if isinstance(fact, Joined):
            for own, other in ((fact.left, fact.right), (fact.right, fact.left)):
                if own.sums is not None and own is not other and not own.is_made and rewrite.is_single(own):
                    return emitter.joined(own, other, fact, to)
        if fact is None and len(shape) == 4 and shape[1] <= MAX_PLANES:
            return emitter.image(rewrite.first(data), to, shape)
        return emitter.quantized(rewrite.twin(data), *to)

    table = (fact.root, codes) if isinstance(fact, Chain) and codes is not None else None
    found = Eight(shape, to[0], to[1], dtype == "int8", make, sums, table)
    rewrite.source[found] = variable
    return found


def dequantize(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Dequantize: the beginning of a kernel."""
    fact = _fact(rewrite, call.args[0])
    if not isinstance(fact, Eight) or str(call.attrs.out_dtype) != "float32":
        return None
    given = _type(rewrite, call, "int8" if fact.signed else "uint8")
    return Real(fact) if given is not None and fact.same_steps(*given) else None


def conv2d(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Convolution with constant weights, of one group or of one for each channel."""
    fact, shape, attrs = _fact(rewrite, call.args[0]), shape_of(call), call.attrs
    if not isinstance(fact, Real) or shape is None or len(shape) != 4:
        return None
    if (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NCHW", "OIHW"):
        return None
    if str(attrs.out_layout) not in ("", "NCHW"):
        return None
    weight = rewrite.constants.weight(call.args[1])
    if weight is None:
        return None
    weights, scales = weight
    batch, channels, height, width = fact.eight.shape
    groups = int(attrs.groups)
    depthwise = groups > 1 and groups == channels == weights.shape[0] and weights.shape[1] == 1
    if groups != 1 and not depthwise:
        return None
    geometry = Geometry(
        batch=batch,
        height=height,
        width=width,
        channels=channels,
        outputs=weights.shape[0],
        kernel=_ints(weights.shape[2:]),  # type: ignore[arg-type]
        stride=_ints(attrs.strides),  # type: ignore[arg-type]
        padding=_ints(attrs.padding),  # type: ignore[arg-type]
        dilation=_ints(attrs.dilation),  # type: ignore[arg-type]
        zero=fact.eight.zero,
    )
    if (geometry.out_height, geometry.out_width) != shape[2:] or not _fits(weights[0].size):
        return None
    order = np.ascontiguousarray(weights.transpose(0, 2, 3, 1))
    return Sums(fact.eight, shape, geometry, order, scales, depthwise=depthwise)


def matmul(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Product with a constant matrix."""
    fact, shape = _fact(rewrite, call.args[0]), shape_of(call)
    if not isinstance(fact, Real) or shape is None or len(fact.eight.shape) in (1, 4):
        return None
    weight = rewrite.constants.weight(call.args[1])
    if weight is None or weight[0].ndim != 2 or not _fits(weight[0].shape[1]):
        return None
    weights, scales = weight
    geometry = Geometry(
        batch=1,
        height=math.prod(fact.eight.shape[:-1]),
        width=1,
        channels=weights.shape[1],
        outputs=weights.shape[0],
        zero=fact.eight.zero,
    )
    return Sums(fact.eight, shape, geometry, weights[:, None, None, :], scales)


def _fits(depth: int) -> bool:
    """Whether no sum of so many products is over 31 bits."""
    return depth * LARGEST * 128 < 1 << 30


def add(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Sum: of a product and its bias, or of two quantized tensors."""
    shape = shape_of(call)
    facts = [_fact(rewrite, operand) for operand in call.args]
    for fact, other in zip(facts, reversed(list(call.args))):
        if isinstance(fact, Sums) and fact.low is None and fact.high is None and fact.shape == shape:
            bias = columns_of(rewrite, other, shape, 1 if len(shape) == 4 else len(shape) - 1)
            if bias is not None:
                total = bias if fact.bias is None else fact.bias + bias
                return replaced(fact, bias=total)
    left, right = facts
    if (chain := chained(rewrite, call)) is not None:
        return chain
    if isinstance(left, Real) and isinstance(right, Real) and left.eight.shape == right.eight.shape == shape:
        return Joined(left.eight, right.eight, shape)
    return elementwise(rewrite, variable, call)


def columns_of(rewrite: Rewrite, operand: Any, shape: tuple[int, ...], axis: int) -> Any:
    """Return a constant as one number for each channel; None if it is none, or another axis has more."""
    value = rewrite.constants.of(operand)
    if value is None:
        return None
    full = (1,) * (len(shape) - value.ndim) + value.shape
    if len(full) != len(shape) or any(extent != 1 for k, extent in enumerate(full) if k != axis):
        return None
    return np.broadcast_to(value.astype(np.float64).reshape(-1), (shape[axis],))


def replaced(fact: Any, **changes: Any) -> Any:
    values = {name: getattr(fact, name) for name in fact.__dataclass_fields__}
    return type(fact)(**(values | changes))


def bounded(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Bounds of a product or of a sum."""
    fact, limits = _fact(rewrite, call.args[0]), limits_of(rewrite, call)
    if limits is None or not isinstance(fact, (Sums, Joined)) or fact.shape != shape_of(call):
        return elementwise(rewrite, variable, call)
    low, high = narrowed((fact.low, fact.high), limits)
    return replaced(fact, low=low, high=high)


def limits_of(rewrite: Rewrite, call: Any) -> Limits | None:
    """Return the bounds that an operator sets; None if they are no constants."""
    name = str(call.op.name)
    if name == "relax.nn.relu":
        return 0.0, None
    if name == "relax.nn.relu6":
        return 0.0, 6.0
    numbers = [rewrite.constants.number(operand) for operand in call.args[1:]]
    if None in numbers:
        return None
    finite = [number if number is not None and math.isfinite(number) else None for number in numbers]
    if name == "relax.clip":
        return finite[0], finite[1]
    return (finite[0], None) if name == "relax.maximum" else (None, finite[0])


def narrowed(given: Limits, limits: Limits) -> Limits:
    """Return the bounds of what is within `given` and then within `limits`."""
    low, high = given
    if limits[0] is not None:
        low = limits[0] if low is None else max(low, limits[0])
        high = None if high is None else max(high, low)
    if limits[1] is not None:
        high = limits[1] if high is None else min(high, limits[1])
        low = None if low is None else min(low, high)
    return low, high


def multiply(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Product of two tensors: of one with itself, or of images with a gate for each channel."""
    shape, facts = shape_of(call), [_fact(rewrite, operand) for operand in call.args]
    if (chain := chained(rewrite, call)) is not None:
        return chain
    for data, gate in (facts, facts[::-1]):
        if not isinstance(data, Real) or shape is None or len(shape) != 4 or data.eight.shape != shape:
            continue
        numbers = numbers_of(gate)
        if numbers is not None and numbers[0].shape == (*shape[:2], 1, 1) != shape:
            return Gated(data.eight, Chain(*numbers, numbers[0].shape, lambda: None), shape)
    return elementwise(rewrite, variable, call)


def chained(rewrite: Rewrite, call: Any) -> Chain | None:
    """Return an operator whose operands are functions of one quantized tensor, or constants; None else."""
    roots, values = [], []
    for operand in call.args:
        numbers = numbers_of(_fact(rewrite, operand))
        constant = rewrite.constants.number(operand) if numbers is None else None
        if numbers is None and constant is None:
            return None
        values.append(constant if numbers is None else numbers[1])
        roots += [] if numbers is None else [numbers[0]]
    if not roots or any(root is not roots[0] for root in roots) or shape_of(call) != roots[0].shape:
        return None
    found = values_of(str(call.op.name), call.attrs, values)
    if found is None:
        return None

    def make() -> Any:
        operands = [_operand(rewrite, each) for each in call.args]
        if len(roots[0].shape) != 4:
            operands = [rewrite.substituted(each) for each in call.args]
        return rewrite.builder.emit(relax.Call(call.op, operands, call.attrs, call.ty_args))

    return Chain(roots[0], found, roots[0].shape, make)


def elementwise(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Operator without an axis: a table, or on images with their channels last."""
    shape = shape_of(call)
    if (chain := chained(rewrite, call)) is not None:
        return chain
    if shape is None or len(shape) != 4 or not any(_fact(rewrite, each) is not None for each in call.args):
        return None
    operands = [_operand(rewrite, operand) for operand in call.args]
    if any(operand is None for operand in operands):
        return None
    return Twin(rewrite.builder.emit(relax.Call(call.op, operands, call.attrs, call.ty_args)), shape)


def _operand(rewrite: Rewrite, operand: Any) -> Any:
    """Return an operand with the channels last; None if that is unknown."""
    if isinstance(operand, (tvm.tirx.FloatImm, tvm.tirx.IntImm)):
        return operand
    value = rewrite.constants.of(operand) if isinstance(operand, (relax.Var, tvm.ir.Constant)) else None
    if value is not None:
        if value.size == 1:
            return relax.const(value.reshape(()))
        if value.ndim > 4:
            return None
        full = value.reshape((1,) * (4 - value.ndim) + value.shape)
        return relax.const(np.ascontiguousarray(full.transpose(TO_LAST)))
    shape = shape_of(operand)
    if not isinstance(operand, relax.Var) or shape is None:
        return None
    if isinstance(_fact(rewrite, operand), Eight):
        return None
    return rewrite.twin(operand) if len(shape) == 4 else (rewrite.first(operand) if shape == () else None)


def max_pool2d(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Maximum over windows, which keeps scale and zero point."""
    fact, shape, attrs = _fact(rewrite, call.args[0]), shape_of(call), call.attrs
    plain = str(attrs.layout) == "NCHW" and all(int(step) == 1 for step in attrs.dilation)
    data = fact.eight if isinstance(fact, Real) else fact
    if not isinstance(data, Eight) or shape is None or not plain:
        return None
    size, padding = _ints(attrs.pool_size), _ints(attrs.padding)
    if any(pad >= size[k % 2] for k, pad in enumerate(padding)):
        return None
    geometry = Geometry(
        batch=shape[0],
        height=data.shape[2],
        width=data.shape[3],
        channels=shape[1],
        outputs=shape[1],
        kernel=size,  # type: ignore[arg-type]
        stride=_ints(attrs.strides),  # type: ignore[arg-type]
        padding=padding,  # type: ignore[arg-type]
    )
    if any(
        (extent - 1) * step - pad >= given
        for extent, step, pad, given in zip(shape[2:], geometry.stride, padding, data.shape[2:])
    ):
        return None  # a window that begins beyond the image
    found = _moved(data, shape, lambda: rewrite.emitter.largest(data, geometry, shape))
    return Real(found) if isinstance(fact, Real) else found


def _moved(data: Eight, shape: tuple[int, ...], make: Callable[[], Any]) -> Eight:
    return Eight(shape, data.scale, data.zero, data.signed, make)


def mean(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Mean of a whole image, as a reduction or as a pooling."""
    fact, shape, attrs, name = _fact(rewrite, call.args[0]), shape_of(call), call.attrs, str(call.op.name)
    if not isinstance(fact, Real) or shape is None or len(fact.eight.shape) != 4:
        return None
    if name == "relax.mean":
        if attrs.axis is None or sorted(int(axis) % 4 for axis in attrs.axis) != [2, 3]:
            return None
    elif str(attrs.layout) != "NCHW" or shape[2:] != (1, 1):
        return None
    elif name == "relax.nn.avg_pool2d":
        whole = _ints(attrs.pool_size) == fact.eight.shape[2:]
        if not whole or any(map(int, attrs.padding)) or any(int(step) != 1 for step in attrs.dilation):
            return None
    return Means(fact.eight, shape)


def reshape(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Change of shape alone."""
    fact, shape = _fact(rewrite, call.args[0]), shape_of(call)
    if shape is None:
        return None
    if isinstance(fact, Means):
        batch, channels = fact.shape[:2]
        return Means(fact.data, shape) if shape in ((batch, channels), (batch, channels, 1, 1)) else None
    eight = fact.eight if isinstance(fact, Real) else fact.root if isinstance(fact, Chain) else fact
    if not isinstance(eight, Eight):
        return None
    found = _moved(eight, shape, lambda: rewrite.emitter.reshaped(eight, shape))
    if isinstance(fact, Chain):
        chain = Chain(found, fact.values, shape, lambda: rewrite.emitter.looked_up(chain))
        return chain
    return Real(found) if isinstance(fact, Real) else found


def concat(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Concatenation of images along their channels."""
    fields = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
    facts, shape = [_fact(rewrite, field) for field in fields], shape_of(call)
    if shape is None or len(shape) != 4 or int(call.attrs.axis or 0) % 4 != 1:
        return None
    parts = [fact.eight for fact in facts if isinstance(fact, Real)]
    return Parts(parts, shape) if len(parts) == len(fields) else None


HANDLERS: dict[str, Handler] = {
    **{name: elementwise for name in UNARY | BINARY},
    "relax.quantize": quantize,
    "relax.dequantize": dequantize,
    "relax.nn.conv2d": conv2d,
    "relax.matmul": matmul,
    "relax.add": add,
    "relax.multiply": multiply,
    "relax.clip": bounded,
    "relax.maximum": bounded,
    "relax.minimum": bounded,
    "relax.nn.relu": bounded,
    "relax.nn.relu6": bounded,
    "relax.nn.max_pool2d": max_pool2d,
    "relax.mean": mean,
    "relax.nn.avg_pool2d": mean,
    "relax.nn.adaptive_avg_pool2d": mean,
    "relax.reshape": reshape,
    "relax.flatten": reshape,
    "relax.squeeze": reshape,
    "relax.concat": concat,
}
