"""What is computed of a product's elements is fused with it, whatever reshapes stand between."""

from __future__ import annotations

import pytest
import torch
import tvm
from built import TARGET, Of, built
from torch import nn
from torch.nn import functional as F
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from wmsched.backends import relax_build, relax_reshapes
from wmsched.backends.relax_latency import difference
from wmsched.backends.relax_models import Model
from wmsched.backends.relax_reshapes import late_reshapes, shape_of, without_ones
from wmsched.backends.relax_torch import explicit


def imported(module: nn.Module, *inputs: torch.Tensor):
    program = torch.export.export(module.eval(), inputs)
    return from_exported_program(explicit(program), run_ep_decomposition=False)


def functions(module) -> list[str]:
    """Of the model, in the order of their names."""
    prepared = relax_build.prepare(module, TARGET)
    return sorted(str(v.name_hint) for v, f in prepared.functions.items() if isinstance(f, tvm.tirx.PrimFunc))


class Block(nn.Module):
    """A transformer's: attention with a mask, residuals, normalisation, two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x, mask):
        b, n, _ = x.shape
        q, k, v = (each(x).view(b, n, 2, 8).transpose(1, 2) for each in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + mask, dim=-1)
        y = x + self.o((weights @ v).transpose(1, 2).reshape(b, n, 16))
        return self.norm(y + self.second(F.gelu(self.first(y))))


def test_a_transformer_s_block_has_its_activation_residuals_and_mask_in_its_products():
    torch.manual_seed(0)
    module, x, mask = Block(), torch.randn(1, 4, 16), torch.randn(4, 4)
    given = imported(module, x, mask)
    names = functions(late_reshapes(given))
    for parts in ("gelu", "divide"):
        assert [name for name in names if parts in name and "matmul" in name], names
    alone = [name for name in names if "add" in name and "matmul" not in name and "norm" not in name]
    assert not alone, names
    before = [name for name in functions(given) if "add" in name or "gelu" in name]
    assert [name for name in before if "matmul" not in name and "norm" not in name]


def corner(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)[:, :8]


def twice(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return y.sum(), y.transpose(0, 1), F.relu(y)


CASES = {
    "an activation": (lambda x, w: F.gelu((x @ w).view(3, 4, 8)).view(2, 6, 8), "gelu", True),
    "several": (lambda x, w: torch.tanh(F.silu((x @ w).view(3, 4, 8)) * 2.0) - 1.0, "tanh", True),
    "a sum in the other shape": (lambda x, w: (x @ w).view(3, 4, 8) + corner(x).view(3, 4, 8), "add", True),
    "the other way round": (lambda x, w: corner(x).view(3, 4, 8) - (x @ w).view(3, 4, 8), "subtract", True),
    "a vector of the last axis": (lambda x, w: (x @ w).view(3, 4, 8) + x[0, :8], "add", True),
    "a number in a tensor": (lambda x, w: (x @ w).view(3, 4, 8) / x[:1, :1].view(1, 1, 1), "divide", True),
    "a matrix after ones": (lambda x, w: (x @ w).view(1, 1, 12, 8) * corner(x)[None], "multiply", True),
    "two products": (lambda x, w: (x @ w).view(3, 4, 8) * (x.exp() @ w).view(3, 4, 8), "multiply", True),
    "two uses": (lambda x, w: twice((x @ w).view(3, 4, 8)), "relu", True),
    "one axis of several": (lambda x, w: (x @ w).view(3, 4, 8) + x[:4, :1].view(1, 4, 1), "add", False),
    "a broadcast": (lambda x, w: (x @ w).view(1, 12, 8) + x[:2, None, :8], "add", False),
    "another last axis": (lambda x, w: (x @ w).view(3, 16, 2) + x[0, :2], "add", False),
    "no product": (lambda x, w: F.gelu(x.view(3, 4, 10)), "gelu", False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_moves_computes_the_same_and_what_cannot_stays(name, tmp_path):
    function, operation, moves = CASES[name]
    torch.manual_seed(0)
    x, w = torch.randn(12, 10), torch.randn(10, 8)
    module = Of(function)
    found = late_reshapes(imported(module, x, w))
    out = built(tmp_path, Model(name=name, module=found, inputs={}, eager=None), x, w)
    assert difference(out, module(x, w)) < 1e-5
    calls = []
    relax.analysis.post_order_visit(
        found["main"],
        lambda node: (
            calls.append(node) if isinstance(node, relax.Call) and isinstance(node.op, tvm.ir.Op) else None
        ),
    )
    shapes = {len(shape_of(call)) for call in calls if str(call.op.name).split(".")[-1] == operation}
    assert (shapes == {2}) is moves, (shapes, found.script())


def test_symbolic_shapes_and_what_tvm_refuses_stay(monkeypatch, caplog):
    batch = torch.export.Dim("batch")
    x, w = torch.randn(12, 10), torch.randn(10, 8)
    module = Of(lambda x, w: F.gelu((x @ w).view(-1, 2, 8)))
    program = torch.export.export(module, (x, w), dynamic_shapes=(({0: 2 * batch}, None),))
    given = from_exported_program(explicit(program), run_ep_decomposition=False)
    assert functions(late_reshapes(given)) == functions(given)

    def broken(*_):
        raise ValueError("no such expression")

    monkeypatch.setattr(relax_reshapes, "_Late", broken)
    assert late_reshapes(given) is given and "no such expression" in caplog.text


def test_leading_ones():
    assert [without_ones(shape) for shape in ((1, 1, 3, 1), (1,), (), (2, 1))] == [(3, 1), (), (), (2, 1)]
