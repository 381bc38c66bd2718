"""The report beside the paper: transcription, verdicts, ablations, PyTorch, the page, the README's block."""

import base64
import json
import re
from pathlib import Path

import pytest
from checkout import ROOT
from result_lines import run_line

from benchmarks import suites
from benchmarks.outcomes import paper, ratios, weighted
from benchmarks.outcomes.outcomes import Outcomes, Setting
from benchmarks.outcomes.tables import Table
from benchmarks.plan import read
from benchmarks.report import against, figures, page, readme, report, whole
from wmsched import zoo


def representatives(method, seconds, **more):
    return [
        run_line(row["name"], method, seconds * (1 + i), type=row["type"], **more)
        for i, row in enumerate(zoo.representatives())
    ]


@pytest.mark.parametrize("baseline", ["ansor", "tenset"])
@pytest.mark.parametrize("budget", [16, 64, 1024])
def test_table_3_is_transcribed_so_that_its_rows_give_its_means(baseline, budget):
    values = [paper.table3(entry.type, baseline, budget) for entry in suites.REPRESENTATIVES]
    mean = paper.figures()["table3_means"][baseline][str(budget)]
    assert round(ratios.geometric_mean(values), 2) == mean
    claimed = [
        c.speedup
        for c in paper.claims()
        if (c.where, c.baseline, c.baseline_budget, c.ours_budget) == ("Table 3", baseline, budget, budget)
    ]
    assert claimed == [mean]


def test_table_1_counts_as_the_networks_do():
    assert sum(paper.figures()["table1"].values()) == 103
    assert list(paper.figures()["table1"]) == zoo.models()


def test_what_is_ahead_and_what_falls_short_is_said():
    lines = representatives("ansor", 3e-3, budget=64) + representatives("wmsched", 1e-3, budget=64)
    lines += representatives("tenset", 1.5e-3, budget=64)
    found = {v.claim.what: v for v in against.verdicts(Outcomes(lines)) if v.claim.platform == "CPU"}
    ahead = found["representative subgraphs: ours-64 over ansor-64"]
    assert (ahead.word, ahead.partial, pytest.approx(ahead.value)) == ("ahead", False, 3.0)
    assert found["weighted model latency: ours-64 over ansor-64"].word == "not measured"
    text = report.markdown(lines)
    assert "1.54 (22 of 22), CPU, Figure 7 | **3.00** | 3.00 to 3.00 | 22 of 22 | ahead |" in text
    assert "ours-64 over tenset-64, wmsched: 1.50 against 1.79" in text
    assert "Not measured: representative subgraphs: ours-1024 over ansor-1024" in text
    # a baseline that we do not beat for certain
    lines[-1]["best_seconds"] = 1e-6
    wide = next(v for v in against.verdicts(Outcomes(lines)) if v.claim.baseline == "tenset")
    assert "does not exclude 1" in wide.word


def test_recorded_logs_of_other_networks_are_not_set_beside_the_paper():
    lines = [run_line("some-log", m, s, budget=64) for m, s in (("ansor", 2.0), ("wmsched", 1.0))]
    assert against.claims(Outcomes(lines)) == []
    assert "Beside the paper" not in report.markdown(lines)


def test_only_representatives_count_in_the_means_of_subgraphs():
    lines = representatives("ansor", 2e-3) + representatives("wmsched", 1e-3)
    lines += [run_line("gpt2/0", "ansor", 1.0), run_line("gpt2/0", "wmsched", 9.0)]
    setting = Setting(16, 16)
    found = Outcomes(lines).ratios("ansor", setting, "wmsched", setting)
    assert len(found) == 22 and set(ratios.by_task(found)) == {2.0}


def test_an_ablation_is_no_method_of_ours_and_its_increase_is_in_percent():
    lines = representatives("wmsched", 1e-3, budget=64) + representatives("ansor", 2e-3, budget=64)
    lines += representatives("wmsched@bundles/x86-no-phi", 1.5e-3, budget=64)
    data = Outcomes(lines)
    assert data.ours == ["wmsched"] and data.baselines == ["ansor"]
    (changes,) = against.ablation_changes(data, Setting(64, 64)).values()
    assert list(changes.values()) == pytest.approx([50.0] * 22)
    (table,) = against.ablations(data)
    assert table.rows == [
        ["w/o action features", "+50.0 %", "+50.0 %", "22 of 22", "+12.0 %", "", "14 of 22"]
    ]
    # another bundle is another method, not an ablation
    assert Outcomes(representatives("wmsched@new", 1.0)).ours == ["wmsched@new"]


