"""`python -m benchmarks.offline.ranking`: each method's ranking of workloads held out, one JSON line a
workload.

    python -m benchmarks.offline.ranking --data work/ds-x86 --by network,workload --methods random,plain,ours
    \\
        --out benchmarks/results/state-ranking.jsonl

All methods get the same records in the same folds (`wmsched.learn.evaluate.cross_validation`). A line that
is there already is not made again, so that methods can be added to a file. `stock` needs AutoScheduler's TVM
on PYTHONPATH and
--workloads; the rows with a state need a --bundle that has E and F. `python -m
benchmarks.offline.ranking_table` prints the tables of docs/explanation/evaluation.md from such lines.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.plan import Results
from benchmarks.records import Measured
from wmsched.learn.data.dataset import Dataset
from wmsched.learn.data.inputs import VARIANTS, TaskInputs, gather
from wmsched.learn.evaluate.cross_validation import boosted, deal
from wmsched.learn.evaluate.noise_ceiling import estimate_noise, oracle
from wmsched.learn.evaluate.quality import random_qualities, workload_quality
from wmsched.model.ranker import RankerConfig
from wmsched.toolchain.resolve import autoscheduler_tvm

logger = logging.getLogger("benchmarks")

Array = NDArray[np.float64]
Score = Callable[[Sequence[int], Sequence[int]], list[Array]]
"""(numbers of the training workloads, of the test ones) -> scores of each test workload's programs."""

OBJECTIVES = {
    "ours, ndcg": "rank:ndcg",
    "ours, pairwise": "rank:pairwise",
    "ours, regression": "reg:squarederror",
}
ACTIONS = "ours, actions only"
ORACLE = "oracle"  # knows every time but for the noise of timing
STATES = {f"ours, {name}": what for name, what in VARIANTS.items() if name != "phi"}
#: name -> (share of the trees, which network): see `Methods.fold_of_networks`
LATENT = {
    "latent": (0.7, "matched"), "latent, times only": (0.7, "free"), "latent, true state": (0.7, "true"),
    "latent alone": (0.0, "matched"), "latent alone, times only": (0.0, "free"),
    "latent alone, true state": (0.0, "true"),
}  # fmt: skip


