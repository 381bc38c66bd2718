"""Attentions become one kernel each, which reads its operands where they lie; anything else stays."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import tvm
from built import Of
from torch.nn import functional as F
from tvm import relax, te, topi
from tvm.relax.frontend.torch import from_exported_program

from wmsched.features.gpus import cuda_target
from wmsched.relax.attention.kernel import MAX_SHARED_BYTES, Attention, View, attention_kernel, tiled
from wmsched.relax.attention.rewrite import fused_attention
from wmsched.relax.choices.configuration import ATTENTION_KERNELS
from wmsched.relax.half_precision import half_products
from wmsched.relax.importers.torch_rewrites import normalize
from wmsched.tune.prepare import _rewritten

HERE = tvm.target.Target({"kind": "llvm", "num-cores": 1})
GPU = tvm.target.Target(cuda_target("RTX 4090"))
B, H, M, N, D = 2, 3, 17, 20, 16


def imported(function, *inputs):
    program = torch.export.export(Of(function).eval(), inputs)
    return from_exported_program(normalize(program), run_ep_decomposition=False)


def loops(given: Attention):
    """The kernel in tensor expressions, for a processor."""
    batch, heads, rows, keys, width = given.batch, given.heads, given.rows, given.keys, given.width

    def place(shape, name, dtype):
        return te.placeholder(shape, dtype, name)

    def at(tensor, view: View, *index):
        flat = view.offset + sum(stride * one for stride, one in zip(view.strides, index))
        return topi.reshape(tensor, (math.prod(view.shape),))[flat].astype("float32")

    q, k, v = (place(view.shape, name, view.dtype) for name, view in zip("qkv", (given.q, given.k, given.v)))
    mask = [] if given.mask is None else [place(given.mask.shape, "mask", given.mask.dtype)]
    terms = te.reduce_axis((0, width), "terms")
    products = te.compute(
        (batch, heads, rows, keys),
        lambda b, h, i, j: te.sum(at(q, given.q, b, h, i, terms) * at(k, given.k, b, h, j, terms), terms),
        name="products",
    )

    def score(b, h, i, j):
        found = products[b, h, i, j] * given.scale
        if mask:
            found = found + at(mask[0], given.mask, b, h, i, j)
        if given.causal is not None:
            found = tvm.tirx.if_then_else(j > i + given.causal, tvm.tirx.min_value("float32"), found)
        return found

    shares = topi.nn.softmax(te.compute(products.shape, score, name="scores"))
    seen = te.reduce_axis((0, keys), "seen")
    result = te.compute(
        (batch, heads, rows, width),
        lambda b, h, i, c: te.sum(shares[b, h, i, seen] * at(v, given.v, b, h, seen, c), seen),
        name="result",
    )
    steps = list(zip(given.out.strides, result.shape))  # of each axis, which the output has in some order

    def written(*index):
        flat = 0
        for one, extent in zip(index, given.out.shape):
            flat = flat * extent + one
        return result(*(flat // stride % extent if stride else 0 for stride, extent in steps)).astype(
            given.out.dtype
        )

    out = te.compute(given.out.shape, written, name="out")
    return te.create_prim_func([q, k, v, *mask, out])


def run(module, *inputs):
    machine = relax.VirtualMachine(tvm.compile(module, HERE), tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(one.numpy()) for one in inputs))
    return [torch.from_numpy(one.numpy()) for one in found]


def heads(x, width=D):
    return x.reshape(B, -1, H, width).transpose(1, 2)


def joined(y):
    return y.transpose(1, 2).reshape(B, -1, H * D)


def written_out(q, k, v, mask):
    """As a model without PyTorch's own function writes it."""
    scores = heads(q) @ heads(k).transpose(-1, -2) / 5
    return joined(torch.softmax(scores.masked_fill(mask == 0, torch.finfo(q.dtype).min), -1) @ heads(v))


def models(q, k, v, packed, added, kept):
    three = [heads(part) for part in packed.chunk(3, -1)]
    attend = F.scaled_dot_product_attention
    return (
        joined(attend(*three, is_causal=True)),
        joined(attend(heads(q), heads(k), heads(v), attn_mask=added, scale=0.3)),
        attend(heads(q), heads(k), heads(v), attn_mask=kept),
        written_out(q, k, v, kept),
    )


@pytest.fixture(scope="module")
def inputs():
    torch.manual_seed(0)
    kept = torch.rand(B, 1, 1, N) < 0.6
    kept[..., 0] = True
    sizes = ((B, M, H * D), (B, N, H * D), (B, N, H * D), (B, M, 3 * H * D), (B, 1, M, N))
    return (*(torch.randn(size) for size in sizes), kept)


@pytest.fixture(scope="module")
def module(inputs):
    return imported(models, *inputs)


def operators(module):
    """The names of a module's operators, but for those of constants."""
    found: set[str] = set()

    def visit(node) -> None:
        if isinstance(node, relax.Call):
            found.add(str(node.op.name))

    relax.analysis.post_order_visit(module["main"], visit)
    return found


def rewritten(module, target=GPU):
    seen: list[Attention] = []

    def kernel(attention):
        seen.append(attention)
        return loops(attention)

    return fused_attention(module, target, kernel), seen


