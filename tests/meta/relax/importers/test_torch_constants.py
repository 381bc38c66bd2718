"""What hangs on constants alone is computed by PyTorch at the import; views of views read one tensor."""

from __future__ import annotations

import pytest
import torch
from built import Of, built
from torch import nn

from wmsched.relax.importers.aten.decompositions import REPEATING
from wmsched.relax.importers.load import load
from wmsched.relax.importers.model import tensors
from wmsched.relax.importers.torch_rewrites import normalize
from wmsched.tune.latency import TOLERANCE, difference

ROWS = torch.linspace(-1, 1, 24).view(4, 6)
IMAGE = torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8)


class Angles(nn.Module):
    """Positions turned by a table of angles, as in language models, under a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", 1.0 / 100 ** (torch.arange(3) / 3), persistent=False)

    def forward(self, x):
        angles = torch.outer(torch.arange(4).float(), self.steps)
        turned = x * torch.cat([angles.cos(), angles.sin()], -1)
        mask = torch.ones(4, 4).tril().log()
        return torch.softmax(turned @ x.T + mask, -1)


def turned_by_complex_numbers(x):
    angles = torch.polar(torch.ones(4, 3), torch.arange(12.0).view(4, 3))
    return x * torch.view_as_real(angles).flatten(1)


def halo(x):
    return nn.functional.pad(x, [1, 1, 1, 1]).unfold(2, 4, 2).unfold(3, 4, 2).reshape(2, 3, -1, 16)


def one_row(x):
    return nn.functional.interpolate(x, (1, 5), mode="bilinear", align_corners=True)


CASES = {
    "angles and a mask": (Angles(), ROWS),
    "constant complex numbers": (Of(turned_by_complex_numbers), ROWS),
    "the least of a sorted constant": (Of(lambda x: x + torch.arange(6.0).flip(0).sort().values), ROWS),
    "all and any true": (
        Of(lambda x: (torch._is_all_true(x > 0), torch._is_any_true(x > 0), torch._is_all_true(x < 9))),
        ROWS,
    ),
    "a constant alone": (Of(lambda x: (x, torch.arange(6) * 2)), ROWS),
    "overlapping windows of windows": (Of(halo), IMAGE),
    "a row between corners": (Of(one_row), IMAGE),
    "a view of a transposed slice": (Of(lambda x: x[1:].T.unfold(0, 3, 1).sum(-1)), ROWS),
}


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_pytorch_does(name, tmp_path) -> None:
    module, given = CASES[name]
    torch.export.save(torch.export.export(module.eval(), (given,)), tmp_path / "m.pt2")
    found = list(tensors(built(tmp_path, load(str(tmp_path / "m.pt2")), given)))
    wanted = list(tensors(module(given)))
    assert [one.dtype for one in found] == [one.dtype for one in wanted]
    assert all(difference(one, other) <= TOLERANCE for one, other in zip(found, wanted))


def test_angles_and_masks_leave_no_operator_behind() -> None:
    program = normalize(torch.export.export(Angles().eval(), (ROWS,)))
    names = {node.target._schema.name for node in program.graph.nodes if node.op == "call_function"}
    assert names.isdisjoint({"aten::cos", "aten::sin", "aten::arange", "aten::log", "aten::tril"})
    assert "aten::mul" in names


def test_checks_of_values_leave_no_operator_behind(tmp_path) -> None:
    """Models of images and words count the places of the images' features so."""

    def counted(x):
        torch._check_tensor_all(x.sum(-1) < 100)
        return x * 2

    program = torch.export.export(Of(counted), (ROWS,))
    names = [node.target for node in normalize(program).graph.nodes if node.op == "call_function"]
    assert names == [torch.ops.aten.mul.Tensor]


def test_a_repeated_value_stays_an_operator() -> None:
    """A constant of it would be read from memory."""
    program = normalize(torch.export.export(Of(lambda x: x * torch.full((4, 6), 2.0)), (ROWS,)))
    names = {node.target._schema.name for node in program.graph.nodes if node.op == "call_function"}
    assert {f"aten::{name}" for name in REPEATING} & names


def test_a_buffer_that_a_model_writes_is_no_constant() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(6))

        def forward(self, x):
            self.count.add_(1)
            return x + self.count * 2

    program = normalize(torch.export.export(Counter().eval(), (ROWS,)))
    read = {
        each for node in program.graph.nodes if node.op == "call_function" for each in node.all_input_nodes
    }
    assert "b_count" in {each.name for each in read}
