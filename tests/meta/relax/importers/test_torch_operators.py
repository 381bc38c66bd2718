"""PyTorch's operators, some of each kind: as PyTorch computes them, or refused by name."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F

from benchmarks.operators import torch_cases
from wmsched.base.errors import WmschedError


class Function(torch.nn.Module):
    """Function of tensors as a model."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def differences(function, *given):
    model = Function(function).eval()
    program = torch.export.export(model, given)
    found = torch_cases._ours("model", program)()
    return torch_cases.apart(found, torch_cases.tensors_of(model(*given)))


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


NAN = torch.tensor([[1.0, float("nan"), -3.0, 0.5], [float("inf"), 2.0, 2.0, -float("inf")]])
WHOLE = torch.tensor([[7, -7, 3, -1], [-8, 5, 0, 2]])
PLACES = torch.tensor([[3, 0], [1, 1], [2, 3]])
DIVISOR = torch.tensor([[2, 2, -2, 3], [3, -3, 4, -1]])


def rows(x, place, other, value):
    x = x.clone()
    x[place] = value
    x[:, 1] = 3.0
    x[x > 1] = 0.5
    return (
        x.index_add(0, place, value),
        x.index_copy(0, place, value),
        x[place, :, other],
        torch.sort(x, dim=0, stable=True),
    )


