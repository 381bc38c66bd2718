"""Declaration of a module's states: outputs in the shape of their inputs, and an attribute that names both.

A cache that grows gives more rows than it takes. Its last rows are the next call's: the first were the
oldest, or the padding that the model's mask hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from wmsched.base.errors import WmschedError
from wmsched.relax.passes.wide_fusion import shape_of
from wmsched.relax.state.pairs import Pair, State
from wmsched.toolchain.resolve import is_cpu

__all__ = ["ATTRIBUTE", "declared", "returned", "stateful"]

#: Of ``main``: the places of its states among the inputs.
ATTRIBUTE = "wmsched.states"


def declared(name: str, module: Any, pairs: Sequence[Pair]) -> tuple[Any, tuple[State, ...]]:
    """Return a module whose states' outputs have their inputs' shapes, and the states.

    Parameters
    ----------
    name : str
        The model's, for messages.
    module : tvm.IRModule
        With fixed shapes.

    Raises
    ------
    WmschedError
        An output cannot be its input: it has another type, or fewer rows, or more along two axes.
    """
    if not pairs:
        return module, ()
    main = module["main"]
    outputs = returned(main)
    states = []
    for pair in pairs:
        parameter = main.params[pair.input]
        given, result = parameter.ty, outputs[pair.output].ty
        said = f"{name}: output {pair.output} cannot be the next call's {parameter}"
        if not isinstance(result, relax.TensorType) or str(result.dtype) != str(given.dtype):
            raise WmschedError(f"{said}: it is {result}, and {given} is wanted; see --state")
        shape, wanted = shape_of(outputs[pair.output]), shape_of(parameter)
        if shape is None or wanted is None or len(shape) != len(wanted):
            raise WmschedError(f"{said}: it is {result}, and {given} is wanted; see --state")
        longer = [axis for axis, (has, takes) in enumerate(zip(shape, wanted)) if has != takes]
        if len(longer) > 1 or any(shape[axis] < wanted[axis] for axis in longer):
            raise WmschedError(
                f"{said}: its shape is {list(shape)}, and {list(wanted)} is wanted, or more rows along one "
                "axis: give the inputs other shapes (--shape), or leave it out (--state none)"
            )
        states.append(
            State(
                name=str(parameter),
                input=pair.input,
                output=pair.output,
                axis=longer[0] if longer else -1,
            )
        )
    if any(state.axis >= 0 for state in states):
        module = _windowed(module, states)
    found = module.clone()
    found["main"] = found["main"].with_attr(ATTRIBUTE, [state.input for state in states])
    return found, tuple(states)


def stateful(module: Any, target: Any) -> Any:
    """Return ``main`` of a module that `declared` marked, for a processor; None without states."""
    main = next((f for v, f in module.functions.items() if str(v.name_hint) == "main"), None)
    if main is None or main.attrs is None or ATTRIBUTE not in main.attrs or not is_cpu(target):
        return None
    return main


def returned(function: Any) -> list[Any]:
    """Return the expressions that a function returns, one for each tensor."""
    bound = {
        each.var: each.value
        for block in function.body.blocks
        for each in block.bindings
        if isinstance(each, relax.VarBinding)
    }
    found = function.body.body
    while not isinstance(found, relax.Tuple) and found in bound and _is_tuple(found):
        found = bound[found]
    return list(found.fields) if isinstance(found, relax.Tuple) else [found]


def _is_tuple(expression: Any) -> bool:
    return isinstance(expression.ty, relax.TupleType)


def _windowed(module: Any, states: Sequence[State]) -> Any:
    """Return the module with the last rows of each state that is returned with more than it takes."""
    main = module["main"]
    builder = relax.BlockBuilder()
    windows = {state.output: state for state in states if state.axis >= 0}
    outputs = returned(main)
    with builder.function("main", list(main.params)):
        with builder.dataflow():
            for block in main.body.blocks:
                for binding in block.bindings:
                    builder.emit_normalized(binding)
            results = []
            for place, value in enumerate(outputs):
                state = windows.get(place)
                if state is not None:
                    rows, kept = (
                        (shape_of(one) or ())[state.axis] for one in (value, main.params[state.input])
                    )
                    value = builder.emit(relax.op.strided_slice(value, [state.axis], [rows - kept], [rows]))
                results.append(value)
            found = builder.emit_output(results[0] if len(results) == 1 else relax.Tuple(results))
        builder.emit_func_output(found)
    made = module.clone()
    function = builder.get()["main"]
    attributes = dict(main.attrs) if main.attrs is not None else {}
    for key, value in attributes.items():
        function = function.with_attr(key, value)
    made["main"] = function
    return made
