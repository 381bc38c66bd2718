"""Programs that change their buffers or inputs as they run, a cache or a count: a library changes neither."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree

NAMED = 4  # buffers; a cache has two for each layer


def notes(program: Any) -> tuple[str, ...]:
    """What there is to say of a program that changes something.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As `relax_torch.explicit` gives it: in what torch.export gives, a change is an operator in place.
    """
    signature = program.graph_signature
    found: list[str] = []
    if buffers := sorted(set(signature.buffers_to_mutate.values())):
        found.append(
            f"the model changes buffers of its own as it runs ({_named(buffers)}), and the tuned one does "
            "not: each of its calls starts from them as they were exported"
        )
    if inputs := sorted(set(signature.user_inputs_to_mutate.values())):
        found.append(
            f"the model changes inputs in place ({_named(inputs)}), and the tuned one leaves them as they "
            "are: have it return what it changes"
        )
    return tuple(found)


def repeatable(
    program: Any, module: Any, arguments: Sequence[Any], options: Mapping[str, Any]
) -> Callable[[], Any]:
    """A call of a program in PyTorch that computes the same each time, whatever the program changes.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As for `notes`.
    module : torch.nn.Module
        Of the program as it was exported.
    """
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    buffers = [buffer for name, buffer in module.named_buffers(remove_duplicate=False) if name in changed]
    before = [buffer.detach().clone() for buffer in buffers]
    in_place = bool(signature.user_inputs_to_mutate)

    def call() -> Any:
        with torch.inference_mode():
            given = (tuple(arguments), dict(options))
            if in_place:
                given = _pytree.tree_map_only(torch.Tensor, torch.clone, given)
            try:
                found = module(*given[0], **given[1])
                # what is returned may be a buffer
                return _pytree.tree_map_only(torch.Tensor, torch.clone, found) if buffers else found
            finally:  # at once: a module of TVM's has these very buffers for its constants
                for buffer, value in zip(buffers, before):
                    buffer.copy_(value)

    return call


def _named(names: Sequence[str]) -> str:
    more = [f"and {len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join([*names[:NAMED], *more])
