"""Import of torch.export programs into Relax, and their eager run in PyTorch."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree
from tvm import relax

from wmsched.base import pytree
from wmsched.base.errors import WmschedError
from wmsched.relax.importers import torch_state
from wmsched.relax.importers.aten.importer import imported
from wmsched.relax.importers.model import Model, sample
from wmsched.relax.importers.shapes import Shapes, declared_inputs, fix_shapes, importing, short
from wmsched.relax.importers.torch_rewrites import normalize
from wmsched.relax.passes.accumulate_fp32 import wide_sums
from wmsched.relax.passes.fold_constants import fold
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
    return Imported(name, program, states).model(shapes)


class Imported:
    """A torch.export program in Relax, imported once for all its shapes, which share its weights.

    Parameters
    ----------
    states : sequence of str
        As for `load.load`.

    Raises
    ------
    WmschedError
        It cannot be imported.
    """

    def __init__(self, name: str, program: Any, states: Sequence[str] = ()) -> None:
        self.name, self.program, self.states = name, program, states
        with importing(name, "torch.export programs"):
            self.written = normalize(program)
            self.buffers = torch_state.lifted(self.written)
            # weights that it transposes are transposed once for all shapes
            folded = fold(cut_apart(wide_sums(imported(self.written))))
            self.module = relax.transform.CanonicalizeBindings()(folded)  # no constant keeps a name
        self.declared = declared_inputs(name, self.module)
        self.values = dict(program.named_buffers()) if self.buffers else {}
        held = [*program.state_dict.values(), *program.constants.values()]
        given, _ = _pytree.tree_flatten(program.example_inputs or ((), {}))
        self.elsewhere = any(isinstance(one, torch.Tensor) and one.is_cuda for one in [*held, *given])
        here = program
        if self.elsewhere:  # `eager` runs on the CPU
            from torch.export.passes import move_to_device_pass

            here = move_to_device_pass(program, "cpu")
        self.here = here.module()

    def model(self, shapes: Shapes) -> Model:
        """Return the program with numbers for its open extents.

        Raises
        ------
        WmschedError
            A shape is unknown, or its example inputs do not fit it.
        """
        program, name = self.program, self.name
        module, fixed = fix_shapes(name, self.module.clone(), self.declared, shapes)
        module, states = self._with_states(module)
        held = {buffer.label: self.values[buffer.name] for buffer in self.buffers}
        given = {label: shape for label, shape in fixed.items() if label not in held}
        leaves, spec = _pytree.tree_flatten(program.example_inputs or ((), {}))
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        if len(places) != len(given):
            raise WmschedError(
                f"{name}: it takes {len(given)} tensors and comes with {len(places)} example inputs; export "
                "it again with torch.export.export(model, example_inputs)"
            )
        inputs: dict[str, Any] = {
            label: value.detach().cpu().clone(memory_format=torch.contiguous_format)
            for label, value in held.items()  # copies: a library may write into them
        }
        for place, (label, shape) in zip(places, given.items()):
            example = leaves[place]
            kept = tuple(example.shape) == shape
            # a copy: a view's first byte may be misaligned for TVM
            copied = example.detach().clone(memory_format=torch.contiguous_format)
            leaves[place] = copied.cpu() if kept else sample(shape, str(example.dtype)[6:])
            inputs[label] = leaves[place]  # TVM moves them to its target's device
        arguments, options = _pytree.tree_unflatten(leaves, spec)

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
            eager=torch_state.repeatable(self.written, self.here, arguments, options, self.buffers),
            on_gpu=on_gpu,
            returns=pytree.structure(program),
            notes=torch_state.notes(self.written),
            of_gpu=self.elsewhere,
            states=states,
        )

    def _with_states(self, module: Any) -> tuple[Any, tuple[State, ...]]:
        """Return the module with its states: buffers that the program mutates, and pairs as asked for."""
        signature = self.written.graph_signature
        outputs = [spec.arg.name for spec in signature.output_specs if spec.kind in torch_state.USERS]
        mutated = [buffer.pair for buffer in self.buffers]
        taken = {pair.output for pair in mutated}
        own = [place for place in range(len(outputs)) if place not in taken]  # what the module returns
        names = [outputs[place] for place in own]
        named = pairs_of(self.name, list(signature.user_inputs), names, self.states)
        more = [Pair(one.input, own[one.output]) for one in named]
        module, states = declared(self.name, module, [*mutated, *more])
        buffers = {buffer.label: buffer.name for buffer in self.buffers}
        return module, tuple(
            replace(one, name=buffers[one.name], start=_start(self.values[buffers[one.name]]))
            if one.name in buffers
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