KINDS = {
    "views by steps in memory, of a transposed tensor": (
        lambda x: torch.as_strided(x.transpose(0, 2), (4, 2, 3), (5, 1, 2), 1),
        drawn(2, 3, 4),
    ),
    "empty tensors of one axis, joined with others": (
        lambda x: torch.cat([torch.zeros(0), x, torch.zeros(0), x], dim=1),
        drawn(2, 3),
    ),
    "products by groups of rows": (
        lambda x, w, ends: torch.ops.aten._grouped_mm(x.bfloat16(), w.bfloat16(), ends).float(),
        drawn(6, 16).round(),  # whole numbers, so that sums are exact
        drawn(3, 16, 8).round(),
        torch.tensor([2, 2, 6], dtype=torch.int32),
    ),
    "rows repeated by a tensor of numbers": (
        lambda x, n: torch.repeat_interleave(x, n, dim=0, output_size=6),
        drawn(4, 3),
        torch.tensor([2, 0, 3, 1]),
    ),
    "elements of a mask that go back by another": (
        lambda x, mask, into, places: into.masked_scatter(places[..., None], x[mask].to(into.dtype)),
        drawn(2, 5, 3),
        torch.tensor([[True, False, True, True, False], [False, True, True, False, False]]),
        drawn(1, 8, 3).double(),
        torch.tensor([[False, True, True, False, True, False, True, True]]),
    ),
    "elements": (
        lambda x: (F.selu(x), torch.logaddexp(x, x + 1), torch.exp2(x), torch.lgamma(x), torch.signbit(x)),
        drawn(3, 4),
    ),
    "NaN": (
        lambda x: (
            x.isfinite(),
            x.isinf(),
            torch.maximum(x, -x),
            x.amax(1),
            x.nansum(),
            torch.fmax(x, x.flip(1)),
            x.nanmean(0),
            x.max(1),
            x.argmin(1),
            x.any(0),
            x.isclose(x),
        ),
        NAN,
    ),
    "reductions": (
        lambda x: (
            torch.var_mean(x, 1),
            torch.std(x),
            x.logsumexp(0),
            x.prod(1),
            torch.cummax(x, 1),
            torch.logcumsumexp(x, 0),
            torch.linalg.vector_norm(x, 3, 1),
        ),
        drawn(3, 5),
    ),
    "double precision": (
        lambda x: (x @ x.T, x.softmax(0).sum(), x[0].long() % 2),
        drawn(3, 5).double(),
    ),
    "rows": (rows, drawn(3, 4, 2), torch.tensor([2, 0]), torch.tensor([1, -1]), drawn(2, 4, 2)),
    "norms": (
        lambda x: (
            torch.native_layer_norm(x, [6], None, None, 1e-5),
            F.group_norm(x, 2),
            F.batch_norm(x, None, None, training=True),
        ),
        drawn(2, 4, 6),
    ),
    "bags": (
        lambda table, at, starts: F.embedding_bag(at, table, starts, mode="mean"),
        drawn(9, 3),
        torch.tensor([1, 4, 4, 8, 0]),
        torch.tensor([0, 3, 3]),
    ),
    "a divisor": (lambda x: F.avg_pool2d(x, 3, 2, divisor_override=5), drawn(1, 2, 7, 6)),
    "a factor": (lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), drawn(1, 2, 5, 7)),
    "scattered sums": (lambda x, at, y: x.scatter_add(1, at, y), drawn(3, 4), PLACES, drawn(3, 2)),
    "views alone": (lambda x: (x, x.T, x[1:].reshape(-1)), drawn(3, 4)),
}
LARGER = {
    "whole numbers": (
        lambda a, b: (a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc"), b**3, a @ b.T),
        WHOLE,
        DIVISOR,
    ),
    "pooling": (
        lambda x: (
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5),
            F.adaptive_max_pool2d(x, (3, 2)),
            F.max_pool2d(x, 3, 2, 1, return_indices=True),
            F.unfold(x, 2),
        ),
        drawn(1, 2, 7, 6),
    ),
    "resampling": (
        lambda x, grid: (
            F.grid_sample(x, grid, padding_mode="reflection", align_corners=False),
            F.interpolate(x, scale_factor=1.7, mode="bilinear"),
            F.interpolate(x, scale_factor=1.7),
            F.interpolate(x, (3, 4), mode="bilinear", antialias=True),
        ),
        drawn(1, 2, 5, 7),
        drawn(1, 3, 2, 2),
    ),
    "scattering": (
        lambda x, at, y: (
            x.scatter_add(1, at, y),
            x.scatter(1, at, 2.0),
            x.scatter_reduce(1, at, y, "mean", include_self=False),
        ),
        drawn(3, 4),
        PLACES,
        drawn(3, 2),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_as_pytorch_computes_it(kind):
    function, *given = KINDS[kind]
    assert differences(function, *given) == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGER)
def test_more_of_a_kind_is_as_pytorch_computes_it(kind):
    function, *given = LARGER[kind]
    assert differences(function, *given) == ""


REFUSED = {
    "aten.rand_like.default: it draws random numbers": lambda x: x + torch.rand_like(x),
    "aten._linalg_svd.default: decompositions and solvers": lambda x: torch.linalg.svdvals(x),
    "complex numbers are not supported": lambda x: torch.fft.fft(x).abs(),
    "aten._local_scalar_dense.default: the model returns a number": lambda x: x.sum().item(),
    "aten.index.Tensor: how many elements": lambda x: x[x > 0],
    "aten.repeat_interleave.Tensor: how many elements": lambda x: torch.repeat_interleave(x[0].long() + 3),
    "beyond its tensor": lambda x: torch.as_strided(x, (4, 4), (2, 3), 3),
    "prims.zeta.default: it is not supported": lambda x: torch.special.zeta(x, x),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_not_supported_is_refused_by_name(why):
    with pytest.raises(WmschedError, match=r"^model: (aten|prims)\.") as raised:
        differences(REFUSED[why], drawn(3, 4))
    assert why in str(raised.value)


class Assigned(torch.nn.Module):
    """Model that assigns a buffer to itself, as some do to move it, and reads it at constant places."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", drawn(5, 3))

    def forward(self, x):
        self.table = self.table.to(x.dtype)
        return x + self.table[torch.arange(2) - 1]


def test_a_buffer_for_the_next_call_is_no_result_and_constant_places_may_have_a_name():
    x = drawn(2, 3)
    found = torch_cases._ours("model", torch.export.export(Assigned(), (x,)))()
    assert torch_cases.apart(found, [Assigned()(x)]) == ""


class Weighted(torch.nn.Module):
    """Convolution of lines whose weights are computed, as a weight's norm does."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(drawn(*shape)) for shape in ((4, 3, 5), (4, 1, 1)))

    def forward(self, x):
        return torch.nn.functional.conv1d(x, self.first * self.second, padding=2)


def test_weights_that_constants_make_may_have_a_name():
    x = drawn(1, 3, 16)
    found = torch_cases._ours("model", torch.export.export(Weighted(), (x,)))()
    assert torch_cases.apart(found, [Weighted()(x)]) == ""


def test_operators_of_other_libraries_are_not_guessed_by_name():
    with torch.library._scoped_library("wmsched_test", "DEF") as library:
        library.define("abs(Tensor x) -> Tensor")
        library.impl("abs", lambda x: x + 1, "CompositeExplicitAutograd")
        with pytest.raises(WmschedError, match=r"wmsched_test\.abs\.default: operators of 'wmsched_test'"):
            differences(lambda x: torch.ops.wmsched_test.abs(x), drawn(3))


@pytest.mark.slow  # PyTorch's database of operators takes half a minute to load
def test_samples_are_judged():
    pytest.importorskip("expecttest")
    verdicts = {name: torch_cases.judge(name, "ours")["verdict"] for name in ("abs", "linalg.svd", "empty")}
    assert verdicts == {"abs": "right", "linalg.svd": "refused", "empty": "no tensor"}
