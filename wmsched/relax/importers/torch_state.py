"""Programs that mutate their buffers or inputs, such as a cache or a counter.

A buffer that changes is a state of the library: an input of ``main``, and an output for the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree

from wmsched.relax.state.pairs import Pair

MAX_NAMED = 4  # inputs in a note
USERS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)


@dataclass(frozen=True)
class Buffer:
    """Buffer that a program mutates: its name in the module, its input's name, and both places."""

    name: str
    label: str
    pair: Pair


def lifted(program: Any) -> list[Buffer]:
    """Make inputs and outputs of a program of the buffers that it mutates, and return these.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As `torch_rewrites.normalize` returns it; changed.
    """
    signature = program.graph_signature
    changed = dict(signature.buffers_to_mutate)  # by the output's name
    if not changed:
        return []
    names = set(changed.values())
    labels = {}
    for spec in signature.input_specs:
        if spec.kind is InputKind.BUFFER and spec.target in names:
            labels[spec.target] = spec.arg.name
            spec.kind, spec.target, spec.persistent = InputKind.USER_INPUT, None, None
    inputs = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    found, place = [], 0
    for spec in signature.output_specs:
        if spec.kind is OutputKind.BUFFER_MUTATION:
            label = labels[spec.target]
            found.append(Buffer(spec.target, label, Pair(inputs.index(label), place)))
            spec.kind, spec.target = OutputKind.USER_OUTPUT, None
        place += spec.kind in USERS
    # TVM's importer would bind a constant without an input to the input before it
    program._constants = {name: value for name, value in program.constants.items() if name not in names}
    return found


def notes(program: Any) -> tuple[str, ...]:
    """Return notes on the inputs that a program mutates.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As `torch_rewrites.normalize` returns it; torch.export itself leaves mutations as in-place operators.
    """
    inputs = sorted(set(program.graph_signature.user_inputs_to_mutate.values()))
    if not inputs:
        return ()
    more = [f"and {len(inputs) - MAX_NAMED} more"] if len(inputs) > MAX_NAMED else []
    named = ", ".join([*inputs[:MAX_NAMED], *more])
    return (
        f"the model changes inputs in place ({named}), and the tuned one leaves them as they are: have it "
        "return what it changes, or hold it as a buffer",
    )


def repeatable(
    program: Any, module: Any, arguments: Sequence[Any], options: Mapping[str, Any], states: Sequence[Buffer]
) -> Callable[[], Any]:
    """Return a call of a program in PyTorch that gives the same result each time, despite mutations.

    It returns a list of the buffers that it mutates, and what the module returns.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As for `notes`.
    module : torch.nn.Module
        Module of the exported program.
    states : sequence of Buffer
        `lifted` of the program.
    """
    held = dict(module.named_buffers(remove_duplicate=False))
    buffers = [held[state.name] for state in states]
    before = [buffer.detach().clone() for buffer in buffers]
    in_place = bool(program.graph_signature.user_inputs_to_mutate)

    def call() -> Any:
        with torch.inference_mode():
            given = (tuple(arguments), dict(options))
            if in_place:
                given = _pytree.tree_map_only(torch.Tensor, torch.clone, given)
            if not buffers:
                return module(*given[0], **given[1])
            try:
                found = module(*given[0], **given[1])
                after = [buffer.clone() for buffer in buffers]
                # an output may be a buffer
                return [after, _pytree.tree_map_only(torch.Tensor, torch.clone, found)]
            finally:
                for buffer, value in zip(buffers, before):
                    buffer.copy_(value)

    return call