class Methods:
    """The methods by name, over the workloads of one dataset."""

    def __init__(self, options: argparse.Namespace, tasks: Sequence[TaskInputs]) -> None:
        self.options, self.tasks = options, tasks
        self.config = RankerConfig(threads=options.threads)
        self._groups: list[Measured] = []
        self._stock: Any = None
        self._programs: Any = None
        self._folds: dict[tuple[int, ...], dict[str, list[Array]]] = {}

    def score(self, name: str) -> Score:
        """The method `name`. ValueError for an unknown one."""
        if name in ("plain", "tlp", "stock"):
            return getattr(self, f"_{name}_scores")
        if name in OBJECTIVES:
            config = dataclasses.replace(self.config, objective=OBJECTIVES[name])
            return lambda train, test: self._trees(train, test, "none", True, config)
        if name == "ours":
            return lambda train, test: self._trees(train, test, "none", True, self.config)
        if name == ACTIONS:
            return lambda train, test: self._trees(train, test, "none", True, self.config, only=_of_actions())
        if name in LATENT:
            share, network = LATENT[name]
            return lambda train, test: self._latent(train, test, share, network)
        if name in STATES:
            return lambda train, test: self._trees(train, test, *STATES[name], self.config)
        raise ValueError(f"no method {name!r}; there are random, {ORACLE}, plain, stock, tlp, ours, "
                         f"{ACTIONS}, {', '.join([*OBJECTIVES, *STATES, *LATENT])}")  # fmt: skip

    @property
    def groups(self) -> list[Measured]:
        """The same programs as the other methods take them."""
        if not self._groups:
            dataset = Dataset(self.options.data)
            by_id = {workload.id: workload for workload in dataset.workloads()}
            for task in self.tasks:
                workload, found = by_id[task.key], dataset.trajectories(task.key)
                group = Measured(
                    workload.key, workload.target, tuple(workload.hardware), self.options.data.name
                )
                group.steps = [list(map(list, trajectory.steps)) for trajectory in found]
                group.times = [trajectory.measurement.seconds for trajectory in found]
                self._groups.append(group)
        return self._groups

    def _trees(
        self,
        train: Sequence[int],
        test: Sequence[int],
        state: str,
        phi: bool,
        config: RankerConfig,
        only: Sequence[int] | None = None,
    ) -> list[Array]:
        def group(n: int) -> Any:
            whole = self.tasks[n].group(state, phi)
            return whole if only is None else dataclasses.replace(whole, rows=whole.rows[:, only])

        ranker = boosted(config)([group(n) for n in train], [])
        return [ranker.margins(group(n).rows).astype(np.float64) for n in test]

    def _latent(self, train: Sequence[int], test: Sequence[int], share: float, network: str) -> list[Array]:
        found = self.fold_of_networks(train, test)
        return [share * a + (1 - share) * b for a, b in zip(found["trees"], found[network])]

    def fold_of_networks(self, train: Sequence[int], test: Sequence[int]) -> dict[str, list[Array]]:
        """Margins of the test workloads, in units of their spread within a workload, trained once a fold.

        "trees"; "matched" and "free": the latent networks with and without the true terminal states to
        reach; "true": the value of E at the true terminal state, which needs replayed records.
        """
        import torch

        from benchmarks.rankers import train_latent as latent
        from benchmarks.rankers.latent_ranker import SCALE, LatentConfig

        if tuple(test) in self._folds:
            return self._folds[tuple(test)]
        groups = [dataclasses.replace(task.group("none", True), key=task.key) for task in self.tasks]
        if self._programs is None:
            dataset = Dataset(self.options.data)
            self._programs = latent.Programs.read(dataset, [task.key for task in self.tasks])
        programs, fitting = self._programs, [groups[n] for n in train]
        t = latent.LatentTraining()
        config = LatentConfig(width=groups[0].rows.shape[1])
        trained = latent.train_states(fitting, programs, config, t, t.seed)
        if trained is None or any((programs.of[task.key] < 0).any() for task in self.tasks):
            raise ValueError(
                f"{self.options.data}: not every record has its terminal state; build with "
                "--states-per-workload 0"
            )
        states = latent.embed(trained[0], programs)
        with torch.no_grad():
            value = trained[1](states * SCALE)[:, 0].double().numpy()
        matched = latent.train_jump(fitting, programs, states, config, t, t.seed)
        free = latent.train_jump(fitting, programs, None, config, t, t.seed)
        rows = [groups[n].rows for n in test]
        with torch.no_grad():
            found = {
                "trees": self._trees(train, test, "none", True, self.config),
                "matched": [matched(torch.from_numpy(x))[0].double().numpy() for x in rows],
                "free": [free(torch.from_numpy(x))[0].double().numpy() for x in rows],
                "true": [value[programs.of[self.tasks[n].key]] for n in test],
            }
        for name, parts in found.items():
            spread = float(np.sqrt(np.mean([np.var(part) for part in parts]))) or 1.0
            found[name] = [part / spread for part in parts]
        self._folds[tuple(test)] = found
        return found

    def _plain_scores(self, train: Sequence[int], test: Sequence[int]) -> list[Array]:
        from benchmarks.methods.step_counts import StepBooster

        booster = StepBooster.fit([(self.groups[n].steps, self.groups[n].seconds) for n in train], rounds=300)
        return [booster.predict(self.groups[n].steps) for n in test]

    def _tlp_scores(self, train: Sequence[int], test: Sequence[int]) -> list[Array]:
        from benchmarks.rankers.tlp.fit import fit

        model = fit([self.groups[n] for n in train])
        return [model.score(self.groups[n].steps) for n in test]

    def _stock_scores(self, train: Sequence[int], test: Sequence[int]) -> list[Array]:
        from benchmarks.tune.stock_model import StockFeatures

        if self._stock is None:
            content = self.options.workloads.read_bytes()
            zipped = self.options.workloads.suffix == ".gz"
            rows = json.loads(gzip.decompress(content) if zipped else content)
            self._stock = StockFeatures(self.groups, {row["workload_key"]: row for row in reversed(rows)})
        booster = self._stock.fit([self.groups[n].key for n in train])
        return [self._stock.predict(booster, self.groups[n].key) for n in test]


def _of_actions() -> list[int]:
    """Columns of phi that the actions alone tell: counts, split sizes, the unroll limit; and the hardware's.

    All others are of the loop nest that the actions lead to: a terminal state, followed symbolically.
    """
    from wmsched.model.rows import column_names

    names = column_names(dim=0, state="none")
    kept = ("count_", "split_")
    own = {"steps", "unroll_max", "flops"}
    hardware = len(names) - len(column_names(dim=0, state="none", phi=False))
    return [n for n, name in enumerate(names) if name.startswith(kept) or name in own or n >= hardware]


