"""E, the state encoder (section 3.3, Eq 4): a unit vector of TensorIR text; features of action text.

A RoBERTa backbone reads overlapping chunks of tokens. E averages over the tokens of each chunk, then over
the chunks of each text, then applies a projection head and L2 normalization. The backbone is any
``transformers`` name or path (CodeBERT, say), or the small preset that trains on two cores.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from wmsched.base.errors import BundleError
from wmsched.base.files import atomic_open
from wmsched.model.config import EncoderConfig
from wmsched.model.tokenizer import (
    CANONICAL_VERSION,
    Chunks,
    canonical_text,
    chunk_texts,
    special_tokens,
    wrap_tokenizer,
)
from wmsched.model.weights import check_version, save_weights, usable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FORMAT_VERSION = 1


class StateEncoder(nn.Module):
    """The state encoder E.

    Parameters
    ----------
    config : EncoderConfig
    tokenizer : a fast tokenizer: the backbone's own, or one of `wmsched.model.tokenizer.train_tokenizer`
    backbone : a transformers model with ``last_hidden_state``; None builds the small preset of the config

    Examples
    --------
    >>> encoder = StateEncoder.load(folder)  # doctest: +SKIP
    >>> encoder.encode([text])  # float32 [1, d]  # doctest: +SKIP
    """

    def __init__(
        self,
        config: EncoderConfig,
        tokenizer: PreTrainedTokenizerFast,
        *,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = tokenizer
        self.backbone = backbone if backbone is not None else small(config, tokenizer)
        width = self.backbone.config.hidden_size
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, config.dim))
        self._pad = int(tokenizer.pad_token_id)

    @classmethod
    def from_backbone(cls, config: EncoderConfig) -> StateEncoder:
        """Start from the pretrained backbone ``config.backbone`` with its own tokenizer.

        Raises
        ------
        BundleError : the weights cannot be loaded or reached
        """
        tokenizer, backbone = pretrained(config)
        return cls(config, tokenizer, backbone=backbone)

    @property
    def feature_width(self) -> int:
        """h, the width of :meth:`encode_actions`."""
        return int(self.backbone.config.hidden_size)

    def chunk(self, texts: Sequence[str]) -> Chunks:
        """Return canonical texts as chunks of tokens, sized by the config.

        Raises
        ------
        BundleError : the encoder was trained on another version of the canonical form
        """
        c = self.config
        if c.canonical_version != CANONICAL_VERSION:
            raise BundleError(
                f"this encoder reads canonical text version {c.canonical_version}, this library writes "
                f"version {CANONICAL_VERSION}; use the wmsched release that trained it, or train it again"
            )
        return chunk_texts(
            self.tokenizer,
            texts,
            max_length=c.max_length,
            stride=c.stride,
            max_chunks=c.max_chunks,
        )

    def pool(self, chunks: Sequence[np.ndarray], owner: np.ndarray, texts: int) -> Tensor:
        """Return the mean over tokens, then over chunks [texts, h]; ``owner[i]`` is the text of chunk i."""
        device = self.head[0].weight.device
        order = np.argsort([len(c) for c in chunks], kind="stable")
        parts = np.array_split(order, 2) if len(order) >= 16 else [order]  # short chunks need less padding
        means = torch.cat([self._chunk_means([chunks[i] for i in part]) for part in parts])
        where = torch.from_numpy(np.asarray(owner, np.int64)[order]).to(device)
        total = torch.zeros(texts, means.shape[1], device=device).index_add_(0, where, means)
        return total / torch.bincount(where, minlength=texts).clamp(min=1)[:, None]

    def _chunk_means(self, chunks: Sequence[np.ndarray]) -> Tensor:
        length = max(len(c) for c in chunks)
        ids = np.full((len(chunks), length), self._pad, np.int64)
        mask = np.zeros((len(chunks), length), np.float32)
        for row, chunk in enumerate(chunks):
            ids[row, : len(chunk)] = chunk
            mask[row, : len(chunk)] = 1
        m = torch.from_numpy(mask).to(self.head[0].weight.device)
        hidden = self.backbone(torch.from_numpy(ids).to(m.device), attention_mask=m).last_hidden_state.float()
        return (hidden * m[..., None]).sum(1) / m.sum(1, keepdim=True)

    def forward(self, chunks: Sequence[np.ndarray], owner: np.ndarray, texts: int) -> Tensor:
        """Return unit vectors [texts, d] (Eq 4)."""
        return nn.functional.normalize(self.head(self.pool(chunks, owner, texts)), dim=-1)

    def encode(
        self, texts: Sequence[str], *, batch_size: int = 64, device: str = "cpu", precision: str = "float32"
    ) -> np.ndarray:
        """Return embeddings of program texts, without gradient and dropout.

        Parameters
        ----------
        texts : TensorIR, canonical or as TVM prints it
        batch_size : chunks of full length in a batch; more if they are shorter
        precision : "bfloat16" is 2 to 3 times faster on CPUs that have it and moves an embedding by about
            0.01, fit for embedding a dataset; "auto" uses it if the CPU has it

        Returns
        -------
        float32 [N, d], unit rows in the order of ``texts``; a row depends on its text alone, not on the order
        """
        features = self._features(texts, batch_size=batch_size, device=device, precision=precision)
        if not len(features):
            return np.zeros((0, self.config.dim), np.float32)
        with Evaluating(self, device), torch.no_grad():
            z = nn.functional.normalize(self.head(torch.from_numpy(features).to(device)), dim=-1)
        return z.cpu().numpy()

    def encode_actions(
        self, texts: Sequence[str], *, batch_size: int = 64, device: str = "cpu"
    ) -> np.ndarray:
        """Return features of action texts float32 [N, h]: masked mean pool, before the projection head."""
        return self._features(texts, batch_size=batch_size, device=device, precision="float32")

    def _features(self, texts: Sequence[str], *, batch_size: int, device: str, precision: str) -> np.ndarray:
        if isinstance(texts, str):
            raise TypeError("expected a list of texts, got one text")
        short = {text: canonical_text(text) for text in dict.fromkeys(texts)}
        distinct = sorted(
            set(short.values())
        )  # sorted, so the batches and the last bits do not depend on the order
        if not distinct:
            return np.zeros((0, self.feature_width), np.float32)
        chunks = self.chunk(distinct)
        means = np.zeros((len(chunks.ids), self.feature_width), np.float32)
        order = np.argsort(
            [len(ids) for ids in chunks.ids], kind="stable"
        )  # similar lengths together: little padding
        with Evaluating(self, device), torch.no_grad(), autocast(device, precision):
            for rows in _batches(order, chunks.ids, batch_size * self.config.max_length):
                picked = [chunks.ids[row] for row in rows]
                means[rows] = self.pool(picked, np.arange(len(picked)), len(picked)).cpu().numpy()
        counts = np.bincount(chunks.owner, minlength=len(distinct))[:, None]
        first = np.searchsorted(chunks.owner, np.arange(len(distinct)))
        features = np.add.reduceat(means, first, axis=0) / counts.astype(np.float32)
        place = {text: row for row, text in enumerate(distinct)}
        return features[[place[short[text]] for text in texts]]

    @cached_property
    def _backbone_json(self) -> dict[str, Any]:
        return json.loads(self.backbone.config.to_json_string(use_diff=False))

    def _config_json(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "encoder": dataclasses.asdict(self.config),
            "backbone": self._backbone_json,
            "special_tokens": special_tokens(self.tokenizer),
        }

    def fingerprint(self) -> str:
        """Return a hash of the weights, tokenizer and text form: equal hashes give equal embeddings."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
        digest.update(self.tokenizer.backend_tokenizer.to_str().encode())
        c = self.config
        digest.update(repr((c.max_length, c.stride, c.max_chunks, c.canonical_version)).encode())
        return digest.hexdigest()[:32]

    def save(self, directory: str | Path) -> None:
        """Write config.json, tokenizer.json and model.safetensors."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        save_weights(directory / "model.safetensors", self.state_dict())
        with atomic_open(directory / "tokenizer.json") as file:
            file.write(self.tokenizer.backend_tokenizer.to_str(pretty=True).encode())
        with atomic_open(directory / "config.json") as file:
            file.write((json.dumps(self._config_json(), indent=1, sort_keys=True) + "\n").encode())

    @classmethod
    def load(cls, directory: str | Path) -> StateEncoder:
        """Rebuild a saved encoder, in evaluation mode; needs no network.

        Raises
        ------
        BundleError : a file is missing, damaged or of another release
        """
        from safetensors.torch import load_file
        from transformers import AutoConfig, AutoModel

        directory = Path(directory)
        with usable(directory, "encoder"):
            values = json.loads((directory / "config.json").read_bytes())
            check_version(directory, "encoder", values["format_version"], FORMAT_VERSION)
            config = EncoderConfig.from_json(values["encoder"])
            tokenizer = wrap_tokenizer(str(directory / "tokenizer.json"), values["special_tokens"])
            backbone_config = AutoConfig.for_model(**values["backbone"])
            backbone = AutoModel.from_config(backbone_config, **options(backbone_config))
            encoder = cls(config, tokenizer, backbone=backbone)
            encoder.load_state_dict(load_file(directory / "model.safetensors"))
        return encoder.eval()


def _batches(order: np.ndarray, chunks: Sequence[np.ndarray], tokens: int) -> list[np.ndarray]:
    """Cut ``order`` (by ascending length) into batches of at most ``tokens`` tokens, padding included."""
    batches, start = [], 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - start) * len(chunks[order[end]]) > tokens:
            batches.append(order[start:end])
            start = end
    return batches


# Backbones: a pretrained transformer, or the small preset.


def pretrained(config: EncoderConfig) -> tuple[PreTrainedTokenizerFast, nn.Module]:
    """Return tokenizer and weights of ``config.backbone``, a transformers name or path.

    Raises
    ------
    BundleError
        They cannot be loaded or reached, are no text encoder, or read shorter chunks than `config` asks for.
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
    """Return constructor options of a backbone; E never uses RoBERTa's pooling layer."""
    pooler = {"add_pooling_layer": False} if config.model_type in ("roberta", "bert") else {}
    return {"attn_implementation": "eager"} | pooler


