"""Programs that mutate their buffers or inputs, such as a cache or a counter; a library does neither."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree

MAX_NAMED_BUFFERS = 4  # in a note; a cache has two buffers a layer


def notes(program: Any) -> tuple[str, ...]:
    """Return notes on the buffers and inputs that a program mutates.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As `torch_rewrites.normalize` returns it; torch.export itself leaves mutations as in-place operators.
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
    """Return a call of a program in PyTorch that gives the same result each time, despite mutations.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As for `notes`.
    module : torch.nn.Module
        Module of the exported program.
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
                # an output may be a buffer
                return _pytree.tree_map_only(torch.Tensor, torch.clone, found) if buffers else found
            finally:  # restore at once: TVM's module shares these buffers as constants
                for buffer, value in zip(buffers, before):
                    buffer.copy_(value)

    return call


def _named(names: Sequence[str]) -> str:
    more = [f"and {len(names) - MAX_NAMED_BUFFERS} more"] if len(names) > MAX_NAMED_BUFFERS else []
    return ", ".join([*names[:MAX_NAMED_BUFFERS], *more])
