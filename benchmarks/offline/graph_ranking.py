"""`python -m benchmarks.offline.graph_ranking --out FILE`: how well configurations of graphs are ranked.

The graphs are those of `wmsched-data graphs` in benchmarks/results/graphs. In each fold whole families of
architectures are held out. Every method scores the configurations of the held-out graphs: kind
"graph_ranking", a line for each graph, method and seed, with tau and the share of the best known speed that
the best of the first one and five configurations has. FILE is gone on with; what it has is not trained again.

`--print` prints the table of FILE, and `--into PAGE` writes it into a page.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from benchmarks import machine
from benchmarks.offline.graph_data import Labelled, folds_of, prepared, read
from benchmarks.outcomes.marks import Marks
from benchmarks.outcomes.tables import Table
from benchmarks.plan import Results, read_all
from wmsched.graph.metrics import best_of, kendall_tau

KIND, REPEAT, TGRAPH = "graph_ranking", "graph_repeat", "tgraph"
DATA = Path("benchmarks/results/graphs")
FOLDS, SEEDS, FIVE, RESAMPLES = 3, 3, 5, 2000
MARKS = Marks("<!-- graph ranking begins -->", "<!-- graph ranking ends -->")
#: What TGraph is trained with; the paper's width is 256, for far more labels and on a GPU.
OPTIONS = (
    "network.config_columns=24",
    "network.opcode_rows=192",
    "network.width=32",
    "training.epochs=30",
    "inference.permutations=1",
)
ABLATIONS = {
    "tgraph": (),
    "tgraph without channel attention": ("network.channel_attention=false",),
    "tgraph without cross attention": ("network.cross_attention=false",),
    "tgraph without edges": ("network.edges=none",),
}
COSTS = "tgraph with costs"
TITLES = {
    "rules": "today's rules alone",
    "random": "random ones",
    "trees": "boosted trees on pairs",
    "tree costs": "sums of costs that boosted trees predict",
    "ilp": "integer program, costs measured on the machine",
    **{name: name.replace("tgraph", "TGraph") for name in ABLATIONS},
    COSTS: "TGraph that reads the integer program's costs",
}
Scores = list[NDArray[np.float64]]


def quality(graph: Labelled, scores: NDArray[np.float64]) -> dict[str, float | None]:
    """Return the metrics of a graph's scores, low for fast; no tau where all are equal."""
    tau = kendall_tau(scores, graph.runtimes)
    return {
        "tau": float(tau) if np.isfinite(tau) else None,
        "best_of_1": best_of(scores, graph.runtimes, k=1),
        "best_of_5": best_of(scores, graph.runtimes, k=FIVE),
    }


def of_rules(graph: Labelled) -> dict[str, float | None]:
    """Return the metrics of today's rules, which rank nothing: their share of the best known speed."""
    share = float(graph.runtimes.min() / graph.runtimes[graph.rules])
    return {"tau": None, "best_of_1": share, "best_of_5": share}


def of_random(graph: Labelled) -> dict[str, float | None]:
    """Return the expected metrics of configurations in a random order."""
    shares = np.sort(graph.runtimes.min() / graph.runtimes)
    below = np.arange(1, len(shares) + 1) / len(shares)
    chance = np.diff(below**FIVE, prepend=0.0)  # that the best of five is this one, of draws with replacement
    return {"tau": 0.0, "best_of_1": float(shares.mean()), "best_of_5": float(shares @ chance)}


def tgraph_scores(
    train: Sequence[Labelled],
    test: Sequence[Labelled],
    seed: int,
    options: Sequence[str],
    folder: Path,
    *,
    costs: bool = False,
) -> Scores:
    """Train one network and return its scores of the other graphs' configurations.

    With `costs` it reads what the integer program adds up.
    """
    import torch

    from wmsched.graph.config import Settings
    from wmsched.graph.ensemble import score_graph
    from wmsched.graph.train import Member, train_member

    torch.set_num_threads(1)
    settings = Settings().with_options([*OPTIONS, *options, f"training.seed={seed}"])
    member = Member(f"seed-{seed}", seed, [prepared(graph, costs=costs) for graph in train], [])
    network, _ = train_member(member, settings, checkpoint=folder / "member.safetensors")
    return [score_graph(network, prepared(graph, costs=costs), settings.inference) for graph in test]


def repeated(graph: Labelled) -> dict[str, Any]:
    """Return the line of how far a graph's timings agree: tau between the first two.

    The configuration that the rules are compared with is fastest in the first timing, and its seconds are of
    the others: the least of many noisy times is too small.
    """
    first, second = graph.timings[:2]
    others, fastest = graph.timings[1:].mean(0), int(graph.timings[0].argmin())
    return {
        "kind": REPEAT,
        "graph": graph.name,
        "family": graph.family,
        "configurations": len(graph.runtimes),
        "tau": round(kendall_tau(first, second), 4),
        "best_of_5": round(best_of(first, second, k=FIVE), 4),
        "spread": round(float(graph.runtimes.max() / graph.runtimes.min()), 3),
        "rules_over_best": round(float(others[graph.rules] / others[fastest]), 4),
    }


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """Means of each method over the graphs, with intervals over them."""
    rows = []
    for method, title in TITLES.items():
        found = by_graph(lines, method)
        if not found:
            continue
        cells = [title, str(len({line["seed"] for line in lines if line.get("method") == method}))]
        for metric in ("tau", "best_of_1", "best_of_5"):
            values = [one[metric] for one in found.values() if metric in one]
            cells.append(told(values) if values and not (metric == "tau" and method == "random") else "")
        rows.append(cells)
    ceiling = [line for line in lines if line["kind"] == REPEAT]
    if ceiling:
        cells = ["one timing, judged by another", "", told([line["tau"] for line in ceiling]), ""]
        rows.append([*cells, told([line["best_of_5"] for line in ceiling])])
    head = ["ranked by", "seeds", "tau", "first one's share of the best speed", "best of first five"]
    return Table(title="", head=head, rows=rows, note="")


