"""Models of types that PyTorch cannot write into a file: their programs take and return flat tuples there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from built import built
from torch import nn

from wmsched.base.errors import WmschedError
from wmsched.relax.importers.load import load
from wmsched.relax.importers.model import tensors
from wmsched.relax.importers.torch_export import storable
from wmsched.tune.compile import _saved
from wmsched.tune.latency import difference


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclass
class Point:
    x: torch.Tensor
    y: torch.Tensor


torch.export.register_dataclass(Point)


class Moved(nn.Module):
    def forward(self, pair, by):
        return Point(x=pair.first + by, y=pair.second * 2)


GIVEN = Pair(torch.ones(2, 3), torch.arange(4.0)), torch.full((3,), 5.0)


def test_a_program_of_such_types_is_written_and_computes_the_same(tmp_path):
    program = torch.export.export(Moved(), GIVEN)
    with _saved(program, tmp_path) as path:
        model = load(str(path))
    assert [tuple(data.shape) for data in model.inputs.values()] == [(2, 3), (4,), (3,)]
    wanted = Moved()(*GIVEN)
    assert difference(model.eager(), (wanted.x, wanted.y)) == 0
    found = built(tmp_path, model, *model.inputs.values())
    assert difference(found, (wanted.x, wanted.y)) < 1e-6
    own = program.module()(*GIVEN)  # the program itself has its types
    assert isinstance(own, Point) and len(list(tensors(own))) == 2


def test_only_what_cannot_be_written_is_flat():
    program = torch.export.export(nn.Linear(3, 2), (torch.ones(4, 3),))
    assert storable(program) is program

    class Returning(nn.Module):
        def forward(self, x, *, more):
            return {"pair": Pair(x, x + more["by"]), "none": None}

    program = torch.export.export(Returning(), (torch.ones(2),), {"more": {"by": torch.ones(2)}})
    found = storable(program)
    assert found.call_spec.in_spec == program.call_spec.in_spec
    assert found.call_spec.out_spec == torch.utils._pytree.tree_structure((0, 0, 0))


def test_what_cannot_be_written_at_all_is_said_and_harms_no_file(tmp_path, monkeypatch):
    def broken(*given):
        raise RuntimeError("a stream")

    program = torch.export.export(nn.Linear(3, 2), (torch.ones(4, 3),))
    with _saved(program, tmp_path) as path:
        before = path.read_bytes()
    monkeypatch.setattr(torch.export, "save", broken)
    wrong = pytest.raises(WmschedError, match=r"cannot write the model .*RuntimeError: a stream")
    with wrong, _saved(program, tmp_path):
        pass
    assert [each.name for each in tmp_path.iterdir()] == [path.name] and path.read_bytes() == before
