"""Greedy generation by compiled decoders of transformers: token by token what PyTorch generates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    DynamicCache,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.integrations.executorch import convert_and_export_with_cache

import wmsched

ROWS, PROMPT = 24, [3, 141, 59, 26]
COMMON = {"vocab_size": 160, "initializer_range": 0.3, "tie_word_embeddings": False}
TOKENS = {"bos_token_id": 0, "eos_token_id": 1}


def gpt2() -> torch.nn.Module:
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=32, n_positions=64, **COMMON, **TOKENS))


def llama() -> torch.nn.Module:
    """With rotary positions, and two heads of keys for four of queries."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2, **COMMON, **TOKENS))


def generated(step) -> tuple[list[int], list[np.ndarray]]:
    tokens, logits = list(PROMPT), []
    for place in range(ROWS):
        logits.append(np.asarray(step(tokens[place], place)).reshape(-1))
        if place + 1 == len(tokens):
            tokens.append(int(logits[-1].argmax()))
    return tokens, logits


@pytest.mark.slow
@pytest.mark.parametrize("make", [gpt2, llama])
def test_tokens_are_those_of_pytorch(tmp_path, make) -> None:
    torch.manual_seed(0)
    module = make().eval()
    module.generation_config = GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        cache_config={"batch_size": 1, "max_cache_len": ROWS},
        **TOKENS,
    )
    torch.export.save(convert_and_export_with_cache(module), tmp_path / "m.pt2")
    cache = DynamicCache(config=module.config)

    def eager(token: int, place: int):
        with torch.inference_mode():
            return module(torch.tensor([[token]]), past_key_values=cache, use_cache=True).logits

    wanted, logits = generated(eager)
    assert len(set(wanted)) > 8  # not one token again and again
    model = wmsched.compile(tmp_path / "m.pt2", out=tmp_path / "out")
    assert len(model.states) == 6 and [spec["name"] for spec in model.inputs] == [
        "input_ids",
        "cache_position",
    ]
    for _ in range(2):
        tokens, found = generated(lambda token, place: model(np.array([[token]]), np.array([place])))
        assert tokens == wanted
        assert all(np.allclose(one, other, atol=1e-3) for one, other in zip(found, logits))
        model.reset()
