"""Made-up result lines of the benchmark."""

from __future__ import annotations


def run_line(task, method, seconds, *, budget=16, seed=0, round_size=None, status="ok", **more):
    line = {
        "kind": "run",
        "task": task,
        "method": method,
        "budget": budget,
        "round_size": round_size or min(budget, 64),
        "seed": seed,
        "status": status,
        "type": "",
        "trials": budget,
        "failed": 1,
        "search_seconds": 10.0,
        "model_share": 0.25,
        "predict_seconds": 2.0,
        "candidates": 1000,
        "curve": [[1, 5.0, 4 * seconds], [budget, 10.0, seconds]],
        "best_seconds": seconds,
        "best_record": f"{task}-{method}-{seconds}",
        "cpu": "a CPU",
        "cores": 2,
        "machine": "Linux",
        "versions": {"python": "3"},
        "git": "abc",
    }
    return line | more


def again(task, *found, budget=16, seed=0):
    """A remeasure line: found = (method, seconds at first, seconds now)."""
    entries = [
        {
            "method": method,
            "budget": budget,
            "round_size": min(budget, 64),
            "seed": seed,
            "record": f"{task}-{method}-{first}",
            "seconds": [now, now, now],
            "median": now,
            "spread": 0.01,
        }
        for method, first, now in found
    ]
    return {"kind": "remeasure", "task": task, "status": "ok", "entries": entries}
