"""What E reads with: a pretrained transformer, or the small preset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from wmsched.base.errors import BundleError
from wmsched.encoder_config import EncoderConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def pretrained(config: EncoderConfig) -> tuple[PreTrainedTokenizerFast, nn.Module]:
    """Tokenizer and weights of ``config.backbone``, a transformers name or path.

    Raises
    ------
    BundleError
        They cannot be loaded or reached, are of another kind of model, or read shorter chunks than `config`
        says.
    """
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(config.backbone, use_fast=True)
        known = AutoConfig.from_pretrained(config.backbone)
        backbone = AutoModel.from_pretrained(config.backbone, **options(known))
    except (OSError, ValueError) as error:
        raise BundleError(
            f"backbone {config.backbone!r} cannot be loaded ({error}); give the path of a downloaded "
            "model or backbone=None for the small preset, which needs no download"
        ) from error
    if tokenizer.pad_token_id is None or not hasattr(backbone.config, "hidden_size"):
        raise BundleError(
            f"backbone {config.backbone!r} is no encoder of padded texts (no padding token, or no "
            "hidden_size): name one such as microsoft/codebert-base"
        )
    limit = getattr(backbone.config, "max_position_embeddings", config.max_length + 2) - 2
    if config.max_length > limit:
        raise BundleError(
            f"max_length={config.max_length} is above the {limit} tokens that {config.backbone!r} reads"
        )
    return tokenizer, backbone


def options(config: Any) -> dict[str, Any]:
    """How a backbone is made, by its own configuration: RoBERTa's pooling layer is never used here."""
    pooler = {"add_pooling_layer": False} if config.model_type in ("roberta", "bert") else {}
    return {"attn_implementation": "eager"} | pooler


def small(config: EncoderConfig, tokenizer: PreTrainedTokenizerFast) -> nn.Module:
    """The preset that trains on two cores, its weights drawn at random."""
    from transformers import RobertaConfig, RobertaModel

    settings = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.feedforward,
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=0.0,  # slow on a CPU; hidden dropout makes the views
        max_position_embeddings=config.max_length + 2,
        type_vocab_size=1,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        attn_implementation="eager",  # faster than sdpa on two cores at these sizes
    )
    return RobertaModel(settings, add_pooling_layer=False)
