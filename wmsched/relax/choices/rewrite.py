"""A function of one block of bindings, written anew with planned replacements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from wmsched.base.errors import WmschedError
from wmsched.relax.attention.match import Found
from wmsched.relax.attention.views import Bindings
from wmsched.relax.choices.attention import Attention, attention_kernel
from wmsched.relax.choices.blocks import blocks_of, kernel_pays
from wmsched.relax.choices.core import Core
from wmsched.relax.choices.depthwise import depthwise_kernel, geometry_of
from wmsched.relax.choices.epilogue import Epilogue
from wmsched.relax.choices.following import Followed, followed
from wmsched.relax.choices.products import packed_weights, product_kernel, product_of, weights_of
from wmsched.relax.choices.winograd import Matrices, Tiles, data_kernel, result_kernel, transformed_weights
from wmsched.relax.int8.geometry import Geometry
from wmsched.relax.passes.wide_fusion import shape_of

REWRITTEN = "main_rewritten"


class Rewriter:
    """One function of a module, binding by binding.

    Parameters
    ----------
    module : tvm.IRModule
    name : str
        Of the function.
    core : Core, optional
        For which kernels are written.

    Attributes
    ----------
    bindings : list of (Var, expression)
    known : Bindings
    value, readers : dict
        Its variables' expressions, and who reads a variable.

    Raises
    ------
    WmschedError
        The function has other bindings than of variables, such as matches of shapes.
    """

    def __init__(self, module: Any, name: str = "main", core: Core | None = None) -> None:
        self.module, self.name, self.function, self.core = module, name, module[name], core or Core()
        body = self.function.body
        bound = [one for block in body.blocks for one in block.bindings] if hasattr(body, "blocks") else []
        if not bound or not all(isinstance(one, relax.VarBinding) for one in bound):
            raise WmschedError("the model's function is no list of operators: nothing is chosen in its graph")
        self.bindings = [(one.var, one.value) for one in bound]
        self.known = Bindings(self.bindings, body.body)
        self.value, self.readers = self.known.values, self.known.readers
        self._new: dict[Any, Any] = {}
        self._replaced: dict[Any, Callable[[Any, Any], Any]] = {}
        self._after: dict[Any, Any] = {}
        self._absorbed: set[Any] = set()

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
        """Plan a convolution by Winograd, with the epilogue that it alone has."""
        call, found = self.value[variable], self._followed(variable)
        top, left = (int(size) for size in call.attrs.padding[:2])
        tiles = Tiles(_images(call.args[0]), _images(call), top, left, matrices)
        weights = transformed_weights(call.args[1].value.numpy(), matrices)

        def made(builder: Any, _: Any) -> Any:
            data = self._called(builder, data_kernel(tiles), [self._of(call.args[0])], tiles.transformed)
            product = self._matrices(builder, data, weights)
            more = [self._of(argument) for argument in found.arguments]
            return self._called(builder, result_kernel(tiles, found.epilogue), [product, *more], tiles.result)

        self._replaced[found.last] = made

    def _matrices(self, builder: Any, data: Any, weights: NDArray[np.float32]) -> Any:
        """Emit the product of each matrix of the data with weights of its own."""
        (*matrices, rows, depth), outputs = shape_of(data) or (), weights.shape[-1]
        shape, count = (
            Geometry(batch=1, height=rows, width=1, channels=depth, outputs=outputs),
            math.prod(matrices),
        )
        if not kernel_pays(shape, self.core):
            return builder.emit(relax.op.matmul(data, relax.const(weights)))
        given, result = (*matrices, rows, depth), (*matrices, rows, outputs)
        kernel = product_kernel(shape, Epilogue(), self.core, given, result, count)
        packed = packed_weights(weights, blocks_of(shape, self.core, count))
        return self._called(builder, kernel, [data, relax.const(packed)], result)

    def depthwise(self, variable: Any) -> None:
        """Plan a depthwise convolution by a kernel of its own, with the epilogue that it alone has."""
        call, found = self.value[variable], self._followed(variable)
        result, shape = _images(call), geometry_of(call)
        weights = call.args[1].value.numpy().reshape(-1)

        def made(builder: Any, _: Any) -> Any:
            kernel = depthwise_kernel(shape, found.epilogue, self.core)
            more = [self._of(argument) for argument in found.arguments]
            return self._called(
                builder, kernel, [self._of(call.args[0]), relax.const(weights), *more], result
            )

        self._replaced[found.last] = made

    def product(self, variable: Any) -> None:
        """Plan a convolution or product by a kernel of its own, with the epilogue that it alone has."""
        call, found = self.value[variable], self._followed(variable)
        data, given, result = call.args[0], shape_of(call.args[0]), shape_of(call)
        assert given is not None and result is not None
        shape, count = product_of(call)
        right, computed = call.args[1], shape_of(call.args[1]) or ()
        if isinstance(right, tvm.ir.Constant):
            right, computed = (
                relax.const(packed_weights(weights_of(call), blocks_of(shape, self.core, count))),
                (),
            )

        def made(builder: Any, _: Any) -> Any:
            kernel = product_kernel(shape, found.epilogue, self.core, given, result, count, computed)
            more = [self._of(argument) for argument in (right, *found.arguments)]
            return self._called(builder, kernel, [self._of(data), *more], result)

        self._replaced[found.last] = made

    def attention(self, found: Found, shape: Attention) -> None:
        """Plan an attention by one kernel."""
        self._absorbed |= found.inside
        for argument in found.arguments:  # which an epilogue must not take inside
            self.known.read(argument, found.last)

        def made(builder: Any, _: Any) -> Any:
            operands = [self._of(each.base) for each in (found.q, found.k, found.v)]
            operands += [mask.added(builder, self._of(mask.expression)) for mask in found.masks]
            return self._called(builder, attention_kernel(shape, self.core), operands, shape.result.shape)

        self._replaced[found.last] = made

    def _followed(self, variable: Any) -> Followed:
        """Return a convolution's longest epilogue; what is inside is no longer computed for itself."""
        found = followed(self, variable, {*self._replaced, *self._absorbed}, self._after)
        self._absorbed |= found.inside
        return found

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
