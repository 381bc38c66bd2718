"""`python -m benchmarks.report.glance --into docs/explanation/results.md`: what came out on each machine.

A line is a comparison. That page has the main ones; `--brief --into docs/index.md` writes those of the first
page of the docs, and `--all --into benchmarks/results/results.md` every one. Every number is worked out from
the committed lines that a row names, as `benchmarks.report` does it for the pages that have all of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.outcomes import paper, weighted
from benchmarks.outcomes.marks import Marks
from benchmarks.outcomes.outcomes import Outcomes
from benchmarks.outcomes.ratios import Ratios
from benchmarks.outcomes.tables import Table, interval, mean, seeds, wins
from benchmarks.plan import read_all
from benchmarks.report import whole
from benchmarks.report.against import usual

MARKS = Marks("<!-- glance:begin -->", "<!-- glance:end -->")
RESULTS = Path(__file__).parents[1] / "results"
KEPT = "TVM's tutorial script, its search kept"  # before ours was made of steps
SCRIPT, ALONE, META = "TVM's tutorial script", "AutoScheduler's cost model alone", "MetaSchedule's cost model"
UNLEARNT = "TVM's tutorial script, x86-avx512"  # on AVX2, before x86-avx2 was
ONE_TILE = "TVM's tutorial script, before tile shares"
IN_TURN = "TVM's tutorial script, both in turn"  # its search and the one of before, a day later
IN_TURN_BEFORE = "TVM's tutorial script, both in turn: before tile shares"
LEARNT_AVX2 = "wmsched-script@x86-avx2"
TUNE_TIR = "MetaSchedule's tune_tir"
SEARCH, SPACES = "MetaSchedule's cost model and search", "MetaSchedule's cost model, search and spaces"
MODELS, WHOLE = "models, weighted latency", "models, built whole"
EMERALD, ICE, ZEN5, ZEN4, ZEN3 = (
    ("Xeon, Emerald Rapids", "(family 6, model 207)"),
    ("Xeon, Ice Lake", "(family 6, model 106)"),
    ("EPYC, Zen 5", "(family 26, model 2)"),
    ("EPYC, Zen 4", "(family 25, model 17)"),
    ("EPYC, Zen 3", "(family 25, model 1)"),
)
H200, H100 = ("H200", "NVIDIA H200"), ("H100", "NVIDIA H100")
ZEN5_TWO = ("EPYC, Zen 5, 2 threads", ZEN5[1])
AVX2 = ("Xeon, Emerald Rapids, AVX2 alone", EMERALD[1])


@dataclass(frozen=True, slots=True)
class Row:
    """A comparison.

    Attributes
    ----------
    what : str
        The search, and what is replaced in it.
    machine : (str, str)
        As it is called in the table, and what the lines' processor must have in its name.
    files : str
        Results files without their ending, by spaces.
    ours, theirs : str
        Methods; for whole models `theirs` may be one of `whole.rivals`.
    trials, against : int
        Measured trials a task of ours and of theirs.
    of : str
        `MODELS`, `WHOLE`, or "" for the representative subgraphs.
    main : bool
        Whether it is on the page of results.
    brief : bool
        Whether it is on the docs' first page.
    """

    what: str
    machine: tuple[str, str]
    files: str
    ours: str
    theirs: str
    trials: int = 64
    against: int = 64
    of: str = ""
    main: bool = True
    brief: bool = False


AHEAD = "emr-ahead emr-convnets emr-ahead-whole emr-ahead-pytorch"
STEPS = "zen5-steps zen5-convnets zen5-steps-whole zen5-steps-pytorch"
EAGER = "PyTorch eager, 1 thread"
ROWS = (
    Row(SCRIPT, EMERALD, "emr-steps", "wmsched-script", "ansor-script", brief=True),
    Row(KEPT, EMERALD, AHEAD, "wmsched-script", "ansor-script", of=MODELS),
    Row(KEPT, EMERALD, AHEAD, "wmsched-script", "ansor-script", of=WHOLE, main=False),
    Row(KEPT, EMERALD, AHEAD, "wmsched-script", EAGER, of=WHOLE),
    Row(SCRIPT, ZEN5, STEPS, "wmsched-script", "ansor-script", brief=True),
    Row(SCRIPT, ZEN5, STEPS, "wmsched-script", "ansor-script", 16, 64),
    Row(SCRIPT, ZEN5, "zen5-long", "wmsched-script", "ansor-script", 1024, 1024),
    Row(SCRIPT, ZEN5, STEPS, "wmsched-script", "ansor-script", of=MODELS),
    Row(SCRIPT, ZEN5, STEPS, "wmsched-script", "ansor-script", of=WHOLE, main=False),
    Row(SCRIPT, ZEN5, STEPS, "wmsched-script", EAGER, of=WHOLE),
    Row(SCRIPT, ZEN5, "zen5-tenset", "wmsched-script", "tenset-script"),
    Row(SCRIPT, ZEN5_TWO, "zen5-two-threads", "wmsched-script", "ansor-script", main=False),
    Row(SCRIPT, ZEN3, "zen3-tiles", LEARNT_AVX2, "ansor-script", brief=True),
    Row(SCRIPT, ZEN3, "zen3-sixteen", LEARNT_AVX2, "ansor-script", 16, 64),
    Row(SCRIPT, ZEN3, "zen3-tiles", LEARNT_AVX2, "ansor-script", of=MODELS),
    Row(IN_TURN, ZEN3, "zen3-in-turn", LEARNT_AVX2, "ansor-script", main=False),
    Row(IN_TURN, ZEN3, "zen3-in-turn", LEARNT_AVX2, "ansor-script", of=MODELS, main=False),
    Row(IN_TURN_BEFORE, ZEN3, "zen3-in-turn", f"{LEARNT_AVX2}-before", "ansor-script", main=False),
    Row(IN_TURN_BEFORE, ZEN3, "zen3-in-turn", f"{LEARNT_AVX2}-before", "ansor-script", of=MODELS, main=False),
    Row(ONE_TILE, ZEN3, "zen3-avx2", LEARNT_AVX2, "ansor-script", main=False),
    Row(ONE_TILE, ZEN3, "zen3-avx2", LEARNT_AVX2, "ansor-script", of=MODELS, main=False),
    Row(UNLEARNT, ZEN3, "zen3-script", "wmsched-script", "ansor-script", main=False),
    Row(UNLEARNT, ZEN3, "zen3-script", "wmsched-script", "ansor-script", 16, 64, main=False),
    Row(UNLEARNT, ZEN3, "zen3-script", "wmsched-script", "ansor-script", of=MODELS, main=False),
    Row(SCRIPT, AVX2, "emr-avx2", "wmsched-script", "ansor-script", main=False),
    Row(ALONE, ICE, "xeon-rounds-30", "wmsched", "ansor", main=False),
    Row(ALONE, ZEN5, "zen5-calls-30", "wmsched", "ansor", main=False),
    Row(ALONE, ZEN5, "zen5-calls-30", "wmsched", "ansor", 16, 16, main=False),
    Row(ALONE, ZEN5, "zen5-calls-30", "wmsched", "ansor", 16, 64, main=False),
    Row(ALONE, ZEN4, "zen4-calls-30", "wmsched", "ansor", main=False),
    Row(ALONE, ZEN4, "zen4-calls-30", "wmsched", "ansor", 16, 64, main=False),
    Row(TUNE_TIR, ZEN5, "zen5-meta-script", "meta-wmsched-script", "meta-xgb-script", brief=True),
    Row(META, ICE, "xeon-meta-64", "meta-wmsched", "meta-xgb", main=False),
    Row(META, ICE, "xeon-meta-16", "meta-wmsched", "meta-xgb", 16, 16, main=False),
    Row(META, ZEN5, "zen5-meta", "meta-wmsched", "meta-xgb", main=False),
    Row(META, ZEN5, "zen5-meta", "meta-wmsched", "meta-xgb", 16, 16, main=False),
    Row(META, ZEN4, "meta-64", "meta-wmsched", "meta-xgb", main=False),
    Row(META, ZEN4, "meta-16", "meta-wmsched", "meta-xgb", 16, 16, main=False),
    Row(SPACES, H100, "h100-parts", "meta-wmsched-parts", "meta-xgb", brief=True),
    Row(SEARCH, H100, "h100-meta", "meta-wmsched-search", "meta-xgb", main=False),
    Row(META, H100, "h100-meta", "meta-wmsched", "meta-xgb", main=False),
    Row(META, H200, "h200-meta", "meta-wmsched", "meta-xgb", main=False),
)
MAIN = tuple(row for row in ROWS if row.main)
BRIEF = tuple(row for row in ROWS if row.brief)
STOCK = {
    "ansor-script": "stock Ansor",
    "ansor": "stock Ansor",
    "tenset-script": "TenSet's XGBModel",
    "meta-xgb": "stock XGBModel",
    "meta-xgb-script": "stock",
}
PAPERS = {"ansor-script": "ansor", "ansor": "ansor", "tenset-script": "tenset"}  # baselines by its names


def ratios(row: Row, data: Outcomes) -> Ratios:
    """Their seconds / ours of each subgraph or model that both have, one a seed."""
    theirs, ours = usual(row.against), usual(row.trials)
    if row.of == WHOLE:
        rival = whole.rivals(data)[row.theirs if row.theirs == EAGER else f"{row.theirs}, {theirs}"]
        mine = whole.compiled(data)[row.ours, ours]
        return {model: [rival[model] / one for one in each] for model, each in mine.items() if model in rival}
    make = weighted.ratios if row.of == MODELS else Outcomes.ratios
    return make(data, row.theirs, theirs, row.ours, ours)


def published(row: Row) -> str:
    """The paper's number: its CPU's, or else its GPU's, marked so; "" where it has none of this kind."""
    if row.theirs not in PAPERS or row.of == WHOLE:
        return ""
    asked = ("models" if row.of == MODELS else "subgraphs", PAPERS[row.theirs], row.trials, row.against)
    found = {
        claim.platform: f"{claim.speedup:.2f}"
        for claim in paper.claims()
        if (claim.group, claim.baseline, claim.ours_budget, claim.baseline_budget) == asked
    }
    return found.get("CPU") or (f"{found['GPU']}, GPU" if "GPU" in found else "")