def test_searches_of_different_kinds_are_not_compared():
    lines = [run_line("t", m, 1.0) for m in ("ansor", "wmsched", "meta-xgb", "meta-wmsched")]
    assert Outcomes(lines).pairs() == [("wmsched", "ansor"), ("meta-wmsched", "meta-xgb")]


def test_a_task_of_two_models_needs_to_be_tuned_once():
    keys = [row["workload_key"] for row in zoo.rows()]
    twice = {key for key in keys if keys.count(key) > 1}
    assert twice
    first = {row["workload_key"]: row["name"] for row in reversed(zoo.rows())}
    data = Outcomes([run_line(name, "ansor", 1e-3) for name in first.values()])
    assert len(data.tasks) == len(set(keys)) < len(keys)
    for model in zoo.models():
        occurrences = sum(row["weight"] for row in zoo.rows() if row["model"] == model)
        assert weighted.sums(data, model, "ansor", Setting(16, 16)) == {0: pytest.approx(1e-3 * occurrences)}


def test_a_model_is_summed_for_the_seeds_that_all_its_tasks_have():
    rows = zoo.find("gpt-neo-2.7b-attention")
    lines = [run_line(row["name"], "ansor", 1.0, seed=seed) for row in rows for seed in (0, 1)]
    lines += [run_line(row["name"], "ansor", 1.0, seed=2) for row in rows[1:]]
    assert list(weighted.sums(Outcomes(lines), "gpt-neo-2.7b-attention", "ansor", Setting(16, 16))) == [0, 1]


def test_pytorch_is_set_beside_the_weighted_latency():
    rows = zoo.find("gpt-neo-2.7b-attention")
    lines = [run_line(row["name"], "wmsched", 1e-3) for row in rows]
    torch = {"kind": "pytorch", "model": "gpt-neo-2.7b-attention", "threads": 1, "status": "ok"}
    total = 1e-3 * sum(row["weight"] for row in rows)
    lines.append(torch | {"executor": "eager", "median": 4 * total})
    lines.append(torch | {"executor": "compile", "status": "error", "error": "no C++ compiler"})
    first, second = whole.tables(Outcomes(lines))
    assert first.rows[-1] == ["gpt-neo-2.7b-attention", f"{4e3 * total:.3f}", f"{1e3 * total:.3f}"]
    assert "gpt-neo-2.7b-attention, compile: no C++ compiler" in first.note
    assert second.rows == [
        ["wmsched, 16 trials, over PyTorch eager, 1 thread", "**4.00**", "4.00 to 4.00", "1 of 1"]
    ]


def test_the_page_holds_every_table_and_figure_and_loads_nothing():
    pytest.importorskip("matplotlib")
    lines = []
    for budget in (16, 64):
        for method, seconds in (("ansor", 2e-3), ("wmsched", 1e-3), ("wmsched@no-state", 1.2e-3)):
            lines += representatives(method, seconds * 16 / budget, budget=budget)[::4]
    made = report.Report(Outcomes(lines))
    text = page.html(made)
    assert text == page.html(made)  # the same lines, the same bytes
    for table in made.overview() + made.details():
        assert f"<h2>{table.title}</h2>" in text
    images = re.findall(r'<img alt="(.*?)" src="data:image/svg\+xml;base64,(.*?)">', text)
    titles = [title for title, _ in images]
    assert any("Figure 7" in t for t in titles) and any("Figure 9" in t for t in titles)
    assert all(b"<svg" in base64.b64decode(image) for _, image in images)
    assert not re.search(r"(src|href)=\"(?!#|data:)", text) and "<script" not in text
    assert len(figures.draw(Outcomes([]))) == 0


