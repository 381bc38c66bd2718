"""Markdown report of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wmsched.learn.evaluate.quality import METRICS, Estimate

HEADS = {
    "top1": "top-1",
    "top5": "top-5",
    "pairwise": "pairs",
    "tau": "Kendall tau",
    "regret16": "regret at 16",
    "regret64": "regret at 64",
}
LABELS = {
    "random": "random",
    "phi": "phi alone",
    "initial + phi": "initial state + phi",
    "predicted + phi": "predicted terminal state + phi",
    "true + phi": "true terminal state + phi",
    "initial": "initial state, no phi",
    "predicted": "predicted terminal state, no phi",
    "true": "true terminal state, no phi",
}


def markdown(result: Mapping[str, Any]) -> str:
    """Return the tables of a result of :func:`wmsched.learn.evaluate.evaluate.evaluate`."""
    ranker = result["ranker"]
    lines = [
        f"# {result['bundle']} on {result['dataset']}",
        "",
        f"{result['records']} records of {result['workloads']} workloads in {result['networks']} networks, "
        f"{result['replayed']} with their true terminal state; {result['folds']} folds by {result['by']}. "
        f"G is fitted again in each fold ({_ranker(ranker)}); E and F are the bundle's and saw no time. "
        "Means over workloads with 95 % bootstrap intervals over workloads; a failed program counts as "
        "infinitely slow. Regret: how much slower the best of the first k is than the best of all.",
        "",
        "## Ranking",
        "",
        *_ranking(result["all"], result),
        "",
        *_operators(result["all"], result["own"]),
    ]
    if "replayed_only" in result:
        part = result["replayed_only"]
        lines += [
            "## Ranking of the replayed records alone",
            "",
            f"The {part['records']} records whose true terminal state is known: every row is fitted to these "
            "and measured on them.",
            "",
            *_ranking(part, result, ceiling=False),
            "",
        ]
    for name, part in result.get("states", {}).items():
        lines += [*_states(name, part), ""]
    return "\n".join(lines).rstrip() + "\n"


def _ranking(section: Mapping[str, Any], result: Mapping[str, Any], *, ceiling: bool = True) -> list[str]:
    rows = [["G is given", *HEADS.values(), "top-1 less phi's", "pairs less phi's"]]
    for name, found in section["rows"].items():
        less = section["to_phi"].get(name)
        differences = [less[key].signed() if less else "" for key in ("top1", "pairwise")]
        label = _label(name) + (" (the bundle)" if name == result["own"] else "")
        rows.append([label, *(found[key].text() for key in METRICS), *differences])
    frozen = section.get("frozen")
    if frozen:
        rows.append(["the bundle's own G *", *(frozen["row"][key].text() for key in METRICS), "", ""])
    if ceiling and result["ceiling"]:
        found = result["ceiling"]
        rows.append(["knowing every time but for noise †", *(found[key].text() for key in METRICS), "", ""])
    lines = table(rows)
    if frozen:
        lines += [
            "",
            f"* as it is in the bundle, on {frozen['workloads']} workloads; of these it was trained on "
            f"{frozen['trained_on']}, from other logs.",
        ]
    if ceiling and result["ceiling"]:
        noise = result["noise"]
        where = {
            "repeats": f"{noise['pairs']} repeated timings",
            "equal features": f"{noise['pairs']} pairs of programs with equal phi, which also differ in what "
            "phi does not see: an upper bound, so this row is a lower one",
        }.get(noise["source"], "given")
        lines += ["", f"† deviation of log seconds {noise['sigma']:.3f}, from {where}."]
    return lines


def _operators(section: Mapping[str, Any], own: str) -> list[str]:
    names = [name for name in ("random", "phi", own) if name in section["rows"]]
    names = list(dict.fromkeys(names))
    head = ["operator", "workloads"]
    head += [f"{HEADS[key]}: {name}" for key in ("top1", "top5", "pairwise") for name in names]
    rows = [head]
    for kind, part in section["operators"].items():
        cells = [_mean(part["rows"][name][key]) for key in ("top1", "top5", "pairwise") for name in names]
        rows.append([kind, str(part["workloads"]), *cells])
    return ["## By operator", "", *table(rows), ""]


def _states(name: str, part: Mapping[str, Any]) -> list[str]:
    lines = [f"## E and F on workloads {name} ({part['workloads']})", ""]
    shape, found = part["shape"], part["retrieval"]
    rows = [["E", ""]]
    if found:
        rows.append(["a state's second view beats its workload's other states", found["intra"].text()])
        rows.append(["mean reciprocal rank among these", found["intra_mrr"].text()])
        rows.append(["it beats every state of other workloads", found["inter"].text()])
    if shape:
        rows += [
            ["effective rank of terminal states", f"{shape['effective_rank']:.1f} of {shape['dim']}"],
            ["the same without each workload's mean", f"{shape['effective_rank_within']:.1f}"],
            ["mean cosine within a workload", shape["cosine_intra"].text()],
            ["mean cosine of workloads' means", f"{shape['cosine_inter']:.3f}"],
            ["tau of state distance and difference of log seconds", shape["speed_tau"].text()],
        ]
    lines += table(rows)
    if "terminal" not in part:
        return lines
    t, r = part["terminal"], part["rollouts"]
    rows = [["F, whole trajectories from s0", "F", "standing still"]]
    rows.append(["cosine to the true terminal state", t["cosine"].text(), t["still"].text()])
    rows.append(["nearest to the true one (chance in the last column)", t["top1"].text(), t["chance"].text()])
    rows.append(["mean reciprocal rank of the true one", t["mrr"].text(), ""])
    rows.append(["one step from a true state", r["one_step"].text(), r["one_step_still"].text()])
    for k, (moved, still) in enumerate(zip(r["cosine"], r["still"]), 1):
        rows.append([f"cosine after {k} steps", moved.text(), still.text()])
    for item in r["by_length"]:
        if item["cosine"].workloads:
            last = f" to {item['to']}" if item["to"] < 1000 else " or more"
            label = f"cosine at the end of {item['from']}{last} steps"
            rows.append([label, item["cosine"].text(), item["still"].text()])
    return [*lines, "", f"Rollouts: {r['trajectories']} trajectories.", "", *table(rows)]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return Markdown rows, the first as head."""
    text = [f"| {' | '.join(row)} |" for row in rows]
    return [text[0], "|" + "---|" * len(rows[0]), *text[1:]]


def _ranker(settings: Mapping[str, Any]) -> str:
    if "objective" not in settings:
        return f"attention over {settings['context']} candidates, {settings['n_models']} networks"
    count = settings["n_models"] * (1 + settings["objective"].count("+"))
    return f"{settings['objective']}, labels by {settings['relevance']}, {count} models"


def _label(name: str) -> str:
    kind, _, rest = name.partition(": ")
    return f"{kind}: {_label(rest)}" if rest else LABELS.get(name, name)


def _mean(value: Estimate) -> str:
    return f"{value.mean:.3f}" if value.workloads else "-"
