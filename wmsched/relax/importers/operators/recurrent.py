"""ONNX's LSTM, GRU and RNN, which TVM's importer lacks, unrolled step by step.

One product computes the inputs' part of all steps; each step multiplies the state before it. Equations, order
of gates and defaults are those of ONNX's operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Constant

from wmsched.base.errors import WmschedError
from wmsched.relax.importers.shapes import shape_text
from wmsched.relax.passes.wide_fusion import shape_of

op = relax.op
Emit = Callable[[Any], Any]
State = list[Any]  # of tensors [batch, hidden]
BACKWARDS = {b"forward": (False,), b"reverse": (True,), b"bidirectional": (False, True)}


@dataclass(frozen=True)
class _Direction:
    """Values that an operator's steps in one direction share.

    Attributes
    ----------
    emit : callable
        Binds an expression.
    hidden : int
    recurrence : list of relax.Expr
        Weights of the state, [hidden, gates * hidden]; weights of the reset state come separately.
    bias : relax.Expr or None
        A GRU's bias of the new state, [hidden], if it is not in the inputs' part.
    peepholes : list of relax.Expr or None
        An LSTM's cell weights, [hidden] each, of input, output and forget gate.
    functions : list of callable
    attr : dict
        The operator's attributes.
    """

    emit: Emit
    hidden: int
    recurrence: list[Any]
    bias: Any
    peepholes: list[Any] | None
    functions: list[Function]
    attr: dict[str, Any]

    def gate(self, value: Any, place: int) -> Any:
        """Return the columns of a gate."""
        return _cut(self.emit, value, 1, place * self.hidden, (place + 1) * self.hidden)

    def of_state(self, state: Any, which: int = 0) -> Any:
        """Return the state's product with weights."""
        return self.emit(op.matmul(state, self.recurrence[which]))


Step = Callable[[_Direction, Any, State], State]


def _lstm(at: _Direction, of_input: Any, state: State) -> State:
    hidden, cell = state
    gates = at.emit(of_input + at.of_state(hidden))
    of_gates, of_cell, of_output = at.functions

    def gate(place: int, seen: Any = None, peephole: int = 0) -> Any:
        value = at.gate(gates, place)
        return value if at.peepholes is None or seen is None else value + at.peepholes[peephole] * seen

    enter = of_gates(gate(0, cell, 0))
    if at.attr.get("input_forget", 0):
        forget = at.emit(relax.const(1, str(enter.ty.dtype)) - enter)
    else:
        forget = of_gates(gate(2, cell, 2))
    cell = at.emit(forget * cell + enter * of_cell(gate(3)))
    return [at.emit(of_gates(gate(1, cell, 1)) * of_output(cell)), cell]


def _gru(at: _Direction, of_input: Any, state: State) -> State:
    (hidden,) = state
    of_gates, of_hidden = at.functions
    product = at.of_state(hidden)
    update, reset = (of_gates(at.gate(of_input, place) + at.gate(product, place)) for place in (0, 1))
    if at.attr.get("linear_before_reset", 0):
        old = at.gate(product, 2)
        old = reset * (old if at.bias is None else old + at.bias)
    else:
        old = at.of_state(at.emit(reset * hidden), 1)
    new = of_hidden(at.gate(of_input, 2) + old)
    return [at.emit(new + update * (hidden - new))]


def _rnn(at: _Direction, of_input: Any, state: State) -> State:
    return [at.functions[0](of_input + at.of_state(state[0]))]


