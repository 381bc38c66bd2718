"""Attention as one kernel: every form that exporters write computes what PyTorch does, or stays as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from tvm.relax.frontend.torch import from_exported_program

from wmsched.features.vector_width import AVX2, AVX512, NEON
from wmsched.relax.choices.attention import attention_pays, attentions, sizes_of
from wmsched.relax.choices.configuration import ALGORITHMS, by_rules, rules, simplified, sites
from wmsched.relax.choices.core import Core
from wmsched.relax.choices.rewrite import Rewriter
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.describe import describe
from wmsched.relax.passes.split_to_slices import cut_apart
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune.latency import difference, library_call

TARGET = tvm.target.Target(meta_host_target())
ATTENTION = ("attention_kernels",)


def imported(module, *inputs):
    program = torch.export.export(module.eval(), inputs).run_decompositions()
    return simplified(cut_apart(from_exported_program(program)))


def found_in(graph):
    return [shape for _, shape in attentions(Rewriter(graph).known)]


class Packed(nn.Module):
    """Queries, keys and values are slices of one product, and the result is joined, as in GPT-2."""

    def __init__(self, heads, size, mask=None):
        super().__init__()
        self.heads, self.size, self.mask = heads, size, mask

    def forward(self, x):
        parts = x.split(self.heads * self.size, dim=2)
        q, k, v = (one.unflatten(2, (self.heads, self.size)).transpose(1, 2) for one in parts)
        scores = q @ k.transpose(-1, -2) / self.size**0.5
        if self.mask is not None:
            scores = scores + self.mask
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Apart(nn.Module):
    """Masks that are inputs, other sizes of values, and rows in other numbers than columns."""

    def forward(self, q, k, v, bias, mask):
        return ((q @ k.transpose(-1, -2)) * 0.3 + bias + mask).softmax(-1) @ v


class Whole(nn.Module):
    """PyTorch's own operator, which guards rows that a mask leaves nothing of."""

    def __init__(self, mask=None):
        super().__init__()
        self.mask = mask

    def forward(self, q, k, v):
        return scaled_dot_product_attention(q, k, v, self.mask)


class Filled(nn.Module):
    """A condition leaves keys out, as models without PyTorch's own operator write it."""

    def forward(self, q, k, v, kept):
        scores = q @ k.transpose(-1, -2) / 4
        return scores.masked_fill(kept < 0, torch.finfo(q.dtype).min).softmax(-1) @ v