def small(config: EncoderConfig, tokenizer: PreTrainedTokenizerFast) -> nn.Module:
    """Return the preset that trains on two cores, with random weights."""
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


# Contexts of a torch module: precision; evaluation mode on a device.


def autocast(device: str, precision: str) -> torch.autocast:
    """Return a context for matrix products in ``precision``: "float32", "bfloat16" or "auto"."""
    if precision not in ("float32", "bfloat16", "auto"):
        raise ValueError(f"precision={precision!r} is none of float32, bfloat16, auto")
    kind = torch.device(device).type
    if precision == "auto":
        fast = torch.cuda.is_bf16_supported() if kind == "cuda" else _fast_on_processor()
        precision = "bfloat16" if fast else "float32"
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=precision == "bfloat16")


def _fast_on_processor() -> bool:
    has_bf16 = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # private in torch, may disappear
    return bool(has_bf16()) if has_bf16 is not None else False


class Evaluating:
    """Context: evaluation mode on a device; the previous mode is restored on exit."""

    def __init__(self, module: nn.Module, device: str) -> None:
        self.module, self.device = module, device

    def __enter__(self) -> None:
        self.was_training = self.module.training
        self.module.eval().to(self.device)

    def __exit__(self, *_: object) -> None:
        self.module.train(self.was_training)


def two_views(
    encoder: StateEncoder, chunks: Sequence[Sequence[np.ndarray]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two embeddings of each text, [B, d] and [B, d]; in training mode dropout makes them differ."""
    owner = np.repeat(np.arange(len(chunks)), [len(c) for c in chunks])
    flat = [ids for text in chunks for ids in text]
    z = encoder([*flat, *flat], np.concatenate([owner, owner + len(chunks)]), 2 * len(chunks))
    return z[: len(chunks)], z[len(chunks) :]


def effective_rank(z: np.ndarray) -> float:
    """Return exp(entropy) of the normalized covariance eigenvalues of z [N, d]."""
    eigenvalues = np.linalg.eigvalsh(np.cov(z.T.astype(np.float64))).clip(min=0)
    p = eigenvalues / max(eigenvalues.sum(), 1e-30)
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))
