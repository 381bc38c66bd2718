"""Table of tuned subgraphs and PyTorch's on the same GPU (`benchmarks.tune.pytorch_subgraphs`)."""

from __future__ import annotations

from benchmarks.outcomes.outcomes import Outcomes, middle
from benchmarks.outcomes.tables import Table, interval, mean, wins

COLUMNS = (("eager", False), ("graph", False), ("graph", True))
NOTE = (
    "PyTorch in full float32, as the tuned programs are, and with TF32; cuDNN and cuBLAS choose their "
    "fastest algorithms. A graph is a replayed CUDA graph: without it most of these times are the launches'."
)


def name(executor: str, tf32: bool) -> str:
    """What a column is called."""
    return f"PyTorch {executor}" + (", TF32" if tf32 else "")


def tables(data: Outcomes) -> list[Table]:
    """Microseconds of each subgraph, and our speedup over each way of PyTorch's; [] without its lines."""
    usual = [setting for setting in data.settings if setting.usual]
    lines = data.others.get("subgraph", [])
    if not lines or not usual:
        return []
    setting = usual[-1]
    torch = {(line["task"], line["executor"], line["tf32"]): line["median"] for line in lines}
    methods = [method for method in data.methods if any(data.of(t, method, setting) for t in data.tasks)]
    rows: list[list[str]] = []
    ratios: dict[tuple[str, bool, str], dict[str, list[float]]] = {}
    for task in data.tasks:
        told = {column: torch[(task, *column)] for column in COLUMNS if (task, *column) in torch}
        found = {method: cell for method in methods if (cell := data.of(task, method, setting))}
        if not told or not found:
            continue
        cells = [f"{told[column] * 1e6:.1f}" if column in told else "" for column in COLUMNS]
        cells += [f"{middle(found[m]) * 1e6:.1f}" if m in found else "" for m in methods]
        rows.append([data.titles.get(task) or task, *cells])
        for column, seconds in told.items():
            for method, cell in found.items():
                ratios.setdefault((*column, method), {})[task] = [seconds / o.seconds for o in cell.values()]
    if not rows:
        return []
    head = ["subgraph, us", *(name(*column) for column in COLUMNS), *(f"{m}, {setting}" for m in methods)]
    means = [
        [
            f"{method} over {name(executor, tf32)}",
            mean(found),
            interval(found),
            wins(found),
        ]
        for (executor, tf32, method), found in ratios.items()
    ]
    return [
        Table(
            title="Beside PyTorch", head=["", "speedup", "95 % interval", "faster on"], rows=means, note=NOTE
        ),
        Table(title="", head=head, rows=rows),
    ]
