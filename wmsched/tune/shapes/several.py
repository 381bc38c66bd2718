"""Folder and result of a model with several shapes: what both a search and a construction leave."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmsched import __version__
from wmsched.base.cores import unbound
from wmsched.base.errors import WmschedError
from wmsched.relax.importers.model import Model, tensors
from wmsched.tune import folder as tuned_folder
from wmsched.tune.latency import library_call, tolerance
from wmsched.tune.run import Run
from wmsched.tune.shapes.choices import label_of
from wmsched.tune.shapes.padding import Compiled, padding_of, unpadded

if TYPE_CHECKING:  # it imports TVM
    from wmsched.tune.finish import Tuned

__all__ = ["SHAPES", "Part", "Shaped", "labels", "owner", "parts_of", "run_of", "write"]

SHAPES = "shapes"  # folder of the shapes' folders


@dataclass(kw_only=True)
class Part:
    """One shape of a model: where its files are, and what there is to say of it (``model.json``)."""

    label: str
    folder: Path
    model: Model
    about: dict[str, Any]
    prepared: Any = None
    untuned: Any = None
    tasks: list[Any] = field(default_factory=list)
    settings: Mapping[str, bool] = field(default_factory=dict)
    found: Tuned | None = None


@dataclass(frozen=True, kw_only=True)
class Shaped:
    """What a run of several shapes came to.

    Parameters
    ----------
    out : Path
    parts : dict of str to Tuned
        By the shape's label, that with most elements first.
    padding : list of dict
        As `wmsched.tune.shapes.padding.padding_of` returns it.
    searched : float
        Seconds of all searches for the folder.
    """

    out: Path
    parts: dict[str, Tuned]
    padding: list[dict[str, Any]]
    searched: float = 0.0


def labels(inputs: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return a different label for each shape, of as few inputs as tell them apart."""
    names: list[str] = []
    found = [label_of(one, names) for one in inputs]
    for specs in zip(*inputs):
        if len(set(found)) == len(found):
            return found
        if len({tuple(spec["shape"]) for spec in specs}) > 1:
            names.append(specs[0]["name"])
            found = [label_of(one, names) for one in inputs]
    # long names are cut
    return found if len(set(found)) == len(found) else [f"{k}-{one}" for k, one in enumerate(found)]


def parts_of(out: Path, models: Sequence[Model], described: Sequence[dict[str, Any]]) -> list[Part]:
    """Return the parts of a model, with their folders made; what a killed run left in them is removed."""
    names = labels([about["inputs"] for about in described])
    parts = []
    for label, model, about in zip(names, models, described, strict=True):
        folder = out / SHAPES / label
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".build-*"):
            shutil.rmtree(left, ignore_errors=True)
        parts.append(Part(label=label, folder=folder, model=model, about=about))
    return parts


def owner(out: Path, described: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the ``model.json`` of a folder says of all shapes.

    A folder stays this model's where one of its shapes is among these: shapes may be added and left out.
    """
    first = described[0]
    refuse_unlike(first, described)
    hashes = {about["hash"] for about in described}
    try:
        held = json.loads((out / tuned_folder.ABOUT).read_text(encoding="utf-8"))
        known = {one["hash"] for one in held["shapes"]}
        whole = held["hash"] if known & hashes else ""
    except (OSError, ValueError, KeyError, TypeError):
        whole = ""
    whole = whole or hashlib.sha256("".join(sorted(hashes)).encode()).hexdigest()
    names = labels([about["inputs"] for about in described])
    return first | {
        "hash": whole,
        "shapes": [
            {"folder": f"{SHAPES}/{label}", "inputs": about["inputs"], "hash": about["hash"]}
            for label, about in zip(names, described, strict=True)
        ],
    }


def refuse_unlike(first: Mapping[str, Any], described: Sequence[Mapping[str, Any]]) -> None:
    """Raise WmschedError where shapes of a model cannot share its states."""
    wanted = [(one["name"], one["shape"]) for one in first.get("states", ())]
    for about in described:
        found = [(one["name"], one["shape"]) for one in about.get("states", ())]
        for (name, shape), other in zip(wanted, found):
            if (name, shape) != other:
                raise WmschedError(
                    f"{first['model']}: its state {name} is {shape} in one --shape and {other[1]} in "
                    "another, and shapes share them: give each state one shape, or --state none"
                )


def run_of(run: Run, part: Part) -> Run:
    """Return the run over one of its parts."""
    return replace(
        run,
        options=replace(run.options, out=part.folder),
        model=part.model,
        settings=part.settings or run.settings,
        records=run.options.out,
    )


def write(
    run: Run, about: Mapping[str, Any], parts: Sequence[Part], tell: Callable[[str], None], searched: float
) -> Shaped:
    """Try which extents may be padded, and write the ``model.json`` and the report of all shapes."""
    out = run.options.out
    if run.model.states:
        padding = unpadded(
            [part.about["inputs"] for part in parts], "a call would write its padding into the states"
        )
    else:
        tell("trying which extents may be padded")
        padding = padding_of([_compiled(run, part) for part in parts])
    found = {part.label: part.found for part in parts if part.found is not None}
    searched += tuned_folder.searched_before(out)
    first = next(iter(found.values()))
    tuned_folder.describe(out, {**about, "padding": padding})
    tuned_folder.write_json(
        out / tuned_folder.REPORT,
        {
            "model": run.model.name,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "target": run.target.text,
            "threads": first.threads,
            "versions": {"wmsched": __version__},
            "search_seconds": round(searched, 1),
            "shapes": {
                label: {
                    "folder": f"{SHAPES}/{label}",
                    "seconds": one.seconds,
                    "build": one.kept,
                    "trials": sum(task.trials for task in one.tasks),
                    "functions": len(one.tasks),
                }
                for label, one in found.items()
            },
        },
    )
    return Shaped(out=out, parts=found, padding=padding, searched=searched)


def _compiled(run: Run, part: Part) -> Compiled:
    """Return a part's library, with a call of it that keeps nothing else."""
    import torch

    inputs = list(part.model.inputs.values())
    own = library_call(part.folder / tuned_folder.LIBRARY, run.target.tvm, inputs)

    def call(values: list[Any]) -> list[Any]:
        with unbound():
            output = own([value.contiguous() for value in values])
        return [torch.clone(one) for one in tensors(output)]

    with torch.inference_mode():
        first = call(inputs)
    allowed = tolerance([*inputs, *first], part.model.module)
    return Compiled(inputs=part.model.inputs, call=call, tolerance=allowed)
