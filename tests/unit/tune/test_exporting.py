"""What `wmsched.compile` exports of a model, without a TVM."""

from __future__ import annotations

import pytest
import torch

from wmsched.base import pytree
from wmsched.base.errors import WmschedError
from wmsched.tune.compile import _exported


def decoder() -> torch.nn.Module:
    """With a cache by default, as transformers' decoders are."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_embd=16, n_layer=1, n_head=2, vocab_size=32, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config).eval()


def test_a_decoder_is_exported_without_its_cache_and_keeps_it() -> None:
    model, ids = decoder(), torch.arange(8)[None]
    program = _exported(model, (ids,), None)
    assert "CausalLMOutput" in pytree.structure(program)
    found = program.module()(ids)
    assert list(found) == ["logits"] and torch.allclose(found.logits, model(ids).logits, atol=1e-5)
    assert model.config.use_cache is True and "past_key_values" in model(ids)


def test_a_failed_export_leaves_the_model_as_it_was() -> None:
    model = decoder()
    with pytest.raises(WmschedError, match="cannot export"):
        _exported(model, (torch.ones(1, 8),), None)  # no indices
    assert model.config.use_cache is True
