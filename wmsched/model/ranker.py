"""G, the ranker (section 3.5): boosted trees on [predicted terminal state, action features, hardware].

The ranker orders the candidates of one workload; it predicts no time. Each workload is one ranking group.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wmsched.base.config import from_dict
from wmsched.base.errors import BundleError
from wmsched.model.groups import (
    Floats,
    RankGroup,
    drop_column,
    informative,
    learnable,
    relative_speed,
    relevance,
    spread_of,
)

#: Margin units per doubling of latency (1 / 0.71). Fitted as the slope of log2(seconds) on margin, over the
#: faster half of 64 candidates of each held-out task, with the x86-avx512 bundle.
MARGIN_PER_DOUBLING = 1.4
#: Rows that a ranker scores before its trees are read for C++, which takes as long as some thousand rows.
FOREST_ROWS = 1024
OBJECTIVES = ("rank:ndcg", "rank:pairwise", "reg:squarederror")


@dataclass(frozen=True)
class RankerConfig:
    """Objectives, labels and tree parameters of G."""

    # One or several of OBJECTIVES, joined by "+"; each has its own models. "rank:ndcg" is LambdaRank;
    # "reg:squarederror" predicts best seconds / seconds. Their errors differ, so their mean errs less.
    objective: str = "rank:ndcg+rank:pairwise+reg:squarederror"
    relevance: str = "ratio"  # "ratio": labels by best/seconds; "order": by rank
    exponential_gain: bool = False  # 2^label - 1, which weighs little but the very best
    rounds: int = 400  # trees of each model; an upper bound if patience > 0
    # Early stopping: trees without gain on the held-out workloads; 0: none. NDCG of some forty workloads is
    # too noisy for it: training stopped at a third of the trees, which cost a point of accuracy.
    patience: int = 0
    learning_rate: float = 0.06
    depth: int = 6
    min_child_weight: float = 1.0
    subsample: float = 0.8
    columns: float = 0.5  # share of the columns that a tree sees
    l2: float = 1.0
    n_models: int = 1  # seeds of each objective; all margins are averaged
    seed: int = 0
    threads: int = 0  # 0: all cores

    def __post_init__(self) -> None:
        unknown = [name for name in self.objectives if name not in OBJECTIVES]
        if unknown:
            raise ValueError(
                f"RankerConfig.objective={self.objective!r}: {unknown[0]!r} is none of "
                f'{", ".join(OBJECTIVES)} (several are joined by "+")'
            )
        if self.relevance not in ("ratio", "order"):
            raise ValueError(f'RankerConfig.relevance={self.relevance!r} is neither "ratio" nor "order"')
        if self.n_models < 1 or self.rounds < 1:
            raise ValueError("RankerConfig: n_models and rounds must be at least 1")

    @property
    def objectives(self) -> tuple[str, ...]:
        """The objectives as a tuple."""
        return tuple(self.objective.split("+"))

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RankerConfig:
        """Rebuild from ``dataclasses.asdict``; unknown keys are refused."""
        return from_dict(cls, values, "ranker")


_made: list[int] = []  # one entry a ranker that this process has made


def has_threads() -> bool:
    """Whether this process may have threads of XGBoost: a copy of it by fork would wait for them for ever."""
    return bool(_made)


class Ranker:
    """Mean margin of one or several boosters, each divided by its within-workload spread.

    The spreads are fixed at training. A search compares scores of different generations, which
    per-batch standardization would change.

    Trees see latencies as if the threads shared the work equally, because few training records come from
    machines with many cores. The known cost of uneven sharing is subtracted from the margins afterwards.

    Parameters
    ----------
    slowdown : int
        Index of the column `SLOWDOWN` in the rows; -1 if they have none or trees read it like the others.

    Examples
    --------
    >>> ranker = Ranker.fit(groups, RankerConfig(rounds=50))  # doctest: +SKIP
    >>> ranker.margins(groups[0].rows)  # float32 [N], higher is faster  # doctest: +SKIP
    """

    def __init__(
        self, config: RankerConfig, boosters: Sequence[Any], spreads: Sequence[float], *, slowdown: int = -1
    ) -> None:
        _made.append(1)
        self.config = config
        self.boosters = list(boosters)
        self.spreads = [float(spread) for spread in spreads]
        self.slowdown = slowdown
        self._rows = 0  # that were scored; after some of them, the trees in C++:
        self._forest: Any = None

    @property
    def width(self) -> int:
        """F, the number of columns of a row."""
        return int(self.boosters[0].num_features()) + (self.slowdown >= 0)

    @property
    def rounds(self) -> int:
        """Trees of the largest member."""
        return max(booster.num_boosted_rounds() for booster in self.boosters)

    @classmethod
    def fit(
        cls, groups: Sequence[RankGroup], config: RankerConfig, *, valid: Sequence[RankGroup] = ()
    ) -> Ranker:
        """Train on groups; held-out groups and patience turn early stopping on.

        Groups on disk (`external_memory.StoredGroup`) go through XGBoost's external memory.

        Raises
        ------
        DatasetError
            No group has two candidates of different speed, so there is no order to learn.
        """
        import xgboost as xgb

        groups = learnable(groups)
        valid = [group for group in valid if informative(group)]
        ends = np.cumsum([len(group.seconds) for group in groups])[:-1]
        boosters, spreads = [], []
        for objective in config.objectives:
            train = _matrix(groups, config, objective)
            held = _matrix(valid, config, objective, ref=train) if valid and config.patience else None
            for member in range(config.n_models):
                booster = xgb.train(
                    _parameters(config, objective, config.seed + 1000 * member),
                    train,
                    num_boost_round=config.rounds,
                    evals=[(held, "valid")] if held is not None else [],
                    early_stopping_rounds=config.patience if held is not None else None,
                    verbose_eval=False,
                )
                if held is not None:
                    booster = booster[: booster.best_iteration + 1]
                margins = booster.predict(train, output_margin=True)  # for equal shares, like the labels
                boosters.append(booster)
                spreads.append(spread_of(np.split(margins, ends)))
        return cls(config, boosters, spreads, slowdown=groups[0].slowdown)

    def margins(self, rows: ArrayLike) -> Floats:
        """Return scores float32 [N] of rows [N, F]; higher is faster, comparable within a workload only.

        Raises
        ------
        ValueError
            The rows do not have the ranker's number of columns.
        """
        x = self._checked(rows)
        return self._mean(x, self._members(x))

    def judged(self, rows: ArrayLike) -> tuple[Floats, Floats]:
        """Return `margins` and the standard deviation of the members' margins, both float32 [N].

        Raises
        ------
        ValueError
            As of `margins`.
        """
        x = self._checked(rows)
        members = self._members(x)
        return self._mean(x, members), np.std(members, axis=0).astype(np.float32)

    def _checked(self, rows: ArrayLike) -> Floats:
        x = np.ascontiguousarray(rows, dtype=np.float32)
        if x.ndim != 2 or x.shape[1] != self.width:
            raise ValueError(f"rows of shape {x.shape}, the ranker was trained on {self.width} columns")
        return x

    def _members(self, x: Floats) -> list[Floats]:
        """Return each booster's margins [N], divided by its spread."""
        if not len(x):
            return [np.zeros(0, np.float32) for _ in self.boosters]
        features = drop_column(x, self.slowdown)
        if self._rows < FOREST_ROWS <= self._rows + len(x):
            from wmsched.model.trees.forest import forest_of

            self._forest = forest_of(self.boosters)
        self._rows += len(x)
        if self._forest is not None:
            found = self._forest.margins(np.ascontiguousarray(features))
            return [margins / spread for margins, spread in zip(found, self.spreads)]
        return [
            booster.inplace_predict(features, predict_type="margin", validate_features=False) / spread
            for booster, spread in zip(self.boosters, self.spreads)
        ]

    def _mean(self, x: Floats, members: Sequence[Floats]) -> Floats:
        total = np.zeros(len(x), np.float64)
        for margins in members:
            total += margins
        total /= len(members)
        if self.slowdown >= 0:
            total -= MARGIN_PER_DOUBLING * x[:, self.slowdown]
        return total.astype(np.float32)

    def save(self, directory: str | Path) -> None:
        """Write ``ranker.ubj``, then ``ranker-1.ubj`` and so on; the first holds the settings."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        header = {
            "config": dataclasses.asdict(self.config),
            "spreads": self.spreads,
            "slowdown": self.slowdown,
        }
        self.boosters[0].set_attr(wmsched=json.dumps(header, sort_keys=True))
        for member, booster in enumerate(self.boosters):
            booster.save_model(directory / _name(member))

    @classmethod
    def load(cls, directory: str | Path) -> Ranker:
        """Read what :meth:`save` wrote.

        Raises
        ------
        BundleError
            A file is missing or damaged.
        """
        import xgboost as xgb

        directory = Path(directory)
        try:
            # XGBoost aborts on a missing file with a long C++ trace; this error is one line
            first = xgb.Booster(model_file=_existing(directory / _name(0)))
            header = json.loads(first.attr("wmsched") or "{}")
            spreads = header["spreads"]
            others = [xgb.Booster(model_file=_existing(directory / _name(k))) for k in range(1, len(spreads))]
            config = RankerConfig.from_json(header["config"])
            slowdown = int(header.get("slowdown", -1))  # absent in older bundles
        except (OSError, ValueError, KeyError, TypeError, xgb.core.XGBoostError) as error:
            raise BundleError(
                f"{directory}: no usable ranker ({type(error).__name__}: {str(error)[:200]}); "
                "train or copy the bundle again"
            ) from error
        return cls(config, [first, *others], spreads, slowdown=slowdown)


def _name(member: int) -> str:
    return "ranker.ubj" if member == 0 else f"ranker-{member}.ubj"


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    return path


def _matrix(groups: Sequence[RankGroup], config: RankerConfig, objective: str, *, ref: Any = None) -> Any:
    import xgboost as xgb

    from wmsched.model.external_memory import StoredGroup, external_matrix  # which imports this module

    ranked = objective != "reg:squarederror"

    def label(group: RankGroup) -> NDArray[Any]:
        return relevance(group.even, by=config.relevance) if ranked else relative_speed(group.even)

    if isinstance(groups[0], StoredGroup):
        return external_matrix(groups, label, ranked=ranked, threads=config.threads, ref=ref)
    matrix = xgb.DMatrix(
        np.concatenate([group.features for group in groups]),
        label=np.concatenate([label(group) for group in groups]),
    )
    if ranked:
        matrix.set_group([len(group.seconds) for group in groups])
    return matrix


def _parameters(config: RankerConfig, objective: str, seed: int) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "objective": objective,
        "tree_method": "hist",
        "eta": config.learning_rate,
        "max_depth": config.depth,
        "min_child_weight": config.min_child_weight,
        "subsample": config.subsample,
        "colsample_bytree": config.columns,
        "lambda": config.l2,
        "seed": seed,
        "nthread": config.threads or None,
        "verbosity": 0,
    }
    if objective == "reg:squarederror":
        parameters["eval_metric"] = "rmse"
    else:
        parameters |= {"ndcg_exp_gain": config.exponential_gain, "eval_metric": "ndcg"}
    if objective == "rank:ndcg":
        # all pairs of a group: top pairs alone never order the lower half of a small group
        parameters |= {"lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": 32}
    return {name: value for name, value in parameters.items() if value is not None}
