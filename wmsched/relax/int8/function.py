"""A function that is rewritten, binding by binding, with what is known of its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relax

from wmsched.relax.int8.constants import Constants, operator
from wmsched.relax.int8.facts import TO_FIRST, TO_LAST, Eight, Real, permuted
from wmsched.relax.passes.channels_last import bounds_as_operators

Handler = Callable[["Rewrite", Any, Any], Any]


class Rewrite:
    """One function, binding by binding.

    Parameters
    ----------
    function : relax.Function
    builder : relax.BlockBuilder
        Of the new function.
    emitter : Emitter
        Of what the handlers' facts become; None where the subclass emits that.
    handlers : mapping of str to callable (Rewrite, Var, Call)
        What is known of the result of an operator, by its name (`operators`).

    Attributes
    ----------
    facts : dict
        What is known of a variable of the old function (`facts`).
    uses : dict
        How often a variable of the old function is read.
    has_images : bool
        Whether it has convolutions; without one, tensors of four axes are an attention's, not images.
    """

    def __init__(self, function: Any, builder: Any, emitter: Any, handlers: Mapping[str, Handler]) -> None:
        self.function, self.builder, self.emitter, self.handlers = function, builder, emitter, handlers
        self.facts: dict[Any, Any] = {}
        self.uses: dict[Any, int] = {}
        self.source: dict[Any, Any] = {}  # the quantization that an `Eight` is of
        self._first: dict[Any, Any] = {each: each for each in function.params}
        self._last: dict[Any, Any] = {}
        if not isinstance(function.body, relax.SeqExpr):
            raise ValueError("a function without bindings")
        self.bindings = [binding for block in function.body.blocks for binding in block.bindings]
        if not all(isinstance(binding, relax.VarBinding) for binding in self.bindings):
            raise ValueError("a binding that matches shapes")
        self.has_images = any(operator(each.value) == "relax.nn.conv2d" for each in self.bindings)
        self.constants = Constants({binding.var: binding.value for binding in self.bindings})
        for binding in self.bindings:
            self._count(binding.value)
        self._count(function.body.body)

    def _count(self, expression: Any) -> None:
        if isinstance(expression, relax.Var):
            self.uses[expression] = self.uses.get(expression, 0) + 1
        elif isinstance(expression, relax.Call):
            for operand in expression.args:
                self._count(operand)
        elif isinstance(expression, relax.Tuple):
            for operand in expression.fields:
                self._count(operand)
        elif isinstance(expression, relax.TupleGetItem):
            self._count(expression.tuple_value)

    def result(self) -> Any:
        """Emit the function; return its result."""
        for binding in self.bindings:
            self._visit(binding.var, binding.value)
        return self.substituted(self.function.body.body)

    def _visit(self, variable: Any, value: Any) -> None:
        if isinstance(value, relax.Var) and value in self.facts:
            self.facts[variable] = self.facts[value]
            return
        handler = self.handlers.get(operator(value))
        fact = handler(self, variable, value) if handler is not None else None
        if fact is not None:
            self.facts[variable] = fact
            return
        made = self.substituted(value)
        self._first[variable] = made if isinstance(made, relax.Var) else self.builder.emit(made)

    def substituted(self, expression: Any) -> Any:
        """Return an expression of the new function's variables."""
        if isinstance(expression, relax.Var):
            return self.first(expression)
        if isinstance(expression, relax.Call):
            operands = [self.substituted(operand) for operand in expression.args]
            return relax.Call(expression.op, operands, expression.attrs, expression.ty_args)
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([self.substituted(operand) for operand in expression.fields])
        if isinstance(expression, relax.TupleGetItem):
            return relax.TupleGetItem(self.substituted(expression.tuple_value), expression.index)
        if isinstance(expression, (relax.If, relax.Function, relax.SeqExpr)):
            raise ValueError(f"a {type(expression).__name__} within the function")
        return expression

    def first(self, variable: Any) -> Any:
        """Return the new function's variable for one of the old, as the model lays it out."""
        if variable not in self._first:
            fact = self.facts[variable]
            if isinstance(fact, Eight):
                self._first[variable] = self.emitter.numbers(fact)
            else:
                self._first[variable] = permuted(self.builder, self.twin(variable), TO_FIRST)
        return self._first[variable]

    def twin(self, variable: Any) -> Any:
        """Return the new function's float32 variable with the channels last."""
        if variable not in self._last:
            fact = self.facts.get(variable)
            self._last[variable] = (
                permuted(self.builder, self.first(variable), TO_LAST)
                if fact is None
                else self.emitter.twin(fact)
            )
        return self._last[variable]

    def is_single(self, eight: Eight) -> bool:
        """Whether a quantized tensor has one reader, and its float32 values one."""
        variable = self.source.get(eight)
        if variable is None or self.uses.get(variable) != 1:
            return False
        reals = [v for v, fact in self.facts.items() if isinstance(fact, Real) and fact.eight is eight]
        return len(reals) == 1 and self.uses.get(reals[0]) == 1


def rewritten(module: Any, rewriting: Callable[[Any, Any], Rewrite]) -> Any:
    """Return a module with ``main`` rewritten.

    Parameters
    ----------
    rewriting : callable (function, builder)
        The rewrite of the function into the builder's.

    Raises
    ------
    ValueError
        The function has bindings of unknown form.
    """
    variable = module.get_global_var("main")
    main = bounds_as_operators(module[variable], module)
    builder = relax.BlockBuilder()
    attributes = dict(main.attrs) if main.attrs else {}
    with builder.function("main", list(main.params), attributes):
        with builder.dataflow():
            result = builder.emit_output(rewriting(main, builder).result())
        builder.emit_func_output(result)
    made = builder.finalize()
    functions = {v: f for v, f in module.functions.items() if not v.same_as(variable)}
    whole = tvm.IRModule(
        {**functions, **dict(made.functions.items())}, attrs=module.attrs, global_infos=module.global_infos
    )
    return tvm.transform.Sequential(
        [
            relax.transform.Normalize(),
            relax.transform.CanonicalizeBindings(),
            relax.transform.DeadCodeElimination(),
        ]
    )(whole)
