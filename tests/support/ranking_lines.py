"""Made-up result lines of an offline ranking."""

from __future__ import annotations


def ranking_line(method, group, pairs, **other):
    line = {"kind": "ranking", "by": "network", "folds": 5, "method": method, "group": group, "network": "n"}
    line |= {"operator": "conv2d", "programs": 40, "top1": 0.5, "top5": 0.75, "pairwise": pairs, "tau": 0.1}
    return line | {"regret16": None, "regret64": None} | other
