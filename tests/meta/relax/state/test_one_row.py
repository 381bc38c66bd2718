"""Products of one row: keys are read as they lie, and a vocabulary of any size has tiles."""

from __future__ import annotations

import numpy as np
import torch
from built import TARGET
from decoders import exported, kept, logits_of
from tvm import relax, tirx

from wmsched.base.cores import unbound
from wmsched.relax.importers.load import load
from wmsched.relax.passes import pipeline
from wmsched.relax.state import one_row


def operators(module) -> list[str]:
    found: list[str] = []
    relax.analysis.post_order_visit(
        module["main"], lambda node: found.append(str(getattr(getattr(node, "op", None), "name", "")))
    )
    return found


def test_keys_are_not_transposed_and_weights_stay_products(tmp_path) -> None:
    model = load(exported(tmp_path / "m.pt2"))
    before = operators(model.module)
    after = operators(one_row.one_row(model.module, TARGET))
    assert before.count("relax.matmul") - after.count("relax.matmul") == 1 and "relax.sum" in after


def test_odd_vocabularies_get_columns_of_zeros_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(one_row, "MIN_COLUMNS", 16)
    monkeypatch.setattr(one_row, "COLUMNS", 24)
    model = load(exported(tmp_path / "m.pt2"))
    module = one_row.one_row(model.module, TARGET)
    with unbound():
        prepared = pipeline.prepare(module, TARGET)
    shapes = [
        [int(extent) for extent in parameter.shape]
        for function in prepared.functions.values()
        if isinstance(function, tirx.PrimFunc)
        for parameter in function.params
    ]
    assert [8, 24] in shapes and [8, 16] not in shapes  # folded, not padded in each call
    tuned = kept(tmp_path / "out", model)
    logits, _ = tuned(torch.tensor([[3]]), torch.tensor([0]))
    assert np.allclose(logits[0, 0, 0], logits_of([3]), atol=1e-4)