@dataclass(frozen=True)
class _Operator:
    """Converter of TVM's importer for one recurrent operator.

    Attributes
    ----------
    name : str
    states : int
        Number of state tensors; the first is a step's output.
    activations : tuple of str
        Default activations of one direction.
    step : callable
        Returns the states after a step.
    """

    name: str
    states: int
    activations: tuple[str, ...]
    step: Step

    def get_converter(self, opset: int) -> Callable[..., Any]:
        """Return the converter; it serves all opsets, which differ only in attributes."""
        return self._convert

    def _convert(self, bb: Any, inputs: Any, attr: dict[str, Any], params: Any) -> Any:
        """Return Y [steps, directions, batch, hidden] and the last states [directions, batch, hidden]."""
        emit, batch_first = bb.emit, bool(attr.get("layout", 0))

        def turned(value: Any) -> Any:
            """Convert to or from batch-first layout."""
            axes = [1, 0, 2] if len(value.ty.shape) == 3 else [2, 0, 1, 3]
            return emit(op.permute_dims(value, axes)) if batch_first else value

        data = turned(inputs[0])
        steps, batch, size = self._numbers(data)
        flat = emit(op.reshape(data, (steps * batch, size)))
        backwards = BACKWARDS[attr.get("direction", b"forward")]
        functions, each = activations(emit, attr, self.activations * len(backwards)), len(self.activations)
        within = None if inputs[4] is None else _within(emit, inputs[4], steps, batch)
        sequences, lasts = [], []
        for place, reverse in enumerate(backwards):
            own = functions[place * each :][:each]
            of_inputs, at = self._direction(emit, flat, inputs, attr, place, own)
            state = [
                emit(op.zeros((batch, at.hidden), str(data.ty.dtype)))
                if inputs[5 + number] is None
                else _part(emit, turned(inputs[5 + number]), place)
                for number in range(self.states)
            ]
            outputs, last = self._run(at, _parted(emit, of_inputs, steps), state, within, reverse)
            sequences.append(emit(op.reshape(_joined(emit, outputs), (steps, 1, batch, at.hidden))))
            lasts.append([emit(op.expand_dims(value, 0)) for value in last])
        found = [_joined(emit, sequences, 1), *(_joined(emit, list(values)) for values in zip(*lasts))]
        return relax.Tuple([turned(value) for value in found])

    def _numbers(self, data: Any) -> tuple[int, ...]:
        shape = shape_of(data)
        if shape is None:
            raise WmschedError(
                f"its {self.name} reads a tensor of the shape {shape_text(data.ty.shape)}, and its steps are "
                "written out one by one: give the numbers of the model's inputs with --shape INPUT=NUMBERS"
            )
        return shape

    def _direction(
        self,
        emit: Emit,
        flat: Any,
        inputs: Any,
        attr: dict[str, Any],
        place: int,
        functions: list[Function],
    ) -> tuple[Any, _Direction]:
        """Return the inputs' part, [steps * batch, gates * hidden], and the `_Direction`."""
        weight, recurrence = (_upright(emit, _part(emit, inputs[number], place)) for number in (1, 2))
        hidden, columns = (int(extent) for extent in recurrence.ty.shape)
        of_inputs = emit(op.matmul(flat, weight))
        gru, reset_late = self.name == "GRU", bool(attr.get("linear_before_reset", 0))
        weights, late = [recurrence], None
        if gru and not reset_late:
            ends = ((0, 2 * hidden), (2 * hidden, columns))
            weights = [_cut(emit, recurrence, 1, *each) for each in ends]
        if inputs[3] is not None:
            both = _part(emit, inputs[3], place)
            bias, of_state = (_cut(emit, both, 0, *ends) for ends in ((0, columns), (columns, 2 * columns)))
            if gru and reset_late:  # it multiplies a product with its bias
                late = _cut(emit, of_state, 0, 2 * hidden, columns)
                none = emit(op.zeros((hidden,), str(flat.ty.dtype)))
                of_state = op.concat([_cut(emit, of_state, 0, 0, 2 * hidden), none], 0)
            of_inputs = emit(of_inputs + emit(bias + of_state))
        peepholes = None
        if self.name == "LSTM" and inputs[7] is not None:
            of_cell = _part(emit, inputs[7], place)
            peepholes = [_cut(emit, of_cell, 0, k * hidden, (k + 1) * hidden) for k in range(3)]
        return of_inputs, _Direction(emit, hidden, weights, late, peepholes, functions, attr)

    def _run(
        self, at: _Direction, of_inputs: list[Any], state: State, within: list[Any] | None, reverse: bool
    ) -> tuple[list[Any], State]:
        """Return the output of each step, in order, and the last state."""
        outputs = list(of_inputs)
        for step in sorted(range(len(of_inputs)), reverse=reverse):
            new = self.step(at, of_inputs[step], state)
            if within is None:
                state = new
                outputs[step] = state[0]
            else:  # after a sequence's end the state stays and the output is 0
                state = [at.emit(op.where(within[step], *pair)) for pair in zip(new, state)]
                outputs[step] = at.emit(op.where(within[step], new[0], op.zeros_like(new[0])))
        return outputs, state


