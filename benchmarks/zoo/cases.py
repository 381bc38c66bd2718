"""Verdict on an architecture: right, refused, unnamed, wrong, not exportable, or without a small model."""

from __future__ import annotations

import functools
import gc
import warnings
from types import ModuleType
from typing import Any

import torch

from benchmarks.operators import torch_cases
from benchmarks.zoo import timm_models, torchvision_models, transformers_models
from benchmarks.zoo.inputs import is_of_words
from benchmarks.zoo.model import Example, NoModel

LIBRARIES: dict[str, ModuleType] = {
    "transformers": transformers_models,
    "timm": timm_models,
    "torchvision": torchvision_models,
}
#: Of the largest value of a result: whole models add up more than an operator does.
RELATIVE = 1e-3
LEAST = 1e-6  # largest value below which a result is 0
FAR = 1e10  # from which on a value is of a mask
DRAWS = 4  # of weights and inputs, until results do not hang on the last bits of weights
TOUCH = 1e-6  # share by which weights differ in their last bits
HANGS = "hangs on data"  # in what a refusal says of sizes
UNSTEADY = "; they hang on the last bits of the weights"


@functools.cache
def cases() -> dict[str, str]:
    """Return the library of each architecture, by its name with the library's before it."""
    there = ("transformers", "timm", "torchvision") if timm_models.is_there() else ("transformers",)
    return {f"{library}/{name}": library for library in there for name in LIBRARIES[library].kinds()}


def about(name: str, who: str) -> dict[str, Any]:
    """Return the line of a case without its verdict; `of` is the number of its library's architectures."""
    library = cases()[name]
    count = sum(each == library for each in cases().values())
    return {"kind": "zoo_case", "case": name, "who": who, "library": library, "of": count}


def judge(name: str, who: str) -> dict[str, Any]:
    """Return the line of a case: its verdict and why, what was exported and with which inputs.

    Where sizes hang on an image or a sound, words alone are judged; `whole` says what came of all inputs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        line = _steady(name, who)
        if _is_open(line):
            alone = _steady(name, who, words=True)
            if alone["verdict"] == "right":
                return alone | {"whole": f"{line['verdict']}: {line['reason']}"}
    return line


def _is_open(line: dict[str, Any]) -> bool:
    """Return whether sizes of a model of words and more hang on data, so that words alone are its inputs."""
    hangs = line["verdict"] == "not exportable" or HANGS in line["reason"]
    given = line.get("inputs", ())
    return hangs and "input_ids" in given and not all(map(is_of_words, given))


def _steady(name: str, who: str, **options: bool) -> dict[str, Any]:
    """Return the line of a case whose results do not hang on the last bits of weights, if a draw has such."""
    for draw in range(DRAWS):
        line = _drawn(name, who, draw, options)
        torch._dynamo.reset()
        gc.collect()
        if not line["reason"].endswith(UNSTEADY):
            break
    return line


def _drawn(name: str, who: str, draw: int, options: dict[str, bool]) -> dict[str, Any]:
    """Return the line of a case with one draw of weights and inputs."""
    library, line = LIBRARIES[name.split("/")[0]], about(name, who)
    try:
        made: Example = library.example(name.split("/")[1], draw, **options)
    except NoModel as error:
        return line | {"verdict": "no small model", "reason": torch_cases.short(error)}
    line |= {
        "model": made.name or name.split("/")[1],
        "inputs": sorted(made.inputs),
        "parameters": sum(one.numel() for one in made.model.parameters()),
    }
    verdict, reason = _verdict(name, library, made, who)
    return line | {"verdict": verdict, "reason": reason}


def _verdict(name: str, library: ModuleType, made: Example, who: str) -> tuple[str, str]:
    try:
        with torch.no_grad():
            program = library.exported(made)
            arguments, options = program.example_inputs
            wanted = torch_cases.tensors_of(program.module()(*arguments, **options))
    except Exception as error:  # whatever torch.export says of code that it does not trace
        return "not exportable", torch_cases.short(error)
    verdict, reason = torch_cases.outcome(name, who, program, wanted, set(), apart)
    return verdict, reason + ("" if verdict != "wrong" or is_steady(program, wanted) else UNSTEADY)


def is_steady(program: Any, wanted: list[torch.Tensor]) -> bool:
    """Return whether PyTorch's own results stay when the last bits of a program's weights change.

    Those of a model that takes the best of close scores do not: another order of additions takes others.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Its weights are changed.
    wanted : list of torch.Tensor
        PyTorch's results.
    """
    before = [one.clone() for one in wanted]
    generator = torch.Generator().manual_seed(0)
    module, (arguments, options) = program.module(), program.example_inputs
    with torch.no_grad():
        for one in module.parameters():
            if one.is_floating_point():
                one.mul_(1 + TOUCH * torch.randn(one.shape, generator=generator))
        return not apart(torch_cases.tensors_of(module(*arguments, **options)), before)


def apart(found: Any, wanted: Any) -> str:
    """Say how results differ from PyTorch's; "" where they do not."""
    if why := torch_cases.apart(found, wanted, values=False):
        return why
    for one, other in zip(found, wanted):
        one, other = one.detach().double(), other.detach().double()
        usual = other.isfinite()
        if not torch.equal(one.isfinite(), usual) or not torch.equal(
            torch.nan_to_num(one[~usual]), torch.nan_to_num(other[~usual])
        ):
            return f"other values are not finite, of shape {list(one.shape)}"
        one, other = one[usual], other[usual]
        if not one.numel():
            continue
        sizes = other.abs()  # those of a mask say nothing of the others
        largest = torch.where(sizes < FAR, sizes, 0).max()
        share = float(((one - other).abs() / torch.maximum(sizes, largest.clamp(min=LEAST))).max())
        if share > RELATIVE:
            return f"values differ by {share:.1e} of the largest, of {one.numel()}"
    return ""
