"""Tiny configurations and inputs by rules on names, and lines as page and figures have them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from benchmarks.operators.lines import read
from benchmarks.operators.workers import judge_all
from benchmarks.scoreboard import architectures
from benchmarks.scoreboard.figure import RESULTS, Part
from benchmarks.scoreboard.scoreboard import board
from benchmarks.zoo import table
from benchmarks.zoo.cases import apart
from benchmarks.zoo.inputs import Choices
from benchmarks.zoo.tiny import OPEN, Rule, shrink, whole


class Config(SimpleNamespace):
    """Configuration as transformers has them: settings, and others inside."""

    model_type = "made up"

    def to_dict(self):
        return vars(self)


def decoder(**settings):
    return Config(
        hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, head_dim=128, num_hidden_layers=6,
        intermediate_size=11008, vocab_size=32000, image_token_id=31999, pad_token_id=0, num_experts=64,
        layer_types=["local", "local", "full", "local", "local", "full"], hidden_act="silu", **settings,
    )  # fmt: skip


def test_widths_and_heads_keep_their_ratio_and_each_kind_of_layer_stays():
    made = shrink(
        decoder(vision=Config(hidden_size=1024, depth=24, patch_size=14, image_size=336)), Rule(8, 2)
    )
    assert (made.hidden_size, made.num_attention_heads, made.num_key_value_heads) == (512, 4, 1)
    assert made.hidden_size == made.num_attention_heads * made.head_dim
    assert (made.num_hidden_layers, made.layer_types) == (2, ["local", "full"])
    assert (made.vocab_size, made.image_token_id, made.pad_token_id, made.num_experts) == (128, 100, 0, 4)
    assert vars(made.vision) == {"hidden_size": 128, "depth": 2, "patch_size": 14, "image_size": 56}


def test_a_rule_that_divides_by_one_keeps_widths():
    made = shrink(decoder(), Rule(1, 0, images=False))
    assert (made.hidden_size, made.num_hidden_layers, len(made.layer_types)) == (4096, 6, 6)


def test_experts_become_few_and_the_words_that_an_index_chooses_stay():
    made = shrink(decoder(num_experts_per_tok=8, top_k=8, index_topk=2048), Rule(8, 2))
    assert (made.num_experts_per_tok, made.top_k, made.index_topk) == (2, 2, 2048)


class Series:
    """Configuration whose users say how far it looks ahead, and with how many features of time."""

    prediction_length: int | None = None
    num_time_features = 0

    def __init__(self, **given):
        self.given = given


def test_settings_that_users_give_are_given():
    assert whole(Series).given == OPEN
    assert vars(whole(Config)) == {}


class Encoder(torch.nn.Module):
    """Model that says which arguments it lacks."""

    main_input_name = "input_ids"
    config = Config(vocab_size=64, hidden_size=16)

    def forward(self, input_ids=None, bbox=None, attention_mask=None):
        if bbox is None:
            raise ValueError("You have to specify bbox")
        return input_ids + bbox[..., 0]


def test_a_failed_try_adds_the_arguments_that_its_message_names():
    model = Encoder()
    tries = Choices(model)
    for given in tries:
        try:
            model(**given)
        except ValueError as error:
            tries.failed(given, str(error))
        else:
            break
    assert set(given) == {"input_ids", "bbox"}


@pytest.mark.parametrize(
    ("found", "is_right"),
    [
        ([100.0, 0.05, float("-inf"), -3e38], True),
        ([100.0, 0.3, float("-inf"), -3e38], False),
        ([100.0, 0.0, float("nan"), -3e38], False),
        ([100.0, 0.0, float("-inf"), -1e38], False),
    ],
)
def test_a_value_may_differ_by_a_thousandth_of_the_largest_that_is_of_no_mask(found, is_right):
    wanted = torch.tensor([100.0, 0.0, float("-inf"), -3e38])
    assert (apart([torch.tensor(found)], [wanted]) == "") == is_right


def line(case, verdict, reason="", of=3):
    library = case.split("/")[0]
    return {
        "kind": "zoo_case", "case": case, "who": "ours", "library": library, "of": of, "verdict": verdict,
        "reason": reason,
    }  # fmt: skip


LINES = [
    line("timm/vgg", "right"),
    line("timm/beit", "refused", "aten.x.default: it is not supported " + "long " * 60),
    line("timm/naflexvit", "not exportable", "TypeError: 3 of <lambda> and 17"),
]


def test_the_share_is_of_what_torch_export_takes():
    assert table.tally(LINES, "timm")["exported"] == 2
    assert "| judged | 3 of 3 |" in table.counts(LINES)
    assert "| right, of those that torch.export takes | 50.0% |" in table.counts(LINES)


class Judge:
    """Worker that finds each case right."""

    def judge(self, case, _):
        return line(case, "right")

    def close(self):
        pass


def test_verdicts_that_are_asked_for_are_judged_anew(tmp_path, capsys):
    wanted = [(each["case"], "ours") for each in LINES]
    out = tmp_path / "lines.jsonl"
    out.write_text("".join(json.dumps(each) + "\n" for each in LINES), encoding="utf-8")
    judge_all(Judge(), wanted, out)
    assert read(out) == LINES
    judge_all(Judge(), wanted, out, lambda verdict: verdict != "refused")
    assert read(out) == [*LINES, line("timm/beit", "right")]
    assert capsys.readouterr().out.splitlines()[-1] == "ours: 2 right, 1 not exportable"


def test_a_part_of_a_list_has_no_share():
    page = "\n".join((table.COUNTS.begin, table.COUNTS.end, table.OTHERS.begin, table.OTHERS.end))
    assert table.NOTHING in table.written(page, [])
    said = table.written(page, LINES[:2])
    assert "| judged | 2 of 3 |" in said and "%" not in said


def test_what_is_not_right_is_listed_by_verdict_and_reason():
    said = table.others(LINES)
    assert "**not exportable**\n\n- TypeError: N of lambda and N (1): `naflexvit`" in said
    assert max(map(len, said.splitlines())) <= 120


def test_a_share_of_a_part_of_the_list_is_on_no_board(monkeypatch, tmp_path):
    file = tmp_path / RESULTS / table.LINES["timm"].name
    file.parent.mkdir(parents=True)
    file.touch()
    monkeypatch.setattr(architectures, "read", lambda _: LINES[:2])
    with pytest.raises(Part, match="2 lines are a part of the list of timm"):
        architectures._share(tmp_path, "timm")
    assert board(architectures.ARCHITECTURES, tmp_path) == []
    monkeypatch.setattr(architectures, "read", lambda _: LINES)
    assert [row["measured"] for row in board(architectures.ARCHITECTURES, tmp_path)] == [0.5]


def test_the_committed_page_is_what_the_command_writes():
    page = table.PAGE.read_text(encoding="utf-8")
    lines = [one for file in table.LINES.values() for one in read(file)]
    assert page == table.written(page, lines), "stale: python -m benchmarks.zoo.table --write"
