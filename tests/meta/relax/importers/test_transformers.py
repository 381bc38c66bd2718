"""Models of transformers as they come: objects with names out of TVM's library, as out of PyTorch."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from built import built

from wmsched.base import pytree
from wmsched.relax.importers.load import load
from wmsched.relax.importers.model import tensors
from wmsched.tune.compile import _exported
from wmsched.tune.latency import TOLERANCE, difference

IDS = torch.arange(8)[None]
SMALL = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
TEXT = {**SMALL, "vocab_size": 32, "bos_token_id": 0, "eos_token_id": 7, "pad_token_id": 1}


def bert():
    return hf.BertModel(hf.BertConfig(**TEXT, output_hidden_states=True)), (IDS,), {}


def gpt2():
    config = hf.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=32, bos_token_id=0, eos_token_id=0)
    return hf.GPT2LMHeadModel(config), (IDS,), {"attention_mask": torch.ones_like(IDS)}


def t5():
    config = hf.T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    return hf.T5ForConditionalGeneration(config), (), {"input_ids": IDS, "decoder_input_ids": IDS}


def clip():
    text = {**TEXT, "max_position_embeddings": 8, "projection_dim": 8}
    vision = {**SMALL, "image_size": 16, "patch_size": 8, "projection_dim": 8}
    config = hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    return hf.CLIPModel(config), (), {"input_ids": IDS, "pixel_values": torch.randn(1, 3, 16, 16)}


@pytest.mark.parametrize(
    "make", [bert, gpt2, pytest.param(t5, marks=pytest.mark.slow), pytest.param(clip, marks=pytest.mark.slow)]
)
def test_it_returns_what_it_did(make, tmp_path) -> None:
    torch.manual_seed(0)
    model, inputs, named = make()
    program = _exported(model.eval(), inputs, named)
    torch.export.save(program, tmp_path / "m.pt2")
    loaded = load(str(tmp_path / "m.pt2"))
    output = built(tmp_path, loaded, *loaded.inputs.values())
    found = pytree.rebuild(pytree.read(loaded.returns), list(tensors(output)))
    with torch.inference_mode():
        wanted = model(*inputs, **named)
    assert type(found) is type(wanted)
    assert set(found) == {name for name in wanted if name != "past_key_values"}
    for name, value in found.items():
        assert type(value) is type(wanted[name])
        assert difference(value, wanted[name]) <= TOLERANCE