class Twice(nn.Module):
    """The second attention has the first one's result, moved, as its queries."""

    def forward(self, q, k, v):
        first = ((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).flatten(2)
        queries = first.unflatten(2, (2, 16)).transpose(1, 2)
        return (queries @ k.transpose(-1, -2)).softmax(-1) @ v


def causal(rows):
    return torch.full((rows, rows), float("-inf")).triu(1)


def left_out(rows, columns):
    """A mask that leaves the second row nothing."""
    mask = torch.rand(rows, columns) > 0.4
    mask[1] = False
    mask[0, 0] = True
    return mask


CASES = {
    "packed": (Packed(3, 20), [(2, 37, 180)], AVX512),
    "causal": (Packed(2, 16, causal(33)), [(1, 33, 96)], AVX512),
    "apart": (
        Apart(),
        [(2, 3, 9, 24), (2, 3, 150, 24), (2, 3, 150, 40), (1, 3, 9, 150), (2, 1, 1, 150)],
        AVX512,
    ),
    "filled": (
        Filled(),
        [(2, 3, 9, 24), (2, 3, 20, 24), (2, 3, 20, 24), (2, 1, 1, 20)],
        AVX512,
    ),
    "guarded": (Whole(left_out(18, 70)), [(1, 2, 18, 32), (1, 2, 70, 32), (1, 2, 70, 32)], AVX512),
    "avx2": (Packed(2, 24), [(1, 21, 144)], AVX2),
    "neon": (Whole(), [(2, 11, 20), (2, 13, 20), (2, 13, 7)], NEON),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_pytorch_does(name, tmp_path):
    torch.manual_seed(0)
    module, shapes, registers = CASES[name]
    inputs = [torch.randn(shape) for shape in shapes]
    graph, core = imported(module, *inputs), Core(registers, 2)
    changed = pipeline.prepare(by_rules(graph, ATTENTION, core), TARGET)
    kernels = [one for one in describe(changed).values() if one.what.startswith("attention of")]
    assert len(kernels) == 1
    path = tmp_path / "model.so"
    pipeline.compile_module(changed, TARGET, vector_math=True).export_library(str(path))
    got, wanted = library_call(path, TARGET, inputs)(), module(*inputs)
    assert difference(got, wanted) < 2e-6


def test_slices_and_transpositions_are_no_copies():
    changed = by_rules(imported(Packed(3, 20), torch.randn(2, 37, 180)), ATTENTION, Core(AVX512, 2))
    operators = {Rewriter.operator(value) for _, value in Rewriter(changed).bindings}
    assert operators - {""} == {"relax.call_tir"}


def test_an_attention_of_another_s_result_reads_what_is_computed():
    inputs = [torch.randn(1, 2, 16, 16) for _ in range(3)]
    changed = by_rules(imported(Twice(), *inputs), ATTENTION, Core(AVX512, 2))
    operators = [Rewriter.operator(value) for _, value in Rewriter(changed).bindings]
    assert operators.count("relax.call_tir") == 2 and "relax.nn.softmax" not in operators


def test_a_mask_of_zeros_is_left_out_and_numbers_become_a_factor():
    graph = imported(Packed(2, 16, torch.zeros(33, 33)), torch.randn(1, 33, 96))
    (shape,) = found_in(graph)
    assert shape.masks == () and shape.factor == pytest.approx(0.25)


class ReadTwice(nn.Module):
    """The weights are a result, too."""

    def forward(self, q, k, v):
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        return weights @ v, weights


class OtherAxis(nn.Module):
    """The softmax is over the rows."""

    def forward(self, q, k, v):
        return (q @ k.transpose(-1, -2)).softmax(-2) @ v


class ScoresRead(nn.Module):
    """Something else reads the scores."""

    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2)
        return scores.softmax(-1) @ v + scores.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    "module", [ReadTwice(), OtherAxis(), ScoresRead()], ids=lambda one: type(one).__name__
)
def test_what_no_kernel_computes_stays(module):
    inputs = [torch.randn(1, 2, 16, 16) for _ in range(3)]
    assert found_in(imported(module, *inputs)) == []


def test_the_products_of_a_kernel_are_no_places_of_their_own():
    graph = imported(Packed(3, 20), torch.randn(2, 37, 180))
    with_kernels = sites(graph, algorithms=ALGORITHMS, core=Core(AVX512, 2))
    assert [one.kind for one in with_kernels] == ["attention"]
    assert with_kernels[0].options == ("kernel", "direct") and rules(with_kernels).choices == (0,)
    assert {one.kind for one in sites(graph)} == {"convolution"}


def test_few_rows_and_scores_beyond_a_cache_stay():
    (shape,) = found_in(imported(Packed(3, 20), torch.randn(2, 37, 180)))
    assert attention_pays(shape)
    for few in ({"rows": 1}, {"columns": 1 << 20}):
        assert not attention_pays(type(shape)(**{**vars(shape), **few}))


@pytest.mark.parametrize("registers", [AVX512, AVX2, NEON], ids=str)
def test_sums_fit_the_registers(registers):
    (shape,) = found_in(imported(Packed(3, 20), torch.randn(2, 37, 180)))
    sizes = sizes_of(shape, registers)
    for vectors in (sizes.key_vectors, sizes.value_vectors):
        assert sizes.rows * vectors + vectors + 1 <= registers.number


def test_what_is_not_a_number_stays_so(tmp_path):
    q, k, v = (torch.randn(1, 2, 16, 16) for _ in range(3))
    q[0, 0, 3, 0], q[0, 1, 5, 2] = float("nan"), float("inf")
    changed = pipeline.prepare(by_rules(imported(Whole(), q, k, v), ATTENTION, Core(AVX512, 1)), TARGET)
    path = tmp_path / "model.so"
    pipeline.compile_module(changed, TARGET, vector_math=True).export_library(str(path))
    got = library_call(path, TARGET, [q, k, v])()[0].numpy()
    wanted = scaled_dot_product_attention(q, k, v).numpy()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    finite = ~np.isnan(wanted)
    np.testing.assert_allclose(got[finite], wanted[finite], atol=2e-6)