def searching(row: Row, data: Outcomes) -> str:
    """Our searches' seconds over theirs; "" where programs were timed elsewhere, or nothing was searched."""
    if row.of == WHOLE:
        return ""
    wanted = set(data.tasks if row.of == MODELS else data.representatives)
    pairs = [
        (mine.line, theirs.line)
        for task, mine, theirs in data.both(row.ours, usual(row.trials), row.theirs, usual(row.against))
        if task in wanted
    ]
    if any(line.get("deferred") or "search_seconds" not in line for pair in pairs for line in pair):
        return ""
    ours, theirs = (sum(float(line["search_seconds"]) for line in part) for part in zip(*pairs))
    return f"{ours / theirs:.2f}"


def read(files: str, root: Path = RESULTS) -> Outcomes:
    """What `Row.files` say."""
    return Outcomes(read_all([root / f"{name}.jsonl" for name in files.split()]))


def line(row: Row, data: Outcomes) -> list[str]:
    """A row of the table. ValueError if its files are of another machine, or have nothing to compare."""
    name, family = row.machine
    if family not in data.processor:
        raise ValueError(f"{row.files}: measured on {data.processor}, not on {name} {family}")
    found = ratios(row, data)
    if not found:
        raise ValueError(f"{row.files}: {row.ours} and {row.theirs} have no task in common")
    trials = str(row.trials) if row.trials == row.against else f"{row.trials} to {row.against}"
    against = STOCK.get(row.theirs, row.theirs)
    counts = [len(each) for each in found.values()]
    some = " of 7" if row.of and len(found) < 7 else ""
    what = f"{len(found)}{some} {row.of or 'subgraphs'}" + (f", {seeds(counts)}" if max(counts) > 1 else "")
    means = [mean(found), interval(found), wins(found)]
    return [row.what, name, what, against, trials, *means, published(row), searching(row, data)]


