"""torch.export programs whose meaning TVM's importer would change, built by TVM and set beside PyTorch."""

from __future__ import annotations

import pytest
import torch
from built import Of, built
from torch import nn

from wmsched.base import pytree
from wmsched.relax.importers.load import load
from wmsched.relax.importers.model import tensors
from wmsched.relax.importers.torch_rewrites import normalize
from wmsched.tune.latency import TOLERANCE, difference, tolerance

WHOLE = torch.arange(1, 25).view(2, 3, 4)
REAL = torch.linspace(-1, 1, 24).view(2, 3, 4)


CASES = {
    "last of an axis": (lambda x: x[:, -1] + x[..., -2].sum(), REAL),
    "half of whole numbers": (lambda x: x * 0.5 + x / 4, WHOLE),
    "a whole number less a real one": (lambda x: x - 1.5, WHOLE),
    "logarithm and root of whole numbers": (lambda x: torch.log(x) + x.sqrt(), WHOLE),
    "running sum of truths": (lambda x: (x > 0).cumsum(-1), REAL),
    "running product of truths": (lambda x: (x > -0.5).cumprod(1), REAL),
    "sum and product of truths": (lambda x: (x > 0).sum(-1) + (x > -2).prod(), REAL),
    "product of small whole numbers": (lambda x: x[0, 0].to(torch.int8).prod() * 100, WHOLE),
    "truths compared": (
        lambda x: ((x > 0) == (x < 0.5)) & ((x > 0) != (x < 0)) & ((x > 0) <= (x < 0.9)),
        REAL,
    ),
    "truths compared with one": (lambda x: torch.eq(x > 0, True), REAL),
    "whole numbers compared with a real one": (lambda x: (x > 3.5) & (x == 4), WHOLE),
    "joined types": (lambda x: torch.cat([x, x.to(torch.int64), x > 0], 1), REAL),
    "a choice of types": (lambda x: torch.where(x > 0, x.to(torch.int32), x), REAL),
    "a filled mask": (lambda x: x.masked_fill(x > 0, -1).clamp(min=-1), REAL),
    "powers": (lambda x: x**2 + 2.0**x, WHOLE // 4),
    "quotients rounded": (
        lambda x: x // 2 + torch.div(x, 3, rounding_mode="trunc") + x % 2 + torch.fmod(x, 2),
        10 * REAL,
    ),
    "whole quotients rounded": (lambda x: (x - 9) // 2 + (x - 9) % 4 + (x.int() - 9) // 5, WHOLE),
    "whole numbers with one limit": (
        lambda x: x.clamp(min=3) + x.int().clamp(max=20) - x.to(torch.uint8).clamp(min=9),
        WHOLE,
    ),
    "whole numbers with two": (
        lambda x: x.clamp(3, 20) + x.clamp(min=x.flip(0)) * x.clamp(min=5, max=6),
        WHOLE,
    ),
    "whole numbers limited by a real one": (lambda x: x.clamp(min=2.5) + x.clamp(max=9.5), WHOLE),
    "sums with a factor": (
        lambda x: torch.add(x, x.flip(0), alpha=0.5) + torch.sub(x, x[0], alpha=2) + torch.add(x, 3, alpha=2),
        REAL,
    ),
    "rows from the end": (lambda x: x[:, torch.arange(-3, 0)] + x[:, x[0, :, 0].long().neg()], 2 * REAL),
    "truths as numbers": (lambda x: x * (x > 0) + ~(x > 0), REAL),
}
HALVES = {
    "dense": (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), REAL),
    "convolution": (nn.Sequential(nn.Conv1d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)), REAL),
    "batched": (Of(lambda x: torch.softmax(x @ x.transpose(1, 2), -1) @ x), REAL),
}


def test_truths_that_are_compared_round_nothing(tmp_path) -> None:
    """They are compared as numbers of 8 bits, which is no quantized model."""
    module = Of(lambda x: x * ((x > 0) == (x < 0.5)))
    torch.export.save(torch.export.export(module.eval(), (REAL,)), tmp_path / "m.pt2")
    model = load(str(tmp_path / "m.pt2"))
    assert tolerance([REAL], model.module) == TOLERANCE


