"""Plans, results files and tables, from made-up result lines with known answers."""

import json

import numpy as np
import pytest
from checkout import RESULTS
from result_lines import again, run_line

from benchmarks import leak
from benchmarks.outcomes import ratios
from benchmarks.outcomes.outcomes import Outcomes, Setting
from benchmarks.plan import Results, Run, plan, read
from benchmarks.report import plots, report, sections
from wmsched import zoo
from wmsched.base.errors import BundleError


def failed_line(task, method):
    return run_line(task, method, 1.0, status="timeout", error="not finished")


def test_methods_take_turns_within_a_task():
    runs = plan(["t", "u"], ["a", "b"], [16, 128], [0, 1])
    assert [(r.task, r.method) for r in runs[:4]] == [("t", "a"), ("t", "b")] * 2
    assert [r.task for r in runs] == ["t"] * 8 + ["u"] * 8
    assert {(r.budget, r.round_size) for r in runs} == {(16, 16), (128, 64)}
    assert {r.round_size for r in plan(["t"], ["a"], [64], [0], round_size=16)} == {16}
    with pytest.raises(ValueError, match="no methods"):
        plan(["t"], [], [16], [0])


def test_the_second_measurement_is_the_one_that_counts():
    lines = [run_line("t", "ansor", 1.0), run_line("t", "wmsched", 0.5)]
    setting = Setting(16, 16)
    first = Outcomes(lines)
    assert first.ratios("ansor", setting, "wmsched", setting) == {"t": [2.0]}
    second = Outcomes([*lines, again("t", ("ansor", 1.0, 1.2), ("wmsched", 0.5, 0.8))])
    assert second.ratios("ansor", setting, "wmsched", setting) == {"t": [pytest.approx(1.5)]}


def test_a_second_measurement_of_an_older_schedule_is_not_used():
    lines = [run_line("t", "a", 1.0), again("t", ("a", 1.0, 3.0)), run_line("t", "a", 2.0)]
    (outcome,) = Outcomes(lines).all.values()
    assert (outcome.seconds, outcome.again) == (2.0, False)


def test_seeds_are_paired_and_means_are_geometric():
    lines = [run_line("t", "ansor", s, seed=i) for i, s in enumerate([4.0, 1.0, 9.0])]
    lines += [run_line("t", "wmsched", s, seed=i) for i, s in enumerate([1.0, 1.0])]
    lines += [run_line("u", "ansor", 1.0), run_line("u", "wmsched", 2.0)]
    setting = Setting(16, 16)
    found = Outcomes(lines).ratios("ansor", setting, "wmsched", setting)
    assert found == {"t": [4.0, 1.0], "u": [0.5]}
    assert ratios.by_task(found) == pytest.approx([2.0, 0.5])
    text = report.markdown(lines)
    assert "| **geometric mean** |  | **1.00** |" in text
    assert "| faster on |  | 1 of 2 |" in text


def test_the_bootstrap_interval_holds_the_mean_and_shrinks_with_agreement():
    wide = ratios.bootstrap({str(i): [v] for i, v in enumerate([0.5, 1.0, 2.0, 4.0])})
    narrow = ratios.bootstrap({str(i): [v] for i, v in enumerate([1.4, 1.41, 1.42, 1.43])})
    assert wide[0] < 2**0.5 < wide[1]
    assert wide[0] < 1.0 and wide[1] > 2.0
    assert 1.4 <= narrow[0] < narrow[1] <= 1.43
    assert ratios.bootstrap({"t": [2.0, 2.0]}) == pytest.approx((2.0, 2.0))


def test_a_run_whose_best_computes_something_else_is_no_outcome():
    line = run_line("t", "ansor", 1.0) | {"best_record": "a"}
    entry = {"method": "ansor", "budget": 16, "round_size": 16, "seed": 0, "record": "a"}
    again = {"kind": "remeasure", "task": "t", "status": "ok"}
    good = again | {"entries": [entry | {"median": 2.0, "spread": 0.0}]}
    wrong = again | {"entries": [entry | {"error": "ValueError: it computes something else: by 3"}]}
    instead = again | {"entries": [entry | {"record": "b", "instead_of": "a", "median": 3.0, "spread": 0.0}]}
    assert [o.seconds for o in Outcomes([line, good]).all.values()] == [2.0]
    found = Outcomes([line, good, wrong])
    assert not found.all and len(found.failures) == 1 and "something else" in found.broken[0]
    assert "of its best schedule: it computes something else" in report.markdown([line, wrong])
    (found,) = Outcomes([line, wrong, instead]).all.values()
    assert (found.seconds, found.record, found.instead) == (3.0, "b", True)
    failed = again | {
        "entries": [entry | {"record": "b", "instead_of": "a", "error": "RuntimeError: no build"}]
    }
    assert not Outcomes([line, failed]).all  # and not by what the wrong one took


