"""Which output of a model is which input of its next call: by the usual names, or as ``--state`` says.

Needs no TVM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from wmsched.base.errors import UnknownName, WmschedError

__all__ = ["NONE", "Pair", "State", "last_rows", "pairs_of"]

NONE = "none"  # of ``--state``: every input is given in each call
#: Beginnings of names that exporters of decoders give a cache, as an input and as an output.
PAST = ("past_key_values", "past")
PRESENT = ("present_key_values", "present")


@dataclass(frozen=True)
class Pair:
    """An input and the output that the next call takes it from, by their places in the model."""

    input: int
    output: int


@dataclass(frozen=True, kw_only=True)
class State:
    """State of an imported model.

    Parameters
    ----------
    name : str
        The input's or the buffer's, as the model has it.
    input : int
        Place among the inputs of ``main``.
    output : int
        Place among the tensors that ``main`` returns.
    axis : int
        Along which the model returns more rows than it takes; -1 where it returns as many.
    start : torch.Tensor or None
        Its value before the first call; None: zeros.
    """

    name: str
    input: int
    output: int
    axis: int = -1
    start: Any = field(default=None, compare=False)


def pairs_of(
    name: str, inputs: Sequence[str], outputs: Sequence[str], asked: Sequence[str] = ()
) -> list[Pair]:
    """Return the states of a model.

    >>> pairs_of("model.onnx", ["ids", "past_key_values.0.key"], ["logits", "present.0.key"])
    [Pair(input=1, output=1)]

    Parameters
    ----------
    name : str
        The model's, for messages.
    asked : sequence of str
        Options ``--state``: INPUT=OUTPUT of each, an output by name or number; or ``none``. Without any, the
        usual names are looked for.

    Raises
    ------
    UnknownName
        There is no such input or output.
    WmschedError
        An option is no pair, or names an input or an output twice.
    """
    if not asked:
        return _by_names(inputs, outputs)
    if list(asked) == [NONE]:
        return []
    found: list[Pair] = []
    for text in asked:
        before, sign, after = text.partition("=")
        if not sign or not before or not after:
            raise WmschedError(
                f"--state {text}: it says which input is taken from which output, such as --state "
                f"{_example(inputs, outputs)}; or alone, --state {NONE}"
            )
        if before not in inputs:
            raise UnknownName(f"--state {text}: {name} has no input {before}; it has {', '.join(inputs)}")
        place = _output(name, text, after, outputs)
        if any(before == inputs[one.input] or place == one.output for one in found):
            raise WmschedError(f"--state {text}: that input or output is in another --state of {name}")
        found.append(Pair(inputs.index(before), place))
    return found


def _output(name: str, text: str, wanted: str, outputs: Sequence[str]) -> int:
    if wanted in outputs:
        return outputs.index(wanted)
    if wanted.isdigit() and int(wanted) < len(outputs):
        return int(wanted)
    raise UnknownName(
        f"--state {text}: {name} has no output {wanted}; it has {', '.join(outputs)}, or numbers from 0 to "
        f"{len(outputs) - 1}"
    )


def _by_names(inputs: Sequence[str], outputs: Sequence[str]) -> list[Pair]:
    """Return pairs such as past_key_values.0.key and present.0.key, past_0 and present_0."""
    present = {rest: k for k, name in enumerate(outputs) if (rest := _rest(name, PRESENT))}
    return [
        Pair(k, present[rest])
        for k, name in enumerate(inputs)
        if (rest := _rest(name, PAST)) and rest in present
    ]


def _rest(name: str, beginnings: Sequence[str]) -> str:
    """Return what is behind the first beginning of a name, such as .0.key or _0; "" where it has none."""
    rest = next((name[len(one) :] for one in beginnings if name.startswith(one)), "")
    return rest if rest[:1] in (".", "_") else ""


def _example(inputs: Sequence[str], outputs: Sequence[str]) -> str:
    return f"{inputs[-1] if inputs else 'cache'}={outputs[-1] if outputs else 'new_cache'}"


def last_rows(
    call: Callable[[], Any], states: Sequence[State], inputs: Sequence[Any]
) -> Callable[[], list[Any]]:
    """Return a call of another runtime with its states' outputs in the shapes of their inputs.

    Parameters
    ----------
    call : callable () -> sequence of tensor
        All outputs, in order.
    inputs : sequence of tensor
        Of the model, in order.
    """
    windows = [state for state in states if state.axis >= 0]

    def cut() -> list[Any]:
        found = list(call())
        for state in windows:
            kept, rows = inputs[state.input].shape[state.axis], found[state.output].shape[state.axis]
            found[state.output] = found[state.output].narrow(state.axis, rows - kept, kept)
        return found

    return cut if windows else call