def check(folder, module: nn.Module, *inputs: torch.Tensor) -> None:
    """What the file's program computes as TVM builds it is what the module does, in the same types."""
    torch.export.save(torch.export.export(module.eval(), inputs), folder / "m.pt2")
    model = load(str(folder / "m.pt2"))
    found = built(folder, model, *inputs)
    with torch.inference_mode():
        expected = module(*inputs)
    assert [t.dtype for t in tensors(found)] == [t.dtype for t in tensors(expected)]
    assert difference(found, expected) <= tolerance([*inputs, *tensors(expected)])
    assert difference(model.eager(), expected) == 0


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_pytorch_does(name, tmp_path):
    function, data = CASES[name]
    check(tmp_path, Of(function), data)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HALVES)
def test_half_precision_does_too(name, dtype, tmp_path):
    module, data = HALVES[name]
    torch.manual_seed(0)
    check(tmp_path, module.to(dtype), data.to(dtype))


def test_inputs_that_are_no_tensors_are_the_examples(tmp_path):
    """They are in the program; the library takes the others."""
    module = Of(lambda x, mask, twice, by, y: (x * by + y, mask) if twice else (x, mask))
    given = (REAL, None, True, 3, REAL + 1)
    torch.export.save(torch.export.export(module, given), tmp_path / "m.pt2")
    model = load(str(tmp_path / "m.pt2"))
    assert len(model.inputs) == 2
    assert all(torch.equal(*pair) for pair in zip(model.inputs.values(), (REAL, REAL + 1)))
    assert difference(built(tmp_path, model, REAL, REAL + 1), module(*given)) <= TOLERANCE
    assert difference(model.eager(), module(*given)) == 0
    tensor, nothing = pytree.rebuild(pytree.read(model.returns), [REAL])
    assert tensor is REAL and nothing is None


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_the_last_output_of_a_recurrent_layer(kind, tmp_path):
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(4, 8, batch_first=True)

        def forward(self, x):
            return self.layer(x)[0][:, -1]

    check(tmp_path, Last(), REAL)


def test_the_last_of_an_axis_that_is_given_a_length(tmp_path):
    """Exported for any length, tuned for another one than the example's."""
    module, dynamic = Of(lambda x: x[:, -1] * 2), {"inputs": ({1: torch.export.Dim("rows")},)}
    program = torch.export.export(module, (REAL,), dynamic_shapes=dynamic)
    torch.export.save(program, tmp_path / "m.pt2")
    longer = torch.arange(2 * 7 * 4).view(2, 7, 4).float()
    model = load(str(tmp_path / "m.pt2"), {"inputs_0": (2, 7, 4)})
    assert difference(built(tmp_path, model, longer), longer[:, -1] * 2) == 0


def test_what_is_no_tensor_is_not_returned(tmp_path):
    check(tmp_path, Of(lambda x: (x + 1, None, {"more": [x * 2, 3], "input": x, "truth": True})), REAL)


def test_a_tensor_may_be_returned_twice(tmp_path):
    check(tmp_path, Of(lambda x: [x + 1, x + 1] + 2 * [x - 1]), REAL)


def test_indices_out_of_range_are_nan_and_nothing_elses_memory(tmp_path):
    """PyTorch raises an error, which a library cannot; TVM's own reads there, and crashes far out."""
    torch.manual_seed(0)
    module, ids = nn.Embedding(8, 4).eval(), torch.tensor([[0, 7, 3, 1]])
    check(tmp_path, module, ids)
    model = load(str(tmp_path / "m.pt2"))
    (found,) = tensors(built(tmp_path, model, torch.tensor([[0, 8, -1, 10**12]])))
    assert torch.equal(found[0, 0], module(ids)[0, 0]) and found[0, 1:].isnan().all()


def test_of_whole_numbers_the_nearest_is_taken(tmp_path):
    table, ids = torch.arange(10, 18), torch.tensor([0, 7, 3])
    check(tmp_path, Of(lambda x: torch.take(table, x)), ids)
    model = load(str(tmp_path / "m.pt2"))
    (found,) = tensors(built(tmp_path, model, torch.tensor([-(10**12), 10**12, 2])))
    assert found.tolist() == [10, 17, 12]


def test_a_program_that_needs_nothing_stays_as_pytorch_decomposes_it():
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8))
    program = torch.export.export(module.eval(), (REAL,))
    before = str(program.graph)
    assert str(normalize(program).graph) == str(program.run_decompositions().graph)
    assert str(program.graph) == before


def test_a_program_with_sparse_tensors_is_left_to_tvm():
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.eye(4).to_sparse())

        def forward(self, x):
            return torch.sparse.mm(self.weight, x)

    program = torch.export.export(Sparse(), (torch.ones(4, 2),))
    assert normalize(program) is program