def test_runs_on_one_thread_and_on_two_are_no_report():
    lines = [run_line("t", "ansor", 1.0, threads=1), run_line("t", "wmsched", 0.5, threads=2)]
    with pytest.raises(ValueError, match="on 1 and 2 threads"):
        Outcomes(lines)
    Outcomes([line | {"threads": 1} for line in lines] + [run_line("u", "ansor", 1.0)])


def test_of_few_tasks_the_interval_is_student_s():
    few = {str(i): [v] for i, v in enumerate([1.0, 1.2, 1.5, 1.8])}
    low, high = ratios.confidence(few)
    logs = np.log([1.0, 1.2, 1.5, 1.8])
    half = 3.182 * logs.std(ddof=1) / 2  # Student's t with three degrees of freedom
    assert (low, high) == pytest.approx((np.exp(logs.mean() - half), np.exp(logs.mean() + half)), rel=1e-3)
    drawn = ratios.bootstrap(few)
    assert low < drawn[0] and drawn[1] < high
    many = {str(i): [1.0 + i / 10] for i in range(ratios.FEW)}
    assert ratios.confidence(many) == ratios.bootstrap(many)
    assert ratios.confidence({"t": [2.0, 2.0]}) == pytest.approx((2.0, 2.0))


def test_smaller_budgets_are_set_against_larger_ones():
    found = [("ansor", 16, 4.0), ("ansor", 64, 2.0), ("wmsched", 16, 1.0), ("wmsched", 64, 0.5)]
    lines = [run_line("t", method, seconds, budget=budget) for method, budget, seconds in found]
    (table,) = sections.cross_budget(Outcomes(lines))
    text = table.markdown()
    assert "| wmsched, 16 trials against ansor, 64 trials | **2.00** |" in text
    assert len(table.rows) == 1


def test_smaller_rounds_are_set_against_the_usual_ones():
    lines = [
        run_line("resnet50/0", "ansor", 4.0, budget=64),
        run_line("resnet50/0", "wmsched", 2.0, budget=64),
        run_line("resnet50/0", "wmsched", 1.0, budget=64, round_size=16),
    ]
    (table,) = sections.smaller_rounds(Outcomes(lines))
    assert [row[:2] for row in table.rows] == [
        ["wmsched, 64 trials in rounds of 16 against wmsched, 64 trials", "**2.00**"],
        ["wmsched, 64 trials in rounds of 16 against ansor, 64 trials", "**4.00**"],
    ]
    assert sections.smaller_rounds(Outcomes(lines[:2])) == []


def test_headroom_is_against_the_best_known_of_the_same_search():
    found = [("ansor", 16, 4.0), ("wmsched", 16, 3.0), ("wmsched", 64, 2.0), ("meta-wmsched", 16, 1.0)]
    lines = [run_line("t", method, seconds, budget=budget) for method, budget, seconds in found]
    (table,) = sections.headroom(Outcomes(lines))
    assert [row[:3] for row in table.rows] == [
        ["ansor", "16 trials", "**2.00**"],
        ["wmsched", "16 trials", "**1.50**"],
        ["wmsched", "64 trials", "**1.00**"],
        ["meta-wmsched", "16 trials", "**1.00**"],
    ]
    assert not sections.headroom(Outcomes(lines[:1]))


def test_equal_time_uses_the_best_known_then():
    mine = [[1, 5.0, 8.0], [16, 25.0, 2.0]]
    theirs = [[1, 8.0, 16.0], [16, 100.0, 1.0]]
    curves = [("t", mine, theirs)]
    assert ratios.time_grid(curves) == [10.0, 20.0, 30.0, 60.0]
    assert ratios.ratios_at(curves, 10.0) == {"t": [2.0]}
    assert ratios.ratios_at(curves, 30.0) == {"t": [8.0]}
    with pytest.raises(ValueError, match="nothing was measured"):
        ratios.best_at(theirs, 1.0)


def test_model_latency_is_the_weighted_sum_of_all_its_tasks():
    rows = zoo.find("gpt-neo-2.7b-attention")
    lines = [run_line(row["name"], "ansor", 1e-3 * (row["index"] + 1)) for row in rows]
    lines += [run_line(row["name"], "wmsched", 1e-3) for row in rows[:-1]]  # not complete: not summed
    expected = sum(row["weight"] * (row["index"] + 1) for row in rows)
    (table,) = sections.models(Outcomes(lines), Setting(16, 16))
    text = table.markdown()
    assert f"| gpt-neo-2.7b-attention | {expected:.3f} |" in text
    assert sections.models(Outcomes(lines[:2]), Setting(16, 16)) == []