def table(rows: Sequence[Row]) -> str:
    """Rows as Markdown."""
    head = ["what is replaced", "on", "of", "against", "trials"]
    head += ["times as fast", "95 % interval", "faster on", "paper", "search time"]
    note = (
        "Printed by `python -m benchmarks.report.glance` from the lines in `benchmarks/results`; one seed "
        "where none is named. Times as fast: their latency over ours, the geometric mean. Search time: ours over "  # noqa: E501
        "theirs, of all searches together."
    )
    if any(row.trials != row.against for row in rows):
        note += " 16 to 64: ours of 16 trials beside theirs of 64."
    files = {name: read(name) for name in dict.fromkeys(row.files for row in rows)}
    lines = [line(row, files[row.files]) for row in rows]
    return Table(title="", head=head, rows=lines, note=note).markdown()


def brief(rows: Sequence[Row]) -> str:
    """Rows as Markdown of at most 120 columns, without the paper's numbers and the time of the searches."""
    head = ["scheduler", "machine", "against", "times as fast", "95 % interval", "faster on"]
    names = {SCRIPT: "AutoScheduler, tutorial script", TUNE_TIR: "MetaSchedule, `tune_tir`"}
    names[SPACES] = "MetaSchedule, with our spaces"
    files = {name: read(name) for name in dict.fromkeys(row.files for row in rows)}
    found = [line(row, files[row.files]) for row in rows]
    lines = [
        [names.get(what, what), on, against, *rest]
        for what, on, _, against, _, *rest in (each[:8] for each in found)
    ]
    trials = {row.trials for row in rows} | {row.against for row in rows}
    if len(trials) != 1:
        raise ValueError(f"the brief table is of one number of trials, these rows are of {sorted(trials)}")
    note = (
        f"Subgraphs of seven networks, {trials.pop()} measured candidates each; stock's latency over ours, "
        "geometric means.\nPrinted by `python -m benchmarks.report.glance --brief` from the lines in "
        "`benchmarks/results`."
    )
    return Table(title="", head=head, rows=lines, note=note).markdown()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report.glance", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--into", type=Path, help="write the table between this page's marks")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="every row, not the main ones alone")
    which.add_argument("--brief", action="store_true", help="the first page's rows, with fewer columns")
    options = parser.parse_args(argv)
    try:
        made = brief(BRIEF) if options.brief else table(ROWS if options.all else MAIN)
        if options.into is None:
            print(made)
        else:
            page = options.into.read_text(encoding="utf-8")
            options.into.write_text(MARKS.replaced(page, made), encoding="utf-8")
            print(options.into)
    except (ValueError, OSError) as error:
        print(f"glance: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
