"""Which extents may be padded, tried on small functions whose behaviour under padding is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from wmsched.tune.shapes.padding import Compiled, padding_of

TABLE = nn.Embedding(8, 4)
SCORES = nn.Linear(4, 4)


def hidden(ids: Tensor, mask: Tensor | None, *, causal: bool = False) -> Tensor:
    """One layer of attention, in the manner of transformers."""
    with torch.inference_mode():
        x = TABLE(ids)
        scores = SCORES(x) @ x.transpose(1, 2)
        least = torch.finfo(scores.dtype).min
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, :] == 0, least)
        if causal:
            length = ids.shape[1]
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), least)
        return torch.softmax(scores, -1) @ x


def ids_of(*shape: int) -> Tensor:
    return torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(0))


def compiled(call, *inputs: dict[str, Tensor]) -> list[Compiled]:
    return [
        Compiled(inputs=one, call=lambda given: [t.clone() for t in call(*given)], tolerance=1e-3)
        for one in inputs
    ]


def masked(*shapes: tuple[int, int]) -> list[dict[str, Tensor]]:
    return [
        {"ids": ids_of(*shape), "attention_mask": torch.ones(shape, dtype=torch.int64)} for shape in shapes
    ]


LENGTHS = ((1, 12), (1, 7), (1, 4))


def test_a_length_with_a_mask_is_padded_and_the_mask_begins_with_ones() -> None:
    (group,) = padding_of(compiled(lambda ids, mask: [hidden(ids, mask)], *masked(*LENGTHS)))
    assert group == {
        "inputs": [[0, 1], [1, 1]], "outputs": [[0, 1, 1, 1, 0]], "masks": [1], "why": ""
    }  # fmt: skip


def test_a_length_without_a_mask_is_not() -> None:
    inputs = [{"ids": ids_of(*shape)} for shape in LENGTHS]
    (group,) = padding_of(compiled(lambda ids: [hidden(ids, None)], *inputs))
    assert "what the padding holds" in group["why"]


def test_a_causal_length_is_padded_without_one() -> None:
    inputs = [{"ids": ids_of(*shape)} for shape in LENGTHS]
    (group,) = padding_of(compiled(lambda ids: [hidden(ids, None, causal=True)], *inputs))
    assert (group["why"], group["masks"], group["outputs"]) == ("", [], [[0, 1, 1, 1, 0]])


def test_a_mask_of_a_causal_length_begins_with_ones() -> None:
    """A first row that is masked and sees nothing else has a softmax over the padding, too."""
    shapes = compiled(lambda ids, mask: [hidden(ids, mask, causal=True)], *masked(*LENGTHS))
    (group,) = padding_of(shapes)
    assert (group["why"], group["masks"]) == ("", [1])


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (lambda x: [x.mean(1)], "what the padding holds"),
        (lambda x: [x.amax(1)], "what the padding holds"),  # zeros would pass with values above
        (lambda x: [x - x.shape[1]], "another one"),
        (lambda x: [x.flip(1)], "what the padding holds"),
        (lambda x: [torch.outer(x[0, :, 0], torch.ones(x.shape[1] ** 2))], "do not follow it"),
    ],
)
def test_what_hangs_on_the_length_is_not_padded(what, why: str) -> None:
    inputs = [{"x": torch.rand(1, n, 4) + 1} for n in (12, 7, 4)]
    (group,) = padding_of(compiled(what, *inputs))
    assert why in group["why"] and group["outputs"] == []


def test_a_batch_is_padded_and_the_length_beside_it_is_not() -> None:
    inputs = [{"ids": ids_of(*shape)} for shape in ((4, 9), (4, 6), (1, 9), (1, 6))]
    batch, length = padding_of(compiled(lambda ids: [hidden(ids, None)], *inputs))
    assert (batch["inputs"], batch["why"], batch["outputs"]) == ([[0, 0]], "", [[0, 0, 1, 1, 0]])
    assert length["inputs"] == [[0, 1]] and length["why"]


def test_outputs_whose_extent_is_a_part_of_it_follow() -> None:
    inputs = [{"x": torch.randn(n, 4)} for n in (16, 8, 4)]
    (group,) = padding_of(
        compiled(lambda x: [x.reshape(-1, 2, 4).sum(1), torch.cat([x, x[:1] * 0])[:, 0]], *inputs)
    )
    assert group["outputs"] == [] and group["why"]  # the last row of the second is at another place
    (group,) = padding_of(compiled(lambda x: [x.reshape(-1, 2, 4).sum(1)], *inputs))
    assert (group["why"], group["outputs"]) == ("", [[0, 0, 1, 2, 0]])


def test_extents_that_never_differ_alone_are_not_padded() -> None:
    inputs = [{"a": torch.randn(n), "b": torch.randn(n + 1)} for n in (8, 4)]
    assert all("not tried" in one["why"] for one in padding_of(compiled(lambda a, b: [a, b], *inputs)))
