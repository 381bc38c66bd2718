"""``wmsched graph``: train, evaluate and use TGraph. Imports nothing heavy until a command runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from wmsched.graph.config import Settings

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Rank the configurations of whole graphs: TGraph, on TpuGraphs' npz files.",
)

DEVICE = typer.Option(help="cpu or cuda; default: cuda where there is one.", show_default=False)
BUNDLE = typer.Argument(help="Folder that `wmsched graph train` wrote.")


@app.command()
def train(
    data: Annotated[Path, typer.Option(help="Folder of a collection, with train and valid in it.")],
    out: Annotated[Path, typer.Option(help="Folder of the bundle; checkpoints are in OUT.training.")],
    collection: Annotated[
        str,
        typer.Option(
            help="Whose settings: xla-random, xla-default, nlp-random, nlp-default or tile-xla; "
            "for own data the most alike."
        ),
    ] = "xla-default",
    reading: Annotated[
        str, typer.Option(help="paper; or code, where the published code does otherwise.")
    ] = "paper",
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PART.NAME=VALUE",
            help="Another setting, such as network.edges=none; repeatable.",
        ),
    ] = None,
    device: Annotated[str | None, DEVICE] = None,
) -> None:
    """Train an ensemble; the same command again goes on where it was stopped."""
    from wmsched.base.errors import BundleError
    from wmsched.base.files import locked
    from wmsched.graph.ensemble import is_bundle

    settings = _settings(collection, reading, option or [])
    where = _device(device)
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not is_bundle(out)):
        raise typer.BadParameter(
            f"{out} is there and no graph bundle: name another folder", param_hint="--out"
        )
    folder = out.with_name(f"{out.name}.training")
    with locked(folder / "lock", whose=out, option="--out", error=BundleError):
        _train(settings, data, out, folder, where, {"collection": collection, "reading": reading})


def _train(
    settings: Settings, data: Path, out: Path, folder: Path, device: str, record: dict[str, Any]
) -> None:
    from wmsched.graph.collection import load_split
    from wmsched.graph.train import plan_members, train_ensemble

    t = settings.training
    graphs = load_split(data, "train", settings.preparation, for_training=True)
    has_valid = (data / "valid").is_dir()
    valid = (
        load_split(data, "valid", settings.preparation, for_training=t.members == "folds")
        if has_valid
        else []
    )
    settings = _with_columns(settings, graphs[0].configs.shape[-1] if graphs[0].kind == "layout" else None)
    members = plan_members(graphs, valid, t)
    print(f"{len(graphs) + len(valid)} graphs, {len(members)} networks, on {device}", flush=True)
    try:
        ranker = train_ensemble(members, settings, folder=folder, device=device, log=_print_line)
    except KeyboardInterrupt:
        print("wmsched: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        raise typer.Exit(130) from None
    ranker.record |= record
    ranker.save(out)
    score, deviation = ranker.record["score"], ranker.record["score_deviation"]
    if score is not None:
        metric = "M_tile" if settings.network.kind == "tile" else "tau"
        print(
            f"held-out {metric} of the {len(ranker.networks)} networks kept: {score:.4f} +- {deviation:.4f}"
        )
    print(f"the bundle is in {out}")


@app.command("eval")
def evaluate(
    bundle: Annotated[Path, BUNDLE],
    data: Annotated[Path, typer.Option(help="Folder of a collection.")],
    split: Annotated[str, typer.Option(help="valid, train or test; all: the folder's own files.")] = "valid",
    indices: Annotated[
        Path | None,
        typer.Option(
            help="JSON file of fixed configuration numbers for each graph, as the official evaluation has."
        ),
    ] = None,
    permutations: Annotated[
        int | None, typer.Option(min=1, help="Orders whose scores are averaged; default: the bundle's.")
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=1, help="Configurations scored together; default: the bundle's.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Write rows and means.")] = None,
    device: Annotated[str | None, DEVICE] = None,
) -> None:
    """Score a split and say how well its configurations are ranked."""
    from wmsched.base.files import atomic_open
    from wmsched.graph.collection import graph_files, read_indices, select_indices
    from wmsched.graph.ensemble import GraphRanker
    from wmsched.graph.evaluate import evaluate_graphs, summarize
    from wmsched.graph.tpugraphs import read_graph

    ranker = GraphRanker.load(bundle).with_inference(context=context, permutations=permutations)
    ranker.to(_device(device))
    graphs = (read_graph(path) for path in graph_files(data, split))
    chosen = graphs if indices is None else select_indices(graphs, read_indices(indices))
    rows = evaluate_graphs(ranker, chosen, on_graph=_print_line)
    table = summarize(rows)
    for name, row in table.items():
        interval = f"{row['low']:.4f} to {row['high']:.4f}"
        print(f"{name:<14} {row['mean']:8.4f}  ({interval}; {row['graphs']:.0f} graphs)")
    if out is not None:
        finite = [{key: None if value != value else value for key, value in row.items()} for row in rows]
        with atomic_open(out) as file:
            file.write(json.dumps({"graphs": finite, "means": table}, indent=1).encode() + b"\n")


@app.command()
def score(
    bundle: Annotated[Path, BUNDLE],
    graph: Annotated[Path, typer.Argument(help="An npz file whose configurations are to be ranked.")],
    top: Annotated[int, typer.Option(min=1, help="How many to print.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Write config, score, rank of all as JSON lines.")] = None,
    device: Annotated[str | None, DEVICE] = None,
) -> None:
    """Rank the configurations of one graph, the fastest first; a low score is fast."""
    import numpy as np

    from wmsched.base.files import atomic_open
    from wmsched.graph.ensemble import GraphRanker
    from wmsched.graph.tpugraphs import read_graph

    scores = GraphRanker.load(bundle).to(_device(device)).score(read_graph(graph))
    order = np.argsort(scores, kind="stable")
    for rank, config in enumerate(order[:top], start=1):
        print(f"{rank:4} config {config:6} score {scores[config]:.4f}")
    if out is not None:
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(1, len(order) + 1)
        with atomic_open(out) as file:
            for config, value in enumerate(scores):
                line = {"config": config, "score": float(value), "rank": int(ranks[config])}
                file.write(json.dumps(line).encode() + b"\n")


def _settings(collection: str, reading: str, options: list[str]) -> Settings:
    from wmsched.graph.config import COLLECTIONS, READINGS, settings_for

    for hint, value, known in (("--collection", collection, COLLECTIONS), ("--reading", reading, READINGS)):
        if value not in known:
            raise typer.BadParameter(f"{value!r} is none of {', '.join(known)}", param_hint=hint)
    try:
        return settings_for(collection, reading=reading).with_options(options)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--set") from error


def _with_columns(settings: Settings, groups: int | None) -> Settings:
    """Settings with the width of the configurations that the files have, six columns a group."""
    from dataclasses import replace

    if groups is None:
        return settings
    return replace(settings, network=replace(settings.network, config_columns=6 * groups))


def _device(name: str | None) -> str:
    """The device to run on.

    Raises
    ------
    BadParameter
        It is neither cpu nor cuda, or there is no GPU.
    """
    import torch

    if name not in (None, "cpu", "cuda"):
        raise typer.BadParameter(f"{name!r} is neither cpu nor cuda", param_hint="--device")
    if name == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("PyTorch finds no GPU; leave --device out", param_hint="--device")
    return name or ("cuda" if torch.cuda.is_available() else "cpu")


def _print_line(line: dict[str, Any]) -> None:
    parts = (
        f"{key} {value:.4f}" if isinstance(value, float) else f"{key} {value}" for key, value in line.items()
    )
    print(", ".join(parts), flush=True)
