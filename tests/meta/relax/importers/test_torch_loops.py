"""Tensors that are taken apart and put together: by as few functions as may be, and as PyTorch does it."""

from __future__ import annotations

import torch
from built import Of, built, functions, model_of
from torch import nn

from wmsched.tune.latency import difference

DATA = torch.arange(2 * 12 * 4 * 5, dtype=torch.float32).view(2, 12, 4, 5) / 100


def names(module: nn.Module) -> list[str]:
    return functions(model_of(module, DATA).module)


def last_states(layer: nn.Module) -> nn.Module:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x):
            outputs, (hidden, cell) = self.layer(x)
            return outputs, hidden, cell

    return Last()


def test_steps_share_their_functions(tmp_path):
    """Of a recurrent layer: as many for twice the steps."""
    layer = last_states(nn.LSTM(4, 8))
    short, long = torch.randn(8, 2, 4), torch.randn(12, 2, 4)
    assert len(functions(model_of(layer, short).module)) == len(functions(model_of(layer, long).module)) < 15
    assert difference(built(tmp_path, model_of(layer, short), short), layer(short)) < 1e-6


PARTED = {
    "all of an axis": lambda x: [x[:, k] * (k + 2) for k in range(12)],
    "pairs": lambda x: [x[:, k : k + 2] * (k + 2) for k in range(0, 12, 2)][::-1],
    "most of an axis": lambda x: [x[:, k] + k for k in (11, 3, 1, 2, 7, 4, 9, 5, 0)],
    "from the end": lambda x: [x[:, -k] + k for k in range(1, 10)],
    "the last axis": lambda x: [x.reshape(2, 4, 60)[..., k : k + 6] + k for k in range(0, 60, 6)],
    "chunks": lambda x: [each + 1 for each in x.chunk(3, 1)],
    "sizes": lambda x: [each * 2 for each in x.split([1, 7, 4], -3)],
    "no equal pieces": lambda x: [x[:, k : k + 2] + k for k in range(11)],
    "a few": lambda x: [x[:, k] + k for k in range(3)],
}


def test_parts(tmp_path):
    module = Of(lambda x: [part(x + k) for k, part in enumerate(PARTED.values())])
    assert difference(built(tmp_path, model_of(module, DATA), DATA), module(DATA)) == 0


def test_an_input_that_is_parted_before_another(tmp_path):
    module = Of(lambda x, y: torch.stack([x[:, k] * y for k in range(12)]))
    data = DATA, torch.ones(2, 4, 5) / 3
    assert difference(built(tmp_path, model_of(module, *data), *data), module(*data)) == 0


def test_cuts_of_many_pieces_are_one_operation():
    assert [f for f in names(Of(PARTED["all of an axis"])) if "strided_slice" in f] == []
    assert len(names(Of(PARTED["no equal pieces"]))) >= 11


def test_a_few_pieces_are_cut_by_what_reads_them():
    assert not any("split" in function for function in names(Of(PARTED["chunks"])))


def test_many_tensors_are_joined_by_a_function_of_its_own(tmp_path):
    """Which copies them; a few are drawn into what reads them."""

    def join(number, axis):
        parts = [(k, 1 + k % DATA.shape[axis]) for k in range(number)]
        return lambda x: torch.cat([(x * k).narrow(axis, 0, width) for k, width in parts], axis) + 1

    assert "concatenate" in names(Of(join(4, 0)))
    assert not any(name == "concatenate" for name in names(Of(join(3, 0))))
    of_whole_numbers = Of(lambda x: torch.cat([x.long() + k for k in range(9)], 1))
    module = Of(lambda x: [*(join(5, axis)(x) for axis in (0, 1, -1)), of_whole_numbers(x)])
    assert difference(built(tmp_path, model_of(module, DATA), DATA), module(DATA)) == 0
