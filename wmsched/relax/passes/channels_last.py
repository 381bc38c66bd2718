"""Conversion of convolutions to channels last, with batch normalization folded into their weights.

PyTorch and ONNX have channels first. Vectors then run along the width of an image, which is short in later
layers: 7 elements for 16 lanes in ResNet. With channels last they run along the channels.

Works around apache-tvm 0.27, whose `ConvertLayout` crashes on some modules: a child process tries it first.
Remove the trial when it raises instead.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import TupleGetItemPattern, is_const, is_op, rewrite_call, wildcard

from wmsched.codegen.tir_reader import stages_of
from wmsched.relax.passes.fold_constants import array_of, folding
from wmsched.relax.passes.pipeline import visit_functions
from wmsched.relax.passes.transposed_convolution import FIRST, buildable

logger = logging.getLogger("wmsched")

LAYOUTS = {"relax.nn.conv2d": ["NHWC", "HWIO"], "relax.nn.conv3d": ["NDHWC", "DHWIO"]}
LINES = "relax.nn.conv1d"
MAX_TRIAL_SECONDS = 60.0  # of the child process
CRASHED, HUNG = "crashed", "did not end"


def channels_last(module: Any) -> Any:
    """Return a Relax module with channels last in its convolutions; the module itself if it has none.

    Batch normalization after a convolution goes into its weights and a bias, which saves a division for each
    element. If TVM's conversion fails, the layouts stay and a warning says so. A transposed convolution
    becomes a convolution, or keeps its own channels first (`wmsched.relax.passes.transposed_convolution`). A
    convolution of lines is one of images with one row.
    """
    if LINES in _operators(module):
        module = lines_as_images(module)
    operators = _operators(module)
    present = {name: layouts for name, layouts in LAYOUTS.items() if name in operators}
    if not present:
        return module
    try:
        folded = _folded(module)
    except Exception as error:  # TVM's pass does not expect a type or an attribute
        logger.warning("wmsched: batch normalisation and channels stay as they are: %s", str(error)[-200:])
        return module
    to_last = relax.transform.ConvertLayout(present)

    def convert(given: Any) -> Any:
        return buildable(to_last(given)) if operators & set(FIRST) else to_last(given)

    why = fails(lambda: convert(folded))
    if why:
        logger.warning("wmsched: channels stay where they are: TVM's conversion of the layouts %s", why)
        return folded
    return convert(folded)


def lines_as_images(module: Any) -> Any:
    """Return the module with convolutions of lines, which have constant weights, as such of images."""

    def image(call: Any, _: Any) -> Any:
        attributes = call.attrs
        layouts = (attributes.data_layout, attributes.kernel_layout, attributes.out_layout)
        if tuple(map(str, layouts)) != ("NCW", "OIW", "NCW"):
            return call
        (stride,), (dilation,) = attributes.strides, attributes.dilation
        left, right = attributes.padding
        found = relax.op.nn.conv2d(
            relax.op.expand_dims(call.args[0], [2]),
            relax.const(np.expand_dims(array_of(call.args[1]), 2)),
            strides=(1, int(stride)),
            padding=(0, int(left), 0, int(right)),
            dilation=(1, int(dilation)),
            groups=int(attributes.groups),
            out_dtype=str(call.ty.dtype),
        )
        return relax.op.squeeze(found, [2])

    pattern, changed = is_op(LINES)(wildcard(), is_const()), module.clone()
    for name, function in module.functions.items():
        if isinstance(function, relax.Function):
            changed.update_func(name, rewrite_call(pattern, image, function))
    return relax.transform.Normalize()(changed)


def _folded(module: Any) -> Any:
    """Return the module with batch normalization folded away."""
    folded = relax.transform.FoldBatchnormToConv2D()(module)
    for name, function in folded.functions.items():
        if isinstance(function, relax.Function):
            folded[name] = _simpler(bounds_as_operators(function, module))
    return tvm.transform.Sequential(
        [
            relax.transform.Normalize(),
            relax.transform.CanonicalizeBindings(),
            folding(whole=True),
            relax.transform.CanonicalizeBindings(),
        ]
    )(folded)


def bounds_as_operators(function: Any, module: Any) -> Any:
    """Return the function with Relax operators for the TensorIR of TVM's ONNX importer for ``Clip``."""

    def operator(call: Any, _: Any) -> Any:
        program, arguments = module[call.args[0]], list(call.args[1])
        scalar = len(arguments) == 2 and not arguments[1].ty.shape
        if not scalar or not isinstance(program, tvm.tirx.PrimFunc):
            return call
        computed = [dict(stage.ops) for stage in stages_of(program)[0] if stage.kind == "compute"]
        bounds = (({"Max": 1}, relax.op.maximum), ({"Min": 1}, relax.op.minimum))
        found = next((bound for operation, bound in bounds if computed == [operation]), None)
        return found(*arguments) if found else call

    return rewrite_call(is_op("relax.call_tir")(varg_default_wildcard=True), operator, function)


