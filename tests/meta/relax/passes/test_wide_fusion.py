"""What is computed of a product's elements is fused with it, whatever reshapes stand between."""

from __future__ import annotations

import pytest
import torch
import tvm
from built import TARGET, Of, built, functions
from torch import nn
from torch.nn import functional as F
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from wmsched.metaschedule import tasks as task_list
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.relax.importers.model import Model
from wmsched.relax.importers.torch_rewrites import normalize
from wmsched.relax.passes import pipeline
from wmsched.relax.passes import wide_fusion as relax_fusion
from wmsched.relax.passes.wide_fusion import shape_of, wide_fusion, without_ones
from wmsched.tune.latency import difference
from wmsched.tune.prepare import SETTINGS, prepare_model, wide_functions_of


def imported(module: nn.Module, *inputs: torch.Tensor):
    program = torch.export.export(module.eval(), inputs)
    return from_exported_program(normalize(program), run_ep_decomposition=False)


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
        return self.norm(y + self.second(F.relu(self.first(y))))


def test_a_transformer_s_block_has_its_activation_residuals_and_mask_in_its_products():
    torch.manual_seed(0)
    module, x, mask = Block(), torch.randn(1, 4, 16), torch.randn(4, 4)
    given = imported(module, x, mask)
    names = functions(wide_fusion(given))
    for parts in ("relu", "divide"):
        assert [name for name in names if parts in name and "matmul" in name], names
    alone = [name for name in names if "add" in name and "matmul" not in name and "norm" not in name]
    assert not alone, names
    before = [name for name in functions(given) if "add" in name or "relu" in name]
    assert [name for name in before if "matmul" not in name and "norm" not in name]


def corner(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)[:, :8]