def test_attentions_as_models_write_them_become_kernels_that_compute_the_same(module, inputs):
    found, seen = rewritten(module)
    with torch.no_grad():
        for one, wanted in zip(run(found, *inputs), models(*inputs), strict=True):
            torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-5)
    assert len(seen) == 4
    causal, added, kept, other = seen
    row = H * D
    assert added.q == View((B, M, row), "float32", (M * row, D, row, 1)) and added.out == added.q
    assert causal.causal == 0 and causal.mask is None
    assert [view.offset for view in (causal.q, causal.k, causal.v)] == [0, row, 2 * row]
    assert causal.q.shape == causal.v.shape == (B, M, 3 * row)
    assert added.mask == View((B, 1, M, N), "float32", (M * N, 0, N, 1)) and added.scale == pytest.approx(0.3)
    assert kept.mask is not None and kept.mask.strides == (N, 0, 0, 1) and kept.is_safe
    assert other.scale == pytest.approx(0.2) and not other.is_safe and causal.scale == pytest.approx(0.25)
    assert operators(found) == {"relax.call_tir", "relax.where", "relax.astype", "relax.equal"}  # of masks


def test_half_floats_and_tf32_are_kinds_of_products(module):
    _, seen = rewritten(half_products(module, "float16"))
    assert {one.kind for one in seen} == {one.out.dtype for one in seen} == {"float16"} and len(seen) == 4
    _, seen = rewritten(
        module, tvm.target.Target(cuda_target("RTX 4090") | {"keys": ["cuda", "gpu", "tf32"]})
    )
    assert {one.kind for one in seen} == {"tf32"}
    turing, older = (half_products(module, dtype) for dtype in ("float16", "bfloat16"))
    t4 = tvm.target.Target(cuda_target("T4"))
    assert len(rewritten(turing, t4)[1]) == 4 and fused_attention(older, t4) is older


def with_bias(q, k, v, _, added, kept):
    """Two masks, one of which is a decoder's order, before the weights; a number divides the queries."""
    order = torch.full((M, N), -math.inf).triu(1)
    weights = torch.softmax((heads(q) / 4) @ heads(k).transpose(-1, -2) + order + added, -1)
    return weights.masked_fill(weights.isnan(), 0) @ heads(v)


def test_a_decoder_s_order_is_no_tensor_beside_another_mask(inputs):
    found, seen = rewritten(imported(with_bias, *inputs))
    (one,) = seen
    assert one.causal == 0 and one.mask is not None and one.mask.shape == (B, 1, M, N)
    assert one.is_safe and one.scale == pytest.approx(0.25)
    torch.testing.assert_close(run(found, *inputs)[0], with_bias(*inputs), rtol=1e-4, atol=1e-5)


def few_rows(q, k, v, *_):
    return F.scaled_dot_product_attention(heads(q[:, :1]), heads(k), heads(v))


def with_weights(q, k, v, *_):
    weights = torch.softmax(heads(q) @ heads(k).transpose(-1, -2), -1)
    return weights, weights @ heads(v)


def odd_width(q, k, v, *_):
    q, k, v = (one.reshape(B, -1, 1, H * D)[..., :41].transpose(1, 2) for one in (q, k, v))
    return torch.softmax(q @ k.transpose(-1, -2), -1) @ v


def another_axis(q, k, v, *_):
    return torch.softmax(heads(q) @ heads(k).transpose(-1, -2), -2) @ heads(v)


def no_kernel(*inputs):
    return few_rows(*inputs), *with_weights(*inputs), odd_width(*inputs), another_axis(*inputs)


def test_what_is_no_attention_for_a_kernel_stays(inputs):
    given = imported(no_kernel, *inputs[:3])
    assert fused_attention(given, GPU) is given


def test_a_processor_s_module_stays(module):
    assert fused_attention(module, HERE) is module


def test_a_gpu_s_functions_have_the_kernels_unless_they_are_left_out(module):
    settings = {"eight_bits": False, "channels_last": False, "wide_fusion": False, "pack_weights": False}
    assert "relax.call_tir" in operators(_rewritten(module, GPU, settings | {ATTENTION_KERNELS: True})[-1])
    assert _rewritten(module, GPU, settings | {ATTENTION_KERNELS: False})[-1] is module


@pytest.mark.parametrize("kind", ["float32", "tf32", "float16", "bfloat16"])
@pytest.mark.parametrize("width", [16, 40, 64, 80, 128])
def test_every_width_has_tiles_within_a_block_s_shared_memory(kind, width):
    dtype = "float32" if kind == "tf32" else kind
    view = View((1, 4, 512, width), dtype, (4 * 512 * width, 512 * width, width, 1))
    given = Attention(
        batch=1,
        heads=4,
        rows=512,
        keys=512,
        width=width,
        kind=kind,
        q=view,
        k=view,
        v=view,
        out=view,
        scale=1.0,
    )
    wide = tiled(given)
    assert wide.shared_bytes <= MAX_SHARED_BYTES and wide.tile % 16 == 0
    assert tiled(given, 10**6).blocks >= wide.blocks
    kernel = attention_kernel(wide)
    assert kernel.attrs["tirx.is_scheduled"] and np.prod([wide.warps, 32]) <= 128