def test_failures_and_problems_are_told():
    lines = [run_line("t", "ansor", 1.0), failed_line("t", "wmsched"), failed_line("u", "ansor")]
    lines += [run_line("u", "ansor", 1.0, problems={"writing down a candidate: X": 3})]
    text = report.markdown(lines)
    assert "- t, wmsched, 16: not finished" in text
    assert "u, ansor, 16: not finished" not in text  # done later
    assert "writing down a candidate: X, 3 times" in text
    assert "No run has finished" in report.markdown([failed_line("t", "a")])


def test_results_survive_a_kill_in_the_middle_of_a_line(tmp_path):
    path = tmp_path / "r.jsonl"
    Results(path).append(run_line("t", "a", 1.0))
    with path.open("a") as file:
        file.write('{"kind": "run", "task": "u", "meth')
    results = Results(path)
    assert [line["task"] for line in results.lines] == ["t"]
    results.append(run_line("v", "a", 1.0))
    assert [line["task"] for line in read(path)] == ["t", "v"]


def test_a_bad_line_is_refused_with_its_place(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(run_line("t", "a", 1.0)) + '\n{"kind": "other"}\n')
    with pytest.raises(ValueError, match=r"r\.jsonl:2: not a benchmark result"):
        Results(path)


def test_what_is_done_depends_on_the_model(tmp_path):
    results = Results(tmp_path / "r.jsonl")
    results.append(run_line("t", "wmsched", 1.0, fingerprint="old"))
    results.append(run_line("t", "ansor", 1.0, fingerprint=None))
    results.append(failed_line("u", "ansor"))
    done = results.done({"wmsched": "new", "ansor": None})
    assert list(done) == [Run("t", "ansor", 16, 16, 0)]
    assert len(results.done({"wmsched": "old"})) == 2


@pytest.mark.parametrize("key", ["workload_key", "tensorir_key"])  # AutoScheduler's, MetaSchedule's
def test_a_bundle_that_has_seen_a_task_is_refused(tmp_path, key):
    (row,) = zoo.find("conv2d-relu")
    (tmp_path / "config.json").write_text(
        json.dumps({"data": {"fingerprint": {"workloads": [leak.workload_hash(row[key])]}}})
    )
    fingerprint = leak.read_fingerprint(tmp_path)
    with pytest.raises(BundleError, match=f"trained on 1 of the tasks to be measured \\({row['name']}\\)"):
        leak.check(fingerprint, zoo.find("resnet50"), model="it")
    leak.check(fingerprint, zoo.find("gpt2"), model="it")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BundleError, match="no data fingerprint"):
        leak.read_fingerprint(tmp_path)


def test_another_model_in_the_same_folder_has_another_digest(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    before = leak.bundle_digest(tmp_path)
    (tmp_path / "MODEL_CARD.md").write_text("words")
    assert leak.bundle_digest(tmp_path) == before
    (tmp_path / "ranker.ubj").write_bytes(b"1")
    assert leak.bundle_digest(tmp_path) != before


def test_plots_are_drawn_from_the_same_lines(tmp_path):
    pytest.importorskip("matplotlib")
    found = [("t", "ansor", 2.0), ("t", "wmsched", 1.0), ("u", "ansor", 1.0), ("u", "wmsched", 3.0)]
    lines = [run_line(*one) for one in found]
    written = plots.draw(Outcomes(lines), tmp_path / "out.png")
    assert [path.name for path in written] == ["out.png", "out-time.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_costs_and_times_of_kept_processes_are_told_apart():
    lines = [
        run_line("t", "ansor", 2.0, search_seconds=40.0),
        run_line("u", "ansor", 2.0, search_seconds=20.0, kept_workers=True),
        run_line("t", "wmsched", 1.0, search_seconds=20.0),
        run_line("u", "wmsched", 1.0, search_seconds=10.0),
    ]
    (table,) = sections.costs(Outcomes(lines))
    assert [(row[0], row[2], row[3]) for row in table.rows] == [
        ("ansor", "1", "40.0"),
        ("ansor, processes kept", "1", "20.0"),
        ("wmsched", "2", "15.0"),
    ]
    curves = ratios.paired_curves(Outcomes(lines), "wmsched", "ansor", Setting(16, 16))
    assert [task for task, *_ in curves] == ["t"]


@pytest.mark.parametrize("name", ["dense-layout", "xeon-timing-noise", "zen5-models", "zen5-peak"])
def test_a_file_of_any_benchmark_is_taken_up_again(name, tmp_path):
    """Each was written through `Results`, which reads what there is before it appends."""
    committed = RESULTS / f"{name}.jsonl"
    copy = tmp_path / committed.name
    copy.write_bytes(committed.read_bytes())
    assert len(Results(copy).lines) == len(committed.read_text().splitlines())