def _simpler(function: Any) -> Any:
    """Return the function with batch normalization as a product and a sum, and without ``clip``.

    Unfolded normalization divides each element. TVM's conversion carries no layout through ``clip``, and
    writes out of bounds for a negative axis of ``squeeze``, so axes become non-negative.
    """
    x, gamma, beta, mean, variance = wildcard(), is_const(), is_const(), is_const(), is_const()
    normal = is_op("relax.nn.batch_norm")(x, gamma, beta, mean, variance)

    def scaled(call: Any, found: Any) -> Any:
        attributes, data = found[normal].attrs, found[x]
        rank, axis = len(data.ty.shape), int(attributes.axis)
        shape = [1] * rank
        shape[axis] = found[gamma].ty.shape[0]
        one = relax.const(1.0, found[gamma].ty.dtype)
        epsilon = relax.const(float(attributes.epsilon), found[gamma].ty.dtype)
        factor = relax.op.divide(
            found[gamma] if attributes.scale else one, relax.op.sqrt(relax.op.add(found[variance], epsilon))
        )
        shift = relax.op.negative(relax.op.multiply(found[mean], factor))
        if attributes.center:
            shift = relax.op.add(found[beta], shift)
        return relax.op.add(
            relax.op.multiply(data, relax.op.reshape(factor, shape)), relax.op.reshape(shift, shape)
        )

    function = rewrite_call(TupleGetItemPattern(normal, 0), scaled, function)

    def bounded(call: Any, _: Any) -> Any:
        data, *bounds = call.args
        limits: list[Any] = [getattr(bound, "value", None) for bound in bounds]
        if not all(isinstance(limit, (int, float)) for limit in limits):
            return call
        found, dtype = call, data.ty.dtype
        for operator, limit in zip((relax.op.maximum, relax.op.minimum), limits):
            if math.isfinite(limit):  # infinity is no limit, and no integer
                found = operator(data if found is call else found, relax.const(limit, dtype))
        return found

    function = rewrite_call(is_op("relax.clip")(varg_default_wildcard=True), bounded, function)

    def squeezed(call: Any, _: Any) -> Any:
        axes, data = call.attrs.axis, call.args[0]
        if axes is None or all(int(axis) >= 0 for axis in axes):
            return call
        return relax.op.squeeze(data, [int(axis) % len(data.ty.shape) for axis in axes])

    return rewrite_call(is_op("relax.squeeze")(wildcard()), squeezed, function)


def fails(work: Callable[[], Any], patience: float = MAX_TRIAL_SECONDS) -> str:
    """Return why `work` fails in a fork of this process; "" if it succeeds.

    The fork has one thread, so the call must not wait for others: no parallel loop, no compilation.
    """
    child = os.fork()
    if not child:
        signal.alarm(math.ceil(patience) + 1)  # if the parent dies
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # hides TVM's crash report
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    until, done = time.monotonic() + patience, 0
    try:
        while time.monotonic() < until:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                if os.WIFSIGNALED(status):
                    return CRASHED
                return "" if os.WEXITSTATUS(status) == 0 else "failed"
            time.sleep(0.01)
        return HUNG
    finally:
        if not done:  # it hangs, or the user pressed Ctrl-C
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _operators(module: Any) -> set[str]:
    found: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and isinstance(node.op, tvm.ir.Op):
            found.add(str(node.op.name))

    visit_functions(module, visit)
    return found
