"""Half precision of a float32 model: which operators it changes, and how far the outputs may then be off."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

from wmsched.base.errors import UnknownName, WmschedError
from wmsched.features.gpus import cuda_target
from wmsched.relax.half_precision import half_products, products_of
from wmsched.relax.importers.load import load
from wmsched.relax.importers.model import Model
from wmsched.relax.passes import pipeline
from wmsched.tune.latency import COARSE, deviation, tolerance
from wmsched.tune.prepare import in_half

HERE = tvm.target.Target({"kind": "llvm", "num-cores": 1})


class Net(torch.nn.Module):
    """Convolutions, a pooling, normalisations, attention and GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16)
        self.second, self.last = torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.Linear(32, 10)
        self.linear, self.layer = torch.nn.Linear(16, 32), torch.nn.LayerNorm(32)
        self.attention = torch.nn.MultiheadAttention(32, 2, batch_first=True)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.nn.functional.avg_pool2d(x + self.second(x), 2)
        x = self.layer(self.linear(x.flatten(2).transpose(1, 2)))
        x = torch.nn.functional.gelu(x + self.attention(x, x, x, need_weights=False)[0])
        return self.last(x.mean(1))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("half") / "net.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(Net().eval(), (torch.randn(1, 3, 16, 16),)), path)
    return load(str(path), {})


def cuda(name):
    return tvm.target.Target(cuda_target(name))


def types_of(module, name):
    found = set()

    def visit(node) -> None:
        if isinstance(node, relax.Call) and str(getattr(node.op, "name", "")) == name:
            found.add((str(node.args[0].ty.dtype), str(node.ty.dtype)))

    pipeline.visit_functions(module, visit)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("half", "step"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_products_are_short_and_sums_are_not(model, half, step) -> None:
    before = products_of(model.module)
    module = half_products(model.module, half)
    assert products_of(module) == {half: before["float32"]}
    assert types_of(module, "relax.matmul") == types_of(module, "relax.nn.conv2d") == {(half, "float32")}
    for name in ("nn.avg_pool2d", "nn.softmax", "nn.layer_norm", "nn.gelu", "mean"):
        assert {out for _, out in types_of(module, f"relax.{name}")} == {"float32"}, name
    other = "bfloat16" if half == "float16" else "float16"
    assert f'"{other}"' not in module.script(show_meta=False)
    (result,) = module["main"].ret_ty.fields
    assert str(result.dtype) == "float32"
    machine = relax.VirtualMachine(
        pipeline.compile_module(pipeline.prepare(module, HERE), HERE), tvm.runtime.cpu()
    )
    output = machine["main"](*(tvm.runtime.from_dlpack(data) for data in model.inputs.values()))
    off, allowed = deviation(output, model.eager(), in_half(model, half, cuda("A100")))
    assert allowed == COARSE
    assert step / 64 < off < 4 * step  # short, and no worse than that


def small(*, products: int = 3):
    """A chain of products with an addition and a ReLU after each, as a model."""
    builder, rng = relax.BlockBuilder(), np.random.default_rng(1)
    x = relax.Var("x", relax.TensorType((8, 32), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(x))
            for _ in range(products):
                weight = relax.const(rng.standard_normal((32, 32)).astype("float32") / 6)
                bias = relax.const(rng.standard_normal(32).astype("float32"))
                y = builder.emit(relax.op.nn.relu(relax.op.add(relax.op.matmul(y, weight), bias)))
            y = builder.emit_output(relax.op.nn.softmax(y))
        builder.emit_func_output(y)
    return Model(name="small", module=builder.finalize(), inputs={"x": torch.randn(8, 32)})


def ran(module, model):
    machine = relax.VirtualMachine(
        pipeline.compile_module(pipeline.prepare(module, HERE), HERE), tvm.runtime.cpu()
    )
    return machine["main"](*(tvm.runtime.from_dlpack(data) for data in model.inputs.values())).numpy()


@pytest.mark.parametrize(
    ("half", "most"), [pytest.param("float16", 2e-3, marks=pytest.mark.slow), ("bfloat16", 2e-2)]
)
def test_a_chain_of_products_in_half_is_off_by_a_rounding_or_two(half, most) -> None:
    model = small()
    changed = in_half(model, half, cuda("A100"))
    assert products_of(model.module) == {"float32": 3} and products_of(changed.module) == {half: 3}
    exact, output = ran(model.module, model), ran(changed.module, model)
    assert 0 < np.abs(output - exact).max() < most * np.abs(exact).max()


def test_what_cannot_be_in_half_is_refused_with_the_remedy() -> None:
    model = small()
    assert in_half(model, "", HERE) is model
    with pytest.raises(UnknownName, match="--half int4: there is float16, bfloat16 and tf32"):
        in_half(model, "int4", cuda("T4"))
    with pytest.raises(WmschedError, match=r"--target cuda.*this target is llvm"):
        in_half(model, "float16", HERE)
    with pytest.raises(WmschedError, match=r"T4 has 7\.5: take --half float16"):
        in_half(model, "bfloat16", cuda("T4"))
    with pytest.raises(WmschedError, match=r"T4 has 7\.5: take --half float16"):
        in_half(model, "tf32", cuda("T4"))
    with pytest.raises(WmschedError, match="no products in float32"):
        in_half(small(products=0), "float16", cuda("T4"))


def test_a_build_for_cuda_puts_its_kernels_into_a_graph_where_asked() -> None:
    """Without a GPU: the code that captures is there, with all kernels but the first and the last."""
    target = tvm.target.Target(cuda("A100"), host={"kind": "llvm", "num-cores": 1})
    prepared = pipeline.prepare(in_half(small(), "float16", target).module, target)
    plain, graph = (
        pipeline.compile_module(prepared, target, cuda_graph=asked).as_text() for asked in (False, True)
    )
    assert "cuda_graph" not in plain and "vm.builtin.cuda_graph.run_or_capture" in graph
    captured = graph[graph.index("@main_cuda_graph_capture:") :]
    assert plain.count("  call  fused_") == 4 and captured.count("  call  fused_") == 3


def test_tf32_leaves_the_model_and_its_tolerance_knows() -> None:
    model = small()
    changed = in_half(model, "tf32", cuda("A100"))
    assert products_of(changed.module) == products_of(model.module) == {"float32": 3}
    assert tolerance([], changed.module) > tolerance([], model.module)