def lines(methods: Methods, name: str, by: str, folds: int) -> list[dict[str, Any]]:
    """The result lines of one method in one kind of split."""
    tasks = methods.tasks
    found: list[dict[str, float]] = [{} for _ in tasks]
    by_noise: dict[str, Any] = {}
    if name == "random":
        drawn = random_qualities([task.seconds for task in tasks])
        found = [{metric: float(values[n]) for metric, values in drawn.items()} for n in range(len(tasks))]
    elif name == ORACLE:
        noise = estimate_noise(Dataset(methods.options.data), tasks)
        if not np.isfinite(noise.sigma):
            raise ValueError(
                f"{methods.options.data}: too few timings of one program to tell the noise, so no {ORACLE}"
            )
        found = oracle(tasks, noise.sigma)
        logger.info("sigma of log seconds %.4f, of %d pairs: %s", noise.sigma, noise.pairs, noise.source)
        by_noise = {"sigma": round(noise.sigma, 6), "pairs_of_timings": noise.pairs, "noise_of": noise.source}
    else:
        score = methods.score(name)
        parts = deal([task.group("none", False) for task in tasks], folds=folds, by=by)
        for number, held in enumerate(parts):
            train = [n for part in parts if part is not held for n in part]
            for n, scores in zip(held, score(train, held), strict=True):
                found[n] = workload_quality(scores, tasks[n].seconds)
            logger.info("%s, by %s: fold %d of %d", name, by, number + 1, len(parts))
    return [
        {
            "kind": "ranking", "by": by, "folds": folds, "method": name, "program": task.program[:16],
            "group": task.key, "network": task.network, "operator": task.operator,
            "programs": len(task.seconds), **by_noise,
        } | {metric: round(value, 6) if value == value else None for metric, value in line.items()}
        for task, line in zip(tasks, found, strict=True)
    ]  # fmt: skip


def finished(out: Path, folds: int, count: int) -> set[tuple[str, str]]:
    """(method, kind of split) of which a results file has a line for each of `count` workloads.

    What a kill has cut off is dropped; a method that was half written is made anew.

    Raises
    ------
    ValueError
        The file is of another number of folds: methods of both could not be compared.
    """
    lines = Results(out).lines
    for line in lines:
        if line.get("folds") != folds:
            raise ValueError(f"{out} has lines of {line.get('folds')} folds, not {folds}: give another --out")
    found: dict[tuple[str, str], set[str]] = {}
    for line in lines:
        found.setdefault((line["method"], line["by"]), set()).add(line["group"])
    return {which for which, groups in found.items() if len(groups) >= count}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.offline.ranking", description=(__doc__ or "")[:90]
    )
    parser.add_argument("--data", type=Path, required=True, help="what `wmsched-data build` wrote")
    parser.add_argument("--bundle", help="whose E and F give the states")
    parser.add_argument("--workloads", type=Path, help="the open workloads file of the logs, for stock")
    parser.add_argument(
        "--methods", default="random,plain,ours", help="separated by ';' or ',' (%(default)s)"
    )
    parser.add_argument("--by", default="network,workload", help="(%(default)s)")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of the trees; 0: all cores")
    parser.add_argument("--cache", type=Path, help="folder of the rows (<data>.eval)")
    parser.add_argument("--out", type=Path, required=True, help="result lines, JSON, added to")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    names = [name.strip() for name in options.methods.split(";" if ";" in options.methods else ",")]
    if "stock" in names:
        autoscheduler_tvm()  # XGBoost before TVM: the other order aborts
    encoder = transition = embeddings = None
    if options.bundle:
        from wmsched.learn.evaluate.evaluate import embeddings_of
        from wmsched.model import bundles
        from wmsched.model.world_model import WorldModel

        model = WorldModel.from_pretrained(options.bundle)
        encoder, transition = model.encoder, model.transition
    cache = options.cache or options.data.with_name(options.data.name + ".eval")
    if options.bundle:
        embeddings = embeddings_of(bundles.find(options.bundle), cache)
    needs = any(STATES.get(name, ("",))[0] == "true" for name in names)
    tasks = gather(
        Dataset(options.data), encoder=encoder, transition=transition, cache=cache, embeddings=embeddings,
        true_states=needs,
    )  # fmt: skip
    methods = Methods(options, tasks)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = finished(options.out, options.folds, len(tasks))
    for by in options.by.split(","):
        for name in names:
            if (name, by) in done:
                continue
            made = lines(methods, name, by, options.folds)
            with options.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line, allow_nan=False) + "\n" for line in made)
            logger.info("%s, by %s: pairs %.3f", name, by, np.mean([x["pairwise"] or 0.0 for x in made]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