OPERATORS = {
    each.name: each
    for each in (
        _Operator("LSTM", 2, ("Sigmoid", "Tanh", "Tanh"), _lstm),
        _Operator("GRU", 1, ("Sigmoid", "Tanh"), _gru),
        _Operator("RNN", 1, ("Tanh",), _rnn),
    )
}


def _within(emit: Emit, lengths: Any, steps: int, batch: int) -> list[Any]:
    """Return for each step whether it is within each sequence, [batch, 1]."""
    places = relax.const(np.arange(steps, dtype=str(lengths.ty.dtype))[:, None])
    before = emit(op.less(places, emit(op.expand_dims(lengths, 0))))
    return _parted(emit, emit(op.reshape(before, (steps * batch, 1))), steps)


def _cut(emit: Emit, value: Any, axis: int, begin: int, end: int) -> Any:
    if isinstance(value, Constant):  # else TVM compiles a function for each slice to run it once
        return relax.const(np.split(value.value.numpy(), [begin, end], axis)[1])
    return emit(op.strided_slice(value, axes=[axis], begin=[begin], end=[end]))


def _part(emit: Emit, value: Any, place: int) -> Any:
    """Return one element along the first axis."""
    part = _cut(emit, value, 0, place, place + 1)
    if isinstance(part, Constant):
        return relax.const(part.value.numpy()[0])
    return emit(op.squeeze(part, [0]))


def _upright(emit: Emit, value: Any) -> Any:
    """Return the transpose of a matrix."""
    if isinstance(value, Constant):
        return relax.const(value.value.numpy().T.copy())
    return emit(op.permute_dims(value, [1, 0]))


def _parted(emit: Emit, value: Any, number: int) -> list[Any]:
    """Return `number` equal pieces along the first axis."""
    if number == 1:
        return [value]
    pieces = emit(op.split(value, number, 0))
    return [emit(relax.TupleGetItem(pieces, place)) for place in range(number)]


def _joined(emit: Emit, values: list[Any], axis: int = 0) -> Any:
    return values[0] if len(values) == 1 else emit(op.concat(values, axis))


Function = Callable[[Any], Any]


def _number(like: Any, value: float) -> Any:
    return relax.const(value, str(like.ty.dtype))


def _elu(x: Any, alpha: float) -> Any:
    below = (op.exp(x) - _number(x, 1)) * _number(x, alpha)
    return op.where(op.less(x, _number(x, 0)), below, x)


# activation (of input, alpha, beta as needed) and the defaults of its parameters
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
    """Return the activations of a recurrent operator, one direction after the other.

    Parameters
    ----------
    emit : callable
        Binds an expression, so that it has a type.
    attr : mapping
        The operator's attributes: `activations`; `activation_alpha` and `activation_beta`, which the
        activations consume in order; `clip`, the bound of their inputs.
    defaults : tuple of str
        The activations if `attr` names none.

    Raises
    ------
    WmschedError
        `attr` names an activation that ONNX does not define.
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
