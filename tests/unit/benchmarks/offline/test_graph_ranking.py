"""Ranked configurations of whole graphs: folds by family, metrics, baselines, and the table of the lines."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.offline import graph_ranking as ranking
from benchmarks.offline.graph_data import cost_columns, folds_of, prepared, read
from benchmarks.offline.graph_trees import cost_scores, rank_scores
from benchmarks.plan import read_all
from benchmarks.scoreboard import graphs as figures
from benchmarks.scoreboard.figure import RESULTS, ROOT
from data_builder.graphs.encoding import Node, encode
from data_builder.graphs.job import Job, Plan, Timing
from data_builder.graphs.sampling import Part

OPTIONS = ["kernel", "direct", "winograd2"]
COSTS = {0: 3e-4, 1: 5e-4, 2: 1e-4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of graphs of some convolutions, of which Winograd's is always fastest, direct slowest."""
    out = tmp_path_factory.mktemp("graphs")
    for number, name in enumerate(["a-0", "a-1", "b-0", "c-0", "d-0"]):
        draw, sites, job = np.random.default_rng(number), 2 + number % 3, Job(out, name)
        job.begin()
        size = float(8 * (1 + number))
        feat = (
            (28, size * 100),
            (31, 3.0),
            (32, 3.0),
            (33, size),
            (34, size),
            (37, 3.0),
            (38, 3.0),
            (45, 1.0),
        )
        nodes = [Node(121, ((28, size),), (), 4)]
        nodes += [Node(126, (*feat, (107, 1.0)), (site,), 4) for site in range(sites)]
        parts = [Part((site,), "k", ((0,), (1,), (2,))) for site in range(sites)]
        chosen = [
            (0,) * sites,
            *{tuple(map(int, draw.integers(0, 3, sites))) for _ in range(20)} - {(0,) * sites},
        ]
        variants = [(f"v{k}", "k", (k,), [[1]]) for k in COSTS]
        job.write(
            Plan([OPTIONS] * sites, parts, chosen, [], variants), encode(nodes, range(1, sites + 1)), []
        )
        seconds = np.array([sum(size * COSTS[k] for k in one) for one in chosen])
        for noise in (1e-3, 2e-3):
            noisy = seconds * (1 + noise * draw.standard_normal(len(seconds)))
            job.add(Timing(noisy, size * np.array(list(COSTS.values()))))
        job.finish()
    return out


def test_a_family_is_in_one_fold_alone(folder) -> None:
    graphs = read(folder)
    found = folds_of(graphs, 2)
    assert set(found) == {"a", "b", "c", "d"} and found["a"] == 0 and found["b"] == 1
    assert folds_of(graphs[::-1], 2) == found
    with pytest.raises(ValueError, match="wmsched-data graphs --out"):
        read(folder / "none")


def test_options_are_read_back(folder) -> None:
    graph = read(folder)[0]
    assert graph.site_options.tolist() == [[4, 0, 2]] * 2 and graph.rules == 0
    sums = [sum(8 * COSTS[int(k)] for k in row) * 1e9 for row in graph.numbers]
    assert graph.added == pytest.approx(sums) and graph.runtimes == pytest.approx(sums, rel=0.01)


def test_grades_of_costs_stand_at_their_sites(folder) -> None:
    graph = read(folder)[0]
    found, numbers = cost_columns(graph), graph.numbers
    assert found[0].tolist() == [[2, 2], [2, 2]]  # the rules cost as much as the rules
    by_option = {int(k): set(found[numbers == k][:, 0].tolist()) for k in np.unique(numbers)}
    assert by_option == {0: {2}, 1: {5}, 2: {-1}}  # 5/3 and 1/3 of the rules'
    told = prepared(graph, costs=True).configs_at(np.arange(3))
    assert np.array_equal(told[:, :, 22:24], found[:3])
    assert (prepared(graph).configs_at(np.arange(3))[:, :, 22:24] == -1).all()