def twice(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return y.sum(), y.transpose(0, 1), F.relu(y)


CASES = {
    "an activation": (lambda x, w: F.relu((x @ w).view(3, 4, 8)).view(2, 6, 8), "relu", True),
    "several": (lambda x, w: F.relu((x @ w).view(3, 4, 8).abs() * 2.0) - 1.0, "subtract", True),
    "what follows a GELU": (lambda x, w: F.gelu(x @ w).view(3, 4, 8) + 1.0, "add", True),
    "a GELU": (lambda x, w: F.gelu((x @ w).view(3, 4, 8)), "gelu", False),
    "a sum in the other shape": (lambda x, w: (x @ w).view(3, 4, 8) + corner(x).view(3, 4, 8), "add", True),
    "the other way round": (lambda x, w: corner(x).view(3, 4, 8) - (x @ w).view(3, 4, 8), "subtract", True),
    "a vector of the last axis": (lambda x, w: (x @ w).view(3, 4, 8) + x[:1, :8].view(8), "add", True),
    "a number in a tensor": (lambda x, w: (x @ w).view(3, 4, 8) / x[:1, :1].view(1, 1, 1), "divide", True),
    "a matrix after ones": (lambda x, w: (x @ w).view(1, 1, 12, 8) * corner(x)[None], "multiply", True),
    "two products": (lambda x, w: (x @ w).view(3, 4, 8) * (x.exp() @ w).view(3, 4, 8), "multiply", True),
    "two uses": (lambda x, w: twice((x @ w).view(3, 4, 8)), "relu", True),
    "one axis of several": (lambda x, w: (x @ w).view(3, 4, 8) + x[:4, :1].view(1, 4, 1), "add", False),
    "a broadcast": (lambda x, w: (x @ w).view(1, 12, 8) + x[:2, None, :8], "add", False),
    "another last axis": (lambda x, w: (x @ w).view(3, 16, 2) + x[0, :2], "add", False),
    "no product": (lambda x, w: F.relu(x.view(3, 4, 10)), "relu", False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_moves_computes_the_same_and_what_cannot_stays(name, tmp_path):
    function, operation, moves = CASES[name]
    torch.manual_seed(0)
    x, w = torch.randn(12, 10), torch.randn(10, 8)
    module = Of(function)
    found = wide_fusion(imported(module, x, w))
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
    module = Of(lambda x, w: F.relu((x @ w).view(-1, 2, 8)))
    program = torch.export.export(module, (x, w), dynamic_shapes=(({0: 2 * batch}, None),))
    given = from_exported_program(normalize(program), run_ep_decomposition=False)
    assert functions(wide_fusion(given)) == functions(given)

    def broken(*_):
        raise ValueError("no such expression")

    monkeypatch.setattr(relax_fusion, "_Wide", broken)
    assert wide_fusion(given) is given and "no such expression" in caplog.text


def test_a_long_chain_of_operands_that_are_read_twice_is_gone_through_once():
    """Ten steps took a second and twenty would have taken a day."""

    def function(x, w):
        y = x
        for _ in range(60):
            y = y * y + y
        return (x @ w).view(3, 4, 8) + corner(y).view(3, 4, 8)

    found = wide_fusion(imported(Of(function), torch.randn(12, 10), torch.randn(10, 8)))
    assert "(12, 8)" in [line for line in found.script().splitlines() if "R.add" in line][-1]


class Masked(nn.Module):
    """A product whose mask is computed of constants, or of an input."""

    def __init__(self, *, constant: bool) -> None:
        super().__init__()
        self.constant = constant
        self.register_buffer("seen", torch.ones(4, 4).tril() > 0)

    def forward(self, x, y):
        seen = torch.full((4, 4), True) & self.seen if self.constant else y[:4, :4] > 0
        return (x @ y).view(1, 1, 4, 4) + torch.where(seen, 0.0, -1e9)


@pytest.mark.parametrize("constant", [True, False])
def test_a_mask_goes_in_where_it_is_known_and_not_where_no_schedule_could_be_found(constant, tmp_path):
    torch.manual_seed(0)
    module, x, y = Masked(constant=constant), torch.randn(4, 10), torch.randn(10, 4)
    found = wide_fusion(imported(module, x, y))
    (product,) = [name for name in functions(found) if "matmul" in name]
    assert ("add" in product) is constant, functions(found)
    out = built(tmp_path, Model(name="masked", module=found, inputs={}, eager=None), x, y)
    assert difference(out, module(x, y)) < 1e-5


def test_wider_functions_are_left_where_they_have_no_schedules(tmp_path, monkeypatch):
    torch.manual_seed(0)
    module, x, mask = Block(), torch.randn(1, 4, 16), torch.randn(4, 4)
    model = Model(name="block", module=imported(module, x, mask), inputs={"x": x, "mask": mask}, eager=None)
    settings = dict.fromkeys(SETTINGS, False) | {"wide_fusion": True}

    def names() -> list[str]:
        prepared, _ = prepare_model(model, TARGET, settings, tmp_path)
        return [task.name for task in task_list.tasks(prepared, TARGET)]

    def fused(found: list[str]) -> bool:
        return any("matmul" in name and "relu" in name for name in found)

    assert fused(names())
    monkeypatch.setattr(
        task_list,
        "without_schedules",
        lambda tasks, _: [task for task in tasks if fused([task.name])],
    )
    assert not fused(names())
    wide, narrower = wide_functions_of(model, TARGET, settings)  # as a construction asks, once it has none
    tasks = task_list.tasks(wide, TARGET)
    assert fused([task.name for task in tasks]) and narrower([]) is None
    plain = narrower([task for task in tasks if fused([task.name])])
    assert not fused([task.name for task in task_list.tasks(plain, TARGET)])


def test_a_program_for_which_there_are_no_schedules_is_found():
    """A mask that is computed beside the product it is added to, as TVM would fuse it."""

    class Beside(nn.Module):
        def forward(self, x, y):
            return x @ y + torch.where(y[:4, :4] > 0, 0.0, -1e9)

    import_intrinsics(TARGET)
    prepared = pipeline.prepare(imported(Beside(), torch.randn(4, 10), torch.randn(10, 4)), TARGET)
    found = task_list.tasks(prepared, TARGET)
    assert [task.name for task in task_list.without_schedules(found, TARGET)] == [
        task.name for task in found if "where" in task.name and "matmul" in task.name
    ]


def test_leading_ones():
    assert [without_ones(shape) for shape in ((1, 1, 3, 1), (1,), (), (2, 1))] == [(3, 1), (), (), (2, 1)]
