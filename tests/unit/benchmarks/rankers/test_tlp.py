"""TLP: primitives to arrays, the rank loss against its formula, and a fit that learns."""

import math

import numpy as np
import pytest
import torch

from benchmarks.methods import Settings, tlp
from benchmarks.rankers.tlp import fit, sequence
from benchmarks.rankers.tlp.loss import lambda_rank
from benchmarks.rankers.tlp.model import Network, Size
from benchmarks.records import Measured

STEPS = [
    ["SP", 2, 0, 128, [8, None], 1],
    ["AN", 2, 3, 2],
    ["CHW", 1, "local"],
    ["PR", 2, 0, "auto_unroll_max_step$512"],
]


def test_a_primitive_is_its_type_its_numbers_and_its_name():
    assert [sequence.parse(step) for step in STEPS] == [
        ("SP", [2.0, 0.0, 128.0, 8.0, 0.0, 1.0], ""),
        ("AN", [2.0, 3.0], "vectorize"),
        ("CHW", [1.0], "local"),
        ("PR", [2.0, 0.0, 512.0], "auto_unroll_max_step"),
    ]
    names = sequence.vocabulary([STEPS])
    assert names == ["auto_unroll_max_step", "local", "vectorize"]
    found = sequence.encode([STEPS, []], names)
    assert found.numbers.shape == (2, 25, 22) and found.names.shape == (2, 25)
    assert found.names[0, :5].tolist() == [0, 3, 2, 1, 0]
    row = found.numbers[0, 0]
    assert row[: len(sequence.CODES)].sum() == row[sequence.CODES["SP"]] == 1.0
    assert row[len(sequence.CODES) :].tolist() == pytest.approx(
        [math.log2(1 + x) for x in (2, 0, 128, 8, 0, 1)] + [0.0, 0.0]
    )
    assert not found.numbers[1].any() and not found.numbers[0, 4:].any()
    assert sequence.encode([STEPS], []).names.any() == False  # unknown names are no error  # noqa: E712


def test_long_sequences_and_primitives_are_cut():
    long = [["RE", 1, list(range(40))]] * 60
    found = sequence.encode([long], [])
    assert found.numbers.shape == (1, 25, 22)
    assert found.numbers[0, -1, sequence.CODES["RE"]] == 1.0


def formula(scores, labels):
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    discount = {i: math.log2(2 + place) for place, i in enumerate(order)}
    gain = [2**y - 1 for y in labels]
    ideal = sum(g / math.log2(2 + place) for place, g in enumerate(sorted(gain, reverse=True)))
    total = 0.0
    for i, yi in enumerate(labels):
        for j, yj in enumerate(labels):
            if yi > yj:
                swap = abs(gain[i] - gain[j]) / ideal * abs(1 / discount[i] - 1 / discount[j])
                total += swap * math.log2(1 + math.exp(-(scores[i] - scores[j])))
    return total


def test_the_loss_is_the_formula():
    rng = np.random.default_rng(0)
    for count in (2, 3, 7):
        scores, labels = rng.normal(size=count), rng.random(count).round(1)
        found = lambda_rank(torch.tensor(scores), torch.tensor(labels))
        assert found.item() == pytest.approx(formula(scores.tolist(), labels.tolist()))
    assert lambda_rank(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0])).item() == 0.0


def test_the_loss_falls_when_the_better_program_rises():
    labels = torch.tensor([1.0, 0.5, 0.0])
    scores = torch.tensor([0.1, 0.0, 0.2], requires_grad=True)
    lambda_rank(scores, labels).backward()
    assert scores.grad[0] < 0 < scores.grad[2]


def test_empty_places_do_not_count():
    torch.manual_seed(0)
    network = Network(Size(names=3, hidden=16, heads=2)).eval()
    found = sequence.encode([STEPS, []], sequence.vocabulary([STEPS]))
    numbers, names = torch.from_numpy(found.numbers), torch.from_numpy(found.names)
    whole = network(numbers, names)
    assert torch.isfinite(whole).all()  # a schedule of no steps too
    assert whole[0].item() == pytest.approx(network(numbers[:1, :4], names[:1, :4]).item(), abs=1e-5)


def workload(number, count=20):
    """A made-up workload whose programs are faster the nearer a split is to 16; every tenth failed."""
    rng = np.random.default_rng(number)
    group = Measured(f"key{number}", "llvm", (), "log")
    for i in range(count):
        tile = 2 ** int(rng.integers(0, 9))
        group.steps.append([["SP", 2, 0, 256, [tile], 1], ["AN", 2, 0, int(rng.integers(0, 4))]])
        seconds = 1e-3 * 1.4 ** abs(math.log2(tile / 16))
        group.times.append(math.nan if i % 10 == 9 else seconds)
        group.costs.append(0.1)
    return group


def test_a_fit_orders_an_unseen_workload_and_is_the_same_again(tmp_path):
    groups = [workload(number) for number in range(12)]
    options = fit.Options(epochs=20, batch=3)
    model = fit.fit(groups[:-1], options)
    scores = model.score(groups[-1].steps)
    ran = np.isfinite(groups[-1].seconds)
    order = np.argsort(-scores[ran])
    assert groups[-1].seconds[ran][order[0]] == np.nanmin(groups[-1].seconds)
    assert np.corrcoef(scores[ran], -groups[-1].seconds[ran])[0, 1] > 0.7
    once, again = (fit.fit(groups[:3], fit.Options(epochs=1)).score(groups[-1].steps[:5]) for _ in range(2))
    np.testing.assert_allclose(once, again, rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "tlp.safetensors")
    loaded = fit.Tlp.load(tmp_path / "tlp.safetensors")
    assert loaded.names == model.names
    np.testing.assert_array_equal(loaded.score(groups[-1].steps), scores)
    assert loaded.score([]).shape == (0,)


def test_what_cannot_be_fitted_is_refused(tmp_path):
    failed = workload(0, count=3)
    failed.times = [math.nan] * 3
    with pytest.raises(ValueError, match="nothing to fit"):
        fit.fit([failed])
    with pytest.raises(ValueError, match="give --training"):
        tlp.fitted(Settings(cache=str(tmp_path)))
