"""Networks of labelled graphs: named by family, small, and the same each time."""

from __future__ import annotations

import pytest
import torch

from data_builder.graphs.networks import FAMILIES, family_of, generated, names, network


def test_families_take_turns_and_no_name_is_twice() -> None:
    found = names(2)
    assert len(found) == len(set(found)) == sum(map(len, FAMILIES.values())) + 2
    assert [family_of(name) for name in found[: len(FAMILIES)]] == list(FAMILIES)
    assert len(FAMILIES) > 8


@pytest.mark.parametrize("name", ["mobilenet-1", "transformer-0", "generated-7"])
def test_a_name_is_one_network(name: str) -> None:
    (one, data), (other, again) = network(name), network(name)
    with torch.no_grad():
        first = one(data)
        assert torch.equal(first, other(again)) and torch.isfinite(first).all()
        assert 1e-2 < float(first.std()) < 1e2  # as a trained network's values
    assert not any(part.training for part in one.modules())


def test_generated_networks_differ() -> None:
    texts = {str(generated(seed)[0]) for seed in range(20)}
    assert len(texts) == 20


@pytest.mark.parametrize("name", ["resnet-99", "alexnet-0", "resnet", "vgg-x"])
def test_other_names_are_none(name: str) -> None:
    with pytest.raises(KeyError):
        network(name)
