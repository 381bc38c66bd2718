"""A function of one block of bindings, written anew with planned replacements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from wmsched.base.errors import WmschedError
from wmsched.relax.choices.winograd import Matrices, Tiles, data_kernel, result_kernel, transformed_weights
from wmsched.relax.passes.wide_fusion import shape_of

ADD, RELU = "relax.add", "relax.nn.relu"
REWRITTEN = "main_rewritten"


class Rewriter:
    """One function of a module, binding by binding.

    Parameters
    ----------
    module : tvm.IRModule
    name : str
        Of the function.

    Attributes
    ----------
    bindings : list of (Var, expression)
    value : dict
        The expression of a variable.
    readers : dict
        The variables whose expressions read a variable, each as often as it does.

    Raises
    ------
    WmschedError
        The function has other bindings than of variables, such as matches of shapes.
    """

    def __init__(self, module: Any, name: str = "main") -> None:
        self.module, self.name, self.function = module, name, module[name]
        body = self.function.body
        bound = [one for block in body.blocks for one in block.bindings] if hasattr(body, "blocks") else []
        if not bound or not all(isinstance(one, relax.VarBinding) for one in bound):
            raise WmschedError("the model's function is no list of operators: nothing is chosen in its graph")
        self.bindings = [(one.var, one.value) for one in bound]
        self.value = dict(self.bindings)
        self.readers: dict[Any, list[Any]] = {}
        for variable, value in self.bindings:
            relax.analysis.post_order_visit(value, lambda node, v=variable: self._read(node, v))
        self._read(body.body, None)
        self._new: dict[Any, Any] = {}
        self._replaced: dict[Any, Callable[[Any, Any], Any]] = {}
        self._after: dict[Any, Any] = {}
        self._absorbed: set[Any] = set()

    def _read(self, node: Any, reader: Any) -> None:
        if isinstance(node, relax.Var):
            self.readers.setdefault(node, []).append(reader)

    @staticmethod
    def operator(value: Any) -> str:
        """Return an expression's operator by name; "" if it is none."""
        named = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
        return str(value.op.name) if named else ""

    def replace(self, variable: Any, make: Callable[[Any, Any], Any]) -> None:
        """Plan another expression of a variable; `make` gets the builder and the new call."""
        self._replaced[variable] = make

    def after(self, variable: Any, function: Any) -> None:
        """Plan a TensorIR function of one tensor after a variable, for all that reads it."""
        self._after[variable] = function

    def winograd(self, variable: Any, matrices: Matrices) -> None:
        """Plan a convolution by Winograd, with the bias, the sum and the ReLU that follow it alone."""
        call, last, bias, residual, rectified = self.value[variable], variable, None, None, False
        data_shape, shape = _images(call.args[0]), _images(call)
        channels = shape[-1]
        while last not in self._after:
            readers = self.readers.get(last, [])
            if readers and (readers[0] in self._replaced or readers[0] in self._absorbed):
                break  # another branch has planned it
            following: Any = self.value.get(readers[0]) if len(readers) == 1 else None
            name = self.operator(following)
            if name == RELU:
                last, rectified = readers[0], True
                break
            if name != ADD or shape_of(following) != shape:
                break
            (other,) = [one for one in following.args if not one.same_as(last)][:1] or [last]
            if bias is None and residual is None and _is_bias(other, channels):
                bias = other.value.numpy().reshape(-1)
            elif residual is None and isinstance(other, relax.Var) and shape_of(other) == shape:
                residual = other
            else:
                break
            self._absorbed.add(last)
            last = readers[0]
        if rectified:
            self._absorbed.add(self._before(last))
        attrs = call.attrs
        top, left = (int(size) for size in attrs.padding[:2])
        tiles = Tiles(data_shape, shape, top, left, matrices)
        weights = transformed_weights(call.args[1].value.numpy(), matrices)
        given = np.zeros(channels, "float32") if bias is None else bias

        def made(builder: Any, _: Any) -> Any:
            data = self._called(builder, data_kernel(tiles), [self._of(call.args[0])], tiles.transformed)
            product = builder.emit(relax.op.matmul(data, relax.const(weights)))
            more = [] if residual is None else [self._of(residual)]
            kernel = result_kernel(tiles, residual=residual is not None, rectified=rectified)
            return self._called(builder, kernel, [product, relax.const(given), *more], tiles.result)

        self._replaced[last] = made

    def _before(self, variable: Any) -> Any:
        return self.value[variable].args[0]

    def _called(self, builder: Any, kernel: Any, arguments: list[Any], shape: tuple[int, ...]) -> Any:
        name = str(kernel.attrs["global_symbol"]) if "global_symbol" in kernel.attrs else "kernel"
        function = builder.add_func(kernel.without_attr("global_symbol"), name)
        return builder.emit(relax.call_tir(function, arguments, relax.TensorType(shape, "float32")))

    def _of(self, expression: Any) -> Any:
        """Return an expression of the new function's variables."""
        if isinstance(expression, relax.Var):
            return self._new.get(expression, expression)
        if isinstance(expression, relax.Call):
            operands = [self._of(operand) for operand in expression.args]
            return relax.Call(expression.op, operands, expression.attrs, expression.ty_args)
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([self._of(operand) for operand in expression.fields])
        if isinstance(expression, relax.TupleGetItem):
            return relax.TupleGetItem(self._of(expression.tuple_value), expression.index)
        return expression

    def rewritten(self) -> Any:
        """Return the module with what was planned."""
        builder = relax.BlockBuilder(self.module.clone())
        with builder.function(REWRITTEN, list(self.function.params)):
            with builder.dataflow():
                for variable, value in self.bindings:
                    if variable not in self._absorbed:
                        self._new[variable] = self._emitted(builder, variable, value)
                result = builder.emit_output(self._of(self.function.body.body))
            builder.emit_func_output(result)
        found = builder.get()
        function = found[REWRITTEN]
        for key, attribute in (self.function.attrs or {}).items():
            function = function.with_attr(key, attribute)
        del found[REWRITTEN]
        found.update_func(found.get_global_var(self.name), function)
        return found

    def _emitted(self, builder: Any, variable: Any, value: Any) -> Any:
        make = self._replaced.get(variable)
        found = self._of(value) if make is None else make(builder, self._of(value))
        if not isinstance(found, relax.Var):
            found = builder.emit(found)
        if variable in self._after:
            function = self._after[variable]
            name = builder.add_func(function.without_attr("global_symbol"), "barrier")
            found = builder.emit(relax.call_tir(name, [found], found.ty))
        return found


def _images(value: Any) -> tuple[int, int, int, int]:
    """Return the shape of a tensor of four dimensions."""
    count, height, width, channels = shape_of(value) or ()
    return count, height, width, channels


def _is_bias(operand: Any, channels: int) -> bool:
    """Whether an operand is one constant number for each of the last axis's channels."""
    shape = shape_of(operand)
    return (
        isinstance(operand, tvm.ir.Constant)
        and shape is not None
        and shape[-1] == channels
        and all(extent == 1 for extent in shape[:-1])
    )
