"""Import of torch.export programs into Relax, and their eager run in PyTorch."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

from wmsched.base import pytree
from wmsched.base.errors import WmschedError
from wmsched.relax.importers import torch_state
from wmsched.relax.importers.aten.importer import imported
from wmsched.relax.importers.model import Model, sample
from wmsched.relax.importers.shapes import Shapes, declared_inputs, fix_shapes, importing, short
from wmsched.relax.importers.torch_rewrites import normalize
from wmsched.relax.passes.accumulate_fp32 import wide_sums
from wmsched.relax.passes.split_to_slices import cut_apart
from wmsched.relax.state.declare import declared
from wmsched.relax.state.pairs import Pair, State, pairs_of


def read(name: str, shapes: Shapes, states: Sequence[str] = ()) -> Model:
    """Import the model of a ``.pt2`` file; see `load.load`."""
    return of_program(name, program_of(name), shapes, states)


def program_of(name: str) -> Any:
    """Read a ``.pt2`` file's program.

    Raises
    ------
    WmschedError
        It cannot be read, or a type in it is not installed.
    """
    try:
        pytree.import_types(pytree.types_in(Path(name)))
        return torch.export.load(name)
    except WmschedError as error:
        raise WmschedError(f"{name}: {error}") from error
    except Exception as error:  # unpickling a foreign file may raise anything
        raise WmschedError(
            f"{name}: torch {torch.__version__} cannot load it ({short(error)}): a .pt2 file is what "
            "torch.export.save(torch.export.export(model, inputs), FILE) of this version or an earlier one "
            "wrote"
        ) from error


def of_program(name: str, program: Any, shapes: Shapes, states: Sequence[str] = ()) -> Model:
    """Import a torch.export program, with its example's inputs.

    Raises
    ------
    WmschedError
        It cannot be imported, a shape is unknown, or its example inputs do not fit it.
    """
    with importing(name, "torch.export programs"):
        written = normalize(program)
        buffers = torch_state.lifted(written)
        module = cut_apart(wide_sums(imported(written)))
    takes = declared_inputs(name, module)
    module, fixed = fix_shapes(name, module, takes, shapes)
    values = dict(program.named_buffers()) if buffers else {}
    module, held_states = _with_states(name, module, written, buffers, values, states)
    held = [*program.state_dict.values(), *program.constants.values()]
    leaves, spec = _pytree.tree_flatten(program.example_inputs or ((), {}))
    elsewhere = any(isinstance(one, torch.Tensor) and one.is_cuda for one in [*held, *leaves])
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    held_here = {buffer.label: buffer.name for buffer in buffers}
    wanted = len(fixed) - len(held_here)
    if len(places) != wanted:
        raise WmschedError(
            f"{name}: it takes {wanted} tensors and comes with {len(places)} example inputs; export it "
            "again with torch.export.export(model, example_inputs)"
        )
    inputs: dict[str, Any] = {}
    for label in held_here:  # copies: a library may write into them
        value = values[held_here[label]]
        inputs[label] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
    for place, (label, shape) in zip(places, ((k, v) for k, v in fixed.items() if k not in held_here)):
        example = leaves[place]
        kept = tuple(example.shape) == shape
        # a copy: a view's first byte may be misaligned for TVM
        copied = example.detach().clone(memory_format=torch.contiguous_format)
        leaves[place] = copied.cpu() if kept else sample(shape, str(example.dtype)[6:])
        inputs[label] = leaves[place]  # TVM moves them to its target's device
    arguments, options = _pytree.tree_unflatten(leaves, spec)
    here = program
    if elsewhere:  # `eager` runs on the CPU
        from torch.export.passes import move_to_device_pass

        here = move_to_device_pass(program, "cpu")

    def on_gpu() -> Callable[[], Any]:
        from torch.export.passes import move_to_device_pass

        moved = move_to_device_pass(program, "cuda").module()
        there = _pytree.tree_map_only(torch.Tensor, lambda data: data.cuda(), (arguments, options))

        def call() -> Any:
            with torch.inference_mode():
                found = moved(*there[0], **there[1])
            torch.cuda.synchronize()
            return found

        return call

    return Model(
        name=name,
        module=module,
        inputs={label: inputs[label] for label in fixed},
        eager=torch_state.repeatable(written, here.module(), arguments, options, buffers),
        on_gpu=on_gpu,
        returns=pytree.structure(program),
        notes=torch_state.notes(written),
        of_gpu=elsewhere,
        states=held_states,
    )


def _with_states(
    name: str,
    module: Any,
    program: Any,
    buffers: Sequence[torch_state.Buffer],
    values: Mapping[str, Any],
    asked: Sequence[str],
) -> tuple[Any, tuple[State, ...]]:
    """Return the module with its states declared: buffers that it mutates, and pairs that are asked for."""
    signature = program.graph_signature
    inputs = list(signature.user_inputs)
    outputs = [spec.arg.name for spec in signature.output_specs if spec.kind in torch_state.USERS]
    mutated = [buffer.pair for buffer in buffers]
    taken = {pair.output for pair in mutated}
    own = [place for place in range(len(outputs)) if place not in taken]  # what the module returns
    named = pairs_of(name, inputs, [outputs[place] for place in own], asked)
    more = [Pair(one.input, own[one.output]) for one in named]
    module, states = declared(name, module, [*mutated, *more])
    names = {buffer.label: buffer.name for buffer in buffers}
    return module, tuple(
        replace(one, name=names[one.name], start=_start(values[names[one.name]]))
        if one.name in names
        else one
        for one in states
    )


def _start(value: Any) -> Any:
    """Return a copy of a buffer; None of zeros."""
    return value.detach().cpu().clone() if value.count_nonzero() else None


def storable(program: Any) -> Any:
    """Return the program with flat tuples for inputs or outputs whose type PyTorch cannot serialize.

    Such a type is a `typing.NamedTuple`, or a dataclass registered without a ``serialized_type_name``.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Not changed.
    """
    from torch.utils import _pytree

    entry, *inner = program.module_call_graph
    taken, returned = entry.signature.in_spec, entry.signature.out_spec
    changed: dict[str, Any] = {}
    if not pytree.written(taken):
        flat = _pytree.tree_structure(((0,) * taken.num_leaves, {}))
        changed |= {"in_spec": flat, "forward_arg_names": None}
    if not pytree.written(returned):
        changed["out_spec"] = _pytree.tree_structure((0,) * returned.num_leaves)
    if not changed:
        return program
    found = copy.copy(program)
    signature = dataclasses.replace(entry.signature, **changed)
    found._module_call_graph = [dataclasses.replace(entry, signature=signature), *inner]
    if "in_spec" in changed and program.example_inputs is not None:
        found.example_inputs = (tuple(_pytree.tree_leaves(program.example_inputs)), {})
    return found
