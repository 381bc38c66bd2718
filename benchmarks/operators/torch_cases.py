"""PyTorch's operator samples, and the verdict on one: right, refused, unnamed, wrong.

The torch wheel ships them (`op_db`). A case is the first sample of an operator that has a tensor.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from wmsched.base.errors import WmschedError

WHO = ("ours", "stock")
RELATIVE, ABSOLUTE = 1e-3, 1e-5
#: Of these PyTorch promises the shape and the type of the result, and no values.
UNSET = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
MAX_SAMPLES = 32  # that are looked at for one with a tensor
TARGET = {"kind": "llvm", "opt-level": 0}  # quickest to compile
Call = Callable[[], Sequence[Any]]


@functools.cache
def cases() -> dict[str, Any]:
    """Return all operators by name, with their variant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    return {info.full_name: info for info in op_db}


class Sampled(torch.nn.Module):
    """Operator as a model of a sample's tensors; what else the sample has is part of the model."""

    def __init__(self, function: Callable[..., Any], given: Any) -> None:
        super().__init__()
        self.function = function
        self.leaves, self.spec = _pytree.tree_flatten(given)
        self.places = [k for k, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Return the sample's tensors."""
        return tuple(self.leaves[k].detach() for k in self.places)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return the operator's result."""
        leaves = list(self.leaves)
        for k, tensor in zip(self.places, tensors):
            leaves[k] = tensor
        data, positional, named = _pytree.tree_unflatten(leaves, self.spec)
        return self.function(data, *positional, **named)


def sampled(info: Any) -> Sampled | None:
    """Return the first sample that has a tensor, in float32 where the operator takes it."""
    torch.manual_seed(0)
    kinds = [torch.float32, *sorted(info.dtypes, key=str)]
    kind = next((kind for kind in kinds if kind in info.dtypes), None)
    if kind is None:  # it has no form for processors
        return None
    for number, sample in enumerate(info.sample_inputs("cpu", kind, requires_grad=False)):
        model = Sampled(info.op, (sample.input, tuple(sample.args), dict(sample.kwargs)))
        if model.places:
            return model.eval()
        if number >= MAX_SAMPLES:
            break
    return None


def about(name: str, who: str) -> dict[str, Any]:
    """Return the line of a case without its verdict."""
    return {"kind": "torch_case", "case": name, "who": who, "operator": cases()[name].name}


def judge(name: str, who: str) -> dict[str, Any]:
    """Return the line of a case: its verdict and why."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict, reason = _verdict(name, who)
    return about(name, who) | {"verdict": verdict, "reason": reason}


def _verdict(name: str, who: str) -> tuple[str, str]:
    info = cases()[name]
    model = sampled(info)
    if model is None:
        return "no tensor", ""
    try:
        with torch.no_grad():
            program = torch.export.export(model, model.tensors())
            wanted = tensors_of(model(*model.tensors()))
    except Exception as error:  # whatever torch.export says of code that it does not trace
        return "not exportable", short(error)
    compared = functools.partial(apart, values=info.name not in UNSET)
    return outcome(name, who, program, wanted, {info.name}, compared)


def outcome(
    name: str,
    who: str,
    program: Any,
    wanted: Sequence[torch.Tensor],
    names: set[str],
    compared: Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], str],
) -> tuple[str, str]:
    """Return the verdict on an exported program, and why.

    Parameters
    ----------
    name, who : str
        Of the program and of its importer.
    program : torch.export.ExportedProgram
    wanted : sequence of torch.Tensor
        PyTorch's results.
    names : set of str
        Names that a refusal may give, beside those of the program's operators.
    compared : callable (found, wanted) -> str
        How results differ; "" where they do not.
    """
    try:
        found = RUNNERS[who](name, program)()
    except Exception as error:  # whatever an importer raises of what it does not take
        said = short(error).removeprefix(f"{name}: ")
        if who != "ours" or (isinstance(error, WmschedError) and is_named(said, names)):
            return "refused", said
        named = isinstance(error, WmschedError) and is_named(said, operators_of(program))  # it takes seconds
        return "refused" if named else "unnamed", said
    why = compared(found, wanted)
    return ("wrong", why) if why else ("right", "")


def tensors_of(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def operators_of(program: Any) -> set[str]:
    """Return the names of a program's ATen operators, before and after decomposition."""
    found: set[str] = set()
    for each in (lambda: program, program.run_decompositions):
        try:
            nodes = each().graph.nodes
        except Exception:  # of bodies of sparse or quantized tensors; no common base
            continue
        targets = [node.target for node in nodes if node.op == "call_function"]
        found.update(getattr(target, "_opname", getattr(target, "__name__", "")) for target in targets)
    return found


def is_named(said: str, operators: Iterable[str]) -> bool:
    """Return whether a message begins with an operator's full name, or names one of a program's as a word."""
    if re.match(r"(aten|prims|torch_nn|torchvision)\.\w+", said):
        return True
    words = {word for operator in operators for word in (operator, operator.split(".")[-1]) if word}
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", said) for word in words)


def apart(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], *, values: bool = True) -> str:
    """Say how results differ from PyTorch's; "" where they do not."""
    if len(found) != len(wanted):
        return f"{len(found)} results for {len(wanted)}"
    for one, other in zip(found, wanted):
        if one.dtype != other.dtype:
            return f"type {one.dtype} for {other.dtype}"
        if one.shape != other.shape:
            return f"shape {list(one.shape)} for {list(other.shape)}"
        if values and not torch.allclose(
            *(_wide(each) for each in (one, other)), rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True
        ):
            return f"values differ, of shape {list(one.shape)}"
    return ""


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    return dense.to(torch.complex128 if dense.is_complex() else torch.float64)


def short(error: Exception) -> str:
    """Return an error's first and last words."""
    said = " ".join(str(error).split())
    said = said if isinstance(error, WmschedError) else f"{type(error).__name__}: {said}"
    return said if len(said) <= 200 else f"{said[:120]} ... {said[-75:]}"


def _ours(name: str, program: Any) -> Call:
    """The way of a user's ``.pt2`` file, without tuning."""
    import tvm
    from tvm import relax

    from wmsched.relax.importers.shapes import importing
    from wmsched.relax.importers.torch_export import of_program
    from wmsched.relax.passes import pipeline

    target = tvm.target.Target(TARGET)
    model = of_program(name, program, {})
    with importing(name, "torch.export programs"):
        executable = pipeline.compile_module(pipeline.prepare(model.module, target), target)
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]
    kept = {state.output for state in model.states}  # for the next call

    def call() -> list[Any]:
        found = _tensors(main(*[tvm.runtime.tensor(one.numpy()) for one in model.inputs.values()]))
        return [one for place, one in enumerate(found) if place not in kept]

    return call


def _stock(_: str, program: Any) -> Call:
    """TVM's importer and default build, as its documentation has it."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    module = relax.transform.LegalizeOps()(from_exported_program(program))
    main = relax.VirtualMachine(relax.build(module, tvm.target.Target(TARGET)), tvm.cpu())["main"]
    leaves = _pytree.tree_leaves(program.example_inputs)
    given = [leaf.contiguous() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return lambda: _tensors(main(*[tvm.runtime.tensor(one.numpy()) for one in given]))


def _tensors(value: Any) -> list[torch.Tensor]:
    from wmsched.relax.importers.model import tensors

    return list(tensors(value))


RUNNERS: dict[str, Callable[[str, Any], Call]] = {"ours": _ours, "stock": _stock}