def by_graph(lines: Sequence[dict[str, Any]], method: str) -> dict[str, dict[str, float]]:
    """Return a method's metrics of each graph, means over its seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for line in lines:
        if line["kind"] == KIND and line["method"] == method:
            own = found.setdefault(line["graph"], {})
            for metric in ("tau", "best_of_1", "best_of_5"):
                if line[metric] is not None:
                    own.setdefault(metric, []).append(line[metric])
    return {
        graph: {metric: statistics.fmean(values) for metric, values in own.items()}
        for graph, own in found.items()
    }


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval, of resampled graphs."""
    given = np.asarray(values, np.float64)
    draws = np.random.default_rng(0).integers(0, len(given), (RESAMPLES, len(given)))
    low, high = np.quantile(given[draws].mean(1), [0.025, 0.975])
    return float(given.mean()), float(low), float(high)


def told(values: Sequence[float]) -> str:
    """Return a mean and its interval as text."""
    mean, low, high = interval(values)
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"


def block(lines: Sequence[dict[str, Any]], place: str) -> str:
    """Return what a page gets of committed lines."""
    ceiling = [line for line in lines if line["kind"] == REPEAT]
    families = {line["family"] for line in ceiling}
    note = (
        f"{len(ceiling)} graphs of {len(families)} families, "
        f"{sum(line['configurations'] for line in ceiling)} configurations; means over graphs, with 95 % "
        f"intervals over graphs.\nToday's rules take {told([line['rules_over_best'] for line in ceiling])} "
        f"times as long as the best known configuration.\nPrinted by `python -m "
        f"benchmarks.offline.graph_ranking --out {place} --print`."
    )
    return table(lines).markdown().strip() + "\n\n" + note


def methods(folder: Path) -> dict[str, Callable[[Sequence[Labelled], Sequence[Labelled], int], Scores]]:
    """Return what is trained, by name."""
    from benchmarks.offline.graph_trees import cost_scores, rank_scores

    found: dict[str, Any] = {"trees": rank_scores, "tree costs": cost_scores}
    for name, options in {"tgraph": (), COSTS: (), **ABLATIONS}.items():
        found[name] = lambda train, test, seed, options=options, name=name: tgraph_scores(
            train,
            test,
            seed,
            options,
            folder / name.replace(" ", "-") / f"{seed}-{test[0].name}",
            costs=name == COSTS,
        )
    return found


def main(argv: list[str] | None = None) -> int:
    """Train, score, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.offline.graph_ranking", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    parser.add_argument("--data", type=Path, default=DATA, help="labelled graphs (%(default)s)")
    parser.add_argument("--folder", type=Path, help="of the networks' checkpoints")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="(%(default)s)")
    parser.add_argument("--only", default="", help="methods, joined by commas; by default all")
    parser.add_argument("--print", action="store_true", help="print the table and train nothing")
    parser.add_argument("--into", type=Path, help="write the table into a page")
    options = parser.parse_args(argv)
    if not (options.print or options.into):
        if options.folder is None:
            parser.error("--folder is wanted: networks are kept there while they are trained")
        train(options)
    lines = list(read_all([options.out]))
    made = block(lines, options.out.as_posix())
    if options.into:
        page = options.into.read_text(encoding="utf-8")
        options.into.write_text(MARKS.replaced(page, made), encoding="utf-8")
    else:
        print(made)
    return 0


def train(options: argparse.Namespace) -> None:
    """Append the lines that are missing."""
    graphs, results = read(options.data), Results(options.out)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "cpu": machine.describe()["cpu"]}
    have = {(line["kind"], line["graph"], line.get("method"), line.get("seed")) for line in results.lines}

    def add(graph: Labelled, method: str, seed: int, found: dict[str, float | None]) -> None:
        if (KIND, graph.name, method, seed) not in have:
            metrics = {name: None if value is None else round(value, 4) for name, value in found.items()}
            line = {"kind": KIND, "graph": graph.name, "family": graph.family, "method": method, "seed": seed}
            results.append({**line, **metrics})

    for graph in graphs:
        if (REPEAT, graph.name, None, None) not in have and len(graph.timings) > 1:
            results.append({**repeated(graph), **about})
        add(graph, "rules", 0, of_rules(graph))
        add(graph, "random", 0, of_random(graph))
        add(graph, "ilp", 0, quality(graph, graph.added))
    folds = folds_of(graphs, FOLDS)
    for seed in range(options.seeds):
        for name, scores in methods(options.folder).items():
            if options.only and name not in options.only.split(","):
                continue
            for fold in range(FOLDS):
                test = [graph for graph in graphs if folds[graph.family] == fold]
                rest = [graph for graph in graphs if folds[graph.family] != fold]
                if all((KIND, graph.name, name, seed) in have for graph in test):
                    continue
                for graph, found in zip(test, scores(rest, test, seed), strict=True):
                    add(graph, name, seed, quality(graph, found))
            taus = [one["tau"] for one in by_graph(results.lines, name).values() if "tau" in one]
            console.print(f"seed {seed}, {name}: tau {statistics.fmean(taus):.3f}")


if __name__ == "__main__":
    sys.exit(main())