def test_both_trees_rank_a_family_that_they_have_not_seen(folder) -> None:
    graphs = read(folder)
    for scores in (rank_scores, cost_scores):
        (found,) = scores(graphs[:-1], graphs[-1:], 0)
        assert ranking.quality(graphs[-1], found)["tau"] > 0.8, scores


def test_random_configurations_do_as_expected(folder) -> None:
    graph, draw = read(folder)[2], np.random.default_rng(0)
    found = ranking.of_random(graph)
    drawn = [graph.runtimes[draw.integers(0, len(graph.runtimes), 5)].min() for _ in range(20_000)]
    assert found["best_of_5"] == pytest.approx(np.mean(graph.runtimes.min() / drawn), abs=0.01)
    rules = ranking.of_rules(graph)["best_of_1"]
    assert rules == graph.runtimes.min() / graph.runtimes[0] < found["best_of_5"] < 1


def test_lines_are_resumed_and_become_table_and_figures(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ranking, "OPTIONS", (*ranking.OPTIONS, "training.epochs=2", "network.width=8"))
    out = tmp_path / figures.LINES
    argv = ["--data", str(folder), "--folder", str(tmp_path), "--seeds", "1", "--out", str(out)]
    only = ["--only", "trees,tree costs,tgraph,tgraph without edges"]
    assert ranking.main([*argv, *only]) == 0
    first = out.read_text()
    assert ranking.main([*argv, *only]) == 0 and out.read_text() == first  # nothing is made twice
    lines = [json.loads(line) for line in first.splitlines()]
    assert len(lines) == 5 * (1 + 3 + 4)
    text = ranking.block(lines, "x.jsonl")
    assert "5 graphs of 4 families" in text and "| TGraph without edges |" in text
    program = ranking.by_graph(lines, "ilp")
    assert all(one["tau"] > 0.8 and one["best_of_5"] > 0.99 for one in program.values())
    board = {figure.name: figure.measure(tmp_path) for figure in figures.GRAPHS}
    assert board["graph.rules_over_best"].value == pytest.approx(3, rel=0.3)
    assert -1 <= board["graph.tau"].low <= board["graph.tau"].value <= 1
    page = tmp_path / "page.md"
    page.write_text(f"before\n{ranking.MARKS.begin}\n{ranking.MARKS.end}\nafter\n")
    assert ranking.main(["--out", str(out), "--into", str(page)]) == 0
    assert "| ranked by |" in page.read_text() and page.read_text().endswith("after\n")


def test_without_a_folder_it_says_what_it_is_for(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit):
        ranking.main(["--out", str(tmp_path / "lines.jsonl")])
    assert "--folder is wanted" in capsys.readouterr().err


def test_the_page_has_the_table_of_the_committed_lines() -> None:
    lines = ROOT / RESULTS / figures.LINES
    page = (ROOT / "docs/explanation/graph.md").read_text(encoding="utf-8")
    place = f"{RESULTS.as_posix()}/{figures.LINES}"
    assert ranking.MARKS.between(page) == ranking.block(read_all([lines]), place).strip(), (
        f"python -m benchmarks.offline.graph_ranking --out {place} --into docs/explanation/graph.md"
    )


def test_the_committed_graphs_are_those_of_the_lines() -> None:
    lines = read_all([ROOT / RESULTS / figures.LINES])
    graphs = {graph.name: graph for graph in read(ROOT / ranking.DATA)}
    assert len(graphs) >= 20 and len({graph.family for graph in graphs.values()}) >= 8
    said = {line["graph"]: line["configurations"] for line in lines if line["kind"] == ranking.REPEAT}
    assert said == {name: len(graph.runtimes) for name, graph in graphs.items()}
    assert min(said.values()) >= 40
    for name in ("resnet-0", "transformer-0"):
        told = {line["tau"] for line in lines if line.get("method") == "ilp" and line["graph"] == name}
        assert told == {round(ranking.quality(graphs[name], graphs[name].added)["tau"], 4)}
