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
from benchmarks.zoo import cases, table
from benchmarks.zoo.cases import apart
from benchmarks.zoo.inputs import Choices
from benchmarks.zoo.tiny import FIRST_ID, OPEN, Rule, shrink, whole


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


def test_heads_stay_whole_where_a_divisor_does_not_go_into_their_number():
    made = shrink(Config(hidden_size=4544, num_attention_heads=71, ffn_hidden_size=18176), Rule(16, 2))
    assert (made.hidden_size, made.num_attention_heads, made.ffn_hidden_size) == (256, 4, 1136)


def test_what_single_layers_have_otherwise_follows_the_layers_that_stay():
    special = SimpleNamespace(per_layer_overrides={2: {"head_dim": 512, "num_key_value_heads": 16}})
    made = shrink(decoder(_heterogeneity_spec=special), Rule(8, 2))
    assert made.layer_types == ["local", "full"]
    assert special.per_layer_overrides == {1: {"head_dim": 512, "num_key_value_heads": 2}}


def test_rotations_fit_their_heads_and_features_the_words_among_which_they_go():
    text = Config(
        hidden_size=4096, num_attention_heads=32, head_dim=None, layer_types=["full"], image_token_id=None,
        rope_parameters={"rope_theta": 1e6, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 4]},
    )  # fmt: skip
    made = shrink(Config(text_config=text, vision_config=Config(out_hidden_size=3584)), Rule(16, 2))
    rotation = made.text_config.rope_parameters
    assert (made.text_config.head_dim, rotation["mrope_section"]) == (128, [10, 10, 12])
    assert rotation["full"]["rope_theta"] == 1e6
    assert made.vision_config.out_hidden_size == made.text_config.hidden_size == 256
    assert made.text_config.image_token_id == FIRST_ID


def test_few_are_chosen_of_few_and_heads_have_their_width():
    made = shrink(
        Config(
            num_queries=300,
            two_stage_num_proposals=300,
            moe_k=6,
            mamba_d_head=64,
            vocab_size_per_layer_input=9999,
        ),
        Rule(8, 2),
    )
    assert (made.num_queries, made.two_stage_num_proposals, made.moe_k) == (8, 8, 2)
    assert (made.mamba_d_head, made.vocab_size_per_layer_input) == (64, 128)


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


class Looking(torch.nn.Module):
    """Model of words and images that says which width it takes, and counts images' places."""

    main_input_name = "pixel_values"
    config = Config(vocab_size=64, hidden_size=16, image_token_id=50)

    def forward(self, input_ids=None, pixel_values=None, mm_token_type_ids=None):
        if pixel_values is None:
            return input_ids
        places = int((input_ids == 50).sum())
        if places != 2:
            raise ValueError(f"Image features and image tokens do not match, tokens: {places}, features: 2")
        return pixel_values @ torch.zeros(7, 3), mm_token_type_ids


def first_that_runs(tries, model):
    for given in tries:
        try:
            model(**given)
        except (RuntimeError, ValueError) as error:
            tries.failed(given, str(error))
        else:
            return given
    raise AssertionError("none runs")


def test_inputs_get_the_width_and_the_places_that_messages_ask_for():
    given = first_that_runs(Choices(Looking()), Looking())
    assert given["pixel_values"].shape[-1] == 7
    assert given["input_ids"].tolist()[0][:2] == [50, 50]
    assert given["mm_token_type_ids"].tolist()[0] == [1, 1] + [0] * (given["input_ids"].shape[1] - 2)


def test_words_alone_are_inputs_where_they_are_asked_for():
    given = first_that_runs(Choices(Looking(), words=True), Looking())
    assert set(given) == {"input_ids", "mm_token_type_ids"}


class Best(torch.nn.Module):
    """Places of the best of scores that are close or far apart."""

    def __init__(self, step):
        super().__init__()
        self.scores = torch.nn.Parameter(1 + step * torch.arange(8.0))

    def forward(self, x):
        return x + torch.topk(self.scores, 4).indices


@pytest.mark.parametrize(("step", "is_so"), [(1e-7, False), (0.1, True)])
def test_the_best_of_close_scores_hang_on_the_last_bits_of_weights(step, is_so):
    model, x = Best(step), torch.zeros(4)
    program = torch.export.export(model, (x,))
    assert cases.is_steady(program, [model(x)]) is is_so


def judged(monkeypatch, *verdicts):
    lines = [{"verdict": verdict, "reason": reason, "inputs": given} for verdict, reason, given in verdicts]
    drawn = iter(lines)
    monkeypatch.setattr(cases, "_drawn", lambda *_: next(drawn))
    return cases.judge("transformers/XModel", "ours")


def test_another_draw_is_judged_where_results_hang_on_last_bits(monkeypatch):
    unsteady = ("wrong", "values differ" + cases.UNSTEADY, ["x"])
    assert judged(monkeypatch, unsteady, unsteady, ("right", "", ["x"]))["verdict"] == "right"
    assert judged(monkeypatch, ("wrong", "values differ", ["x"]))["verdict"] == "wrong"


def test_words_alone_are_judged_where_sizes_hang_on_images_and_the_line_says_so(monkeypatch):
    both = ["input_ids", "pixel_values"]
    hangs = ("refused", "aten.index.Tensor: how many elements it finds hangs on data", both)
    line = judged(monkeypatch, hangs, ("right", "", ["input_ids"]))
    assert (line["verdict"], line["whole"].split(":")[0]) == ("right", "refused")
    assert judged(monkeypatch, hangs, ("wrong", "values differ", ["input_ids"]))["verdict"] == "refused"
    assert (
        judged(monkeypatch, ("refused", "aten.x.default: it is not supported", both))["verdict"] == "refused"
    )


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


def test_words_alone_count_as_what_came_of_all_inputs():
    refused = line("timm/a", "right") | {"whole": "refused: aten.index.Tensor: how many hangs on data"}
    untraced = line("timm/b", "right") | {"whole": "not exportable: GuardOnDataDependentSymNode"}
    found = table.tally([line("timm/c", "right"), refused, untraced], "timm")
    assert (found["right"], found[table.WORDS], found["exported"]) == (1, 2, 2)
    assert table.share(found) == 0.5
    said = table.others([refused, untraced])
    assert said.startswith(f"**{table.WORDS}**") and "- refused: aten.index.Tensor" in said


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
