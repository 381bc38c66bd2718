"""E, the state encoder (section 3.3, Eq 4): TensorIR text -> a unit vector; and features of action text.

A RoBERTa backbone reads overlapping chunks of tokens; the mean over the tokens of each chunk, then over the
chunks of each text, then a projection head and L2 normalization. The backbone is any ``transformers`` name or
path (CodeBERT among them), or the small preset that trains on two cores.
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

from wmsched.backbones import options, pretrained, small
from wmsched.base.errors import BundleError
from wmsched.base.files import whole
from wmsched.encoder_config import EncoderConfig
from wmsched.tokenizer import (
    CANONICAL_VERSION,
    Chunks,
    canonical_text,
    chunk_texts,
    special_tokens,
    wrap_tokenizer,
)
from wmsched.torch_modes import Evaluating, autocast
from wmsched.weights import check_version, save_weights, usable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FORMAT_VERSION = 1


class StateEncoder(nn.Module):
    """The state encoder E.

    Parameters
    ----------
    config : EncoderConfig
    tokenizer : a fast tokenizer; the backbone's own, or one of :func:`wmsched.tokenizer.train_tokenizer`
    backbone : a transformers model returning ``last_hidden_state``; None builds what the config says
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
        """Tokenize canonical texts into chunks as the config says.

        Raises
        ------
        BundleError : the encoder was trained on another canonical form than this library writes
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
        """Mean over tokens, then over chunks. ``owner[i]`` is the text of chunk i. -> [texts, h]."""
        device = self.head[0].weight.device
        order = np.argsort([len(c) for c in chunks], kind="stable")
        parts = np.array_split(order, 2) if len(order) >= 16 else [order]  # the short ones need less padding
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
        """Embed program texts, without gradient and dropout.

        Parameters
        ----------
        texts : TensorIR, canonical or as TVM prints it
        batch_size : chunks of full length at once; more of them where they are shorter
        precision : "bfloat16" is two to three times faster on CPUs that have it, and moves an embedding by
            about a hundredth: for embedding a dataset; "auto" takes it where the CPU has it

        Returns
        -------
        float32 [N, d], rows of length 1 in the order of ``texts``; equal texts give equal rows, and a row
        does not depend on the order of the texts
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
        """Return features of action texts: masked mean pooled, before the projection head. float32 [N, h]."""
        return self._features(texts, batch_size=batch_size, device=device, precision="float32")

    def _features(self, texts: Sequence[str], *, batch_size: int, device: str, precision: str) -> np.ndarray:
        if isinstance(texts, str):
            raise TypeError("expected a list of texts, got one text")
        short = {text: canonical_text(text) for text in dict.fromkeys(texts)}
        distinct = sorted(
            set(short.values())
        )  # sorted: the batches, so the last bits too, do not depend on the order
        if not distinct:
            return np.zeros((0, self.feature_width), np.float32)
        chunks = self.chunk(distinct)
        means = np.zeros((len(chunks.ids), self.feature_width), np.float32)
        order = np.argsort(
            [len(ids) for ids in chunks.ids], kind="stable"
        )  # short with short: little padding
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
        with whole(directory / "tokenizer.json") as file:
            file.write(self.tokenizer.backend_tokenizer.to_str(pretty=True).encode())
        with whole(directory / "config.json") as file:
            file.write((json.dumps(self._config_json(), indent=1, sort_keys=True) + "\n").encode())

    @classmethod
    def load(cls, directory: str | Path) -> StateEncoder:
        """Rebuild a saved encoder, in evaluation mode; needs no network.

        Raises
        ------
        BundleError : a file is missing or damaged, or the format is another release's
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