def test_a_cell_is_escaped_in_the_page():
    assert "&lt;b&gt; <b>1</b> <code>x</code>" in Table(title="", head=["h"], rows=[["<b> **1** `x`"]]).html()


def test_the_block_is_written_between_the_markers_and_can_be_written_again(tmp_path):
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    results = folder / "r.jsonl"
    lines = representatives("ansor", 2e-3) + representatives("wmsched", 1e-3)
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    path = tmp_path / "README.md"
    other = readme.marks("other")
    marks = readme.marks()
    path.write_text(f"# Name\n\n{marks.begin}\nold\n{marks.end}\n\n{other.begin}\nkept\n{other.end}\nrest\n")
    assert report.main([str(results), "--readme", str(path)]) == 0
    text = path.read_text()
    assert text.startswith("# Name\n") and text.endswith("\nrest\n") and "old" not in text
    assert "## Results\n" in marks.between(text) and other.between(text) == "kept"
    assert readme.names(text) == ["", "other"]
    assert readme.command_of(text) == [Path("benchmarks/results/r.jsonl")]
    readme.write(path, [results])
    assert path.read_text() == text
    assert report.main([str(results), "--readme", str(path), "--block", "other"]) == 0
    both = path.read_text()
    assert marks.between(both) == marks.between(text) and "### Results on " in other.between(both)
    assert readme.command_of(both, "other") == [Path("benchmarks/results/r.jsonl")]
    page = tmp_path / "benchmarks" / "results" / "results.md"
    page.write_text(f"{marks.begin}\n{marks.end}\n")
    assert report.main([str(results), "--readme", str(page)]) == 0
    assert "--readme benchmarks/results/results.md`" in page.read_text()
    assert "Speedups in the mean" in both and "Table 3: speedup" in both


def test_the_block_says_which_search_has_fewer_representatives(tmp_path):
    lines = representatives("ansor", 2e-3) + representatives("wmsched", 1e-3)
    other = representatives("meta-xgb", 2e-3) + representatives("meta-wmsched", 1e-3)
    fewer = {line["task"] for line in other[:3]}
    path = tmp_path / "r.jsonl"

    def first_words(lines):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return readme.block(tmp_path, [Path("r.jsonl")]).split("\n\n")[1]

    assert first_words(lines + other).startswith("22 of the 22 representative subgraphs, 1 seed.")
    part = lines + [line for line in other if line["task"] in fewer]
    assert first_words(part).startswith(
        "Of the 22 representative subgraphs 22 in AutoScheduler and 3 in MetaSchedule, 1 seed."
    )
    second = [line | {"seed": 1, "best_record": f"{line['best_record']} again"} for line in lines]
    assert "subgraphs, 1 to 2 seeds." in first_words(lines + second[:1])
    assert "subgraphs, 2 seeds." in first_words(lines + second)


def test_times_of_two_processors_are_not_set_against_each_other():
    lines = [run_line("t", "ansor", 1.0, cpu="Xeon"), run_line("t", "wmsched", 1.0, cpu="EPYC")]
    with pytest.raises(ValueError, match=r"2 kinds of processors, Xeon and EPYC.*a report of its own"):
        report.markdown(lines)


def test_results_that_are_not_kept_in_the_repository_are_refused(tmp_path, capsys):
    (tmp_path / "README.md").write_text(f"{readme.marks().begin}\n{readme.marks().end}\n")
    (tmp_path / "r.jsonl").write_text(json.dumps(run_line("t", "ansor", 1.0)) + "\n")
    assert report.main([str(tmp_path / "r.jsonl"), "--readme", str(tmp_path / "README.md")]) == 2
    assert "copy it there and commit it" in capsys.readouterr().err


PAGE = (ROOT / readme.PAGE).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", readme.names(PAGE))
def test_every_number_of_a_block_is_printed_from_the_committed_lines(name):
    files = readme.command_of(PAGE, name)
    assert all(list(read(ROOT / file)) for file in files)
    assert readme.marks(name).between(PAGE) == readme.block(ROOT, files, name), (
        f"{readme.PAGE} is not what its results files say; write it again with python -m benchmarks.report "
        f"{' '.join(map(str, files))} --readme {readme.PAGE} --block '{name}'"
    )
