"""Training of E: contrastive learning on TensorIR texts (section 3.3, Eqs 5 and 6).

A batch has a few workloads with a few states each, every state in two views under dropout. A state's second
view is its positive. The second views of other states are its negatives: intra-file in the same workload,
inter-file in the rest. Every random choice depends on (seed, step), so a resumed run repeats the draws of an
uninterrupted one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from wmsched.base.errors import DatasetError
from wmsched.learn.data.splits import split_workloads
from wmsched.learn.data.texts import TextPool, action_texts_of, states_of
from wmsched.learn.training.checkpoint import Clock, data_digest
from wmsched.learn.training.loop import Loop
from wmsched.model.config import EncoderConfig
from wmsched.model.encoder import StateEncoder, autocast, effective_rank, two_views
from wmsched.model.losses import representation_loss
from wmsched.model.tokenizer import canonical_text, special_tokens, train_tokenizer, wrap_tokenizer

if TYPE_CHECKING:
    from wmsched.learn.data.dataset import Dataset


PRETRAINED_RATE = 2e-5  # learning rate; at some 50 times that a pretrained backbone forgets


@dataclass(frozen=True)
class EncoderTraining:
    """Training settings of E."""

    seed: int = 0  # of the split, the initial weights, the batches and the dropout
    steps: int = 400  # batches in all
    epoch_steps: int = 100  # validate and write a metrics line every so many steps
    checkpoint_steps: int = 25  # write a checkpoint every so many steps
    workloads_per_batch: int = 10  # groups in a batch, the source of inter-file negatives
    states_per_workload: int = 5  # states of each group, the source of intra-file negatives
    train_chunks: int = 1  # chunks of a text in a view (the same in both), to bound a step's cost
    states_limit: int = 64  # states of a workload; more would mostly repeat
    action_share: float = 0.15  # of batches are action texts, to train the features that F reads
    precision: str = "auto"  # of matrix products: "float32", "bfloat16", or "auto": bfloat16 if fast
    learning_rate: float = 1e-3  # peak; for a pretrained backbone use about PRETRAINED_RATE
    warmup: int = 20  # steps
    weight_decay: float = 0.01  # AdamW
    clip: float = 1.0  # largest gradient norm
    valid_fraction: float = 0.1  # share of workloads held out, by network
    valid_workloads: int = 16  # held-out workloads evaluated each epoch
    valid_states: int = 8  # states of each


def train_encoder(
    dataset: Dataset,
    *,
    config: EncoderConfig | None = None,
    training: EncoderTraining | None = None,
    out: str | Path,
    minutes: float | None = None,
    resume: bool = True,
    log: Callable[[dict[str, Any]], None] | None = None,
    on_step: Callable[[int], None] | None = None,
) -> StateEncoder:
    """Train E and save it in the directory ``out``, with ``metrics.jsonl`` and ``checkpoint.safetensors``.

    Parameters
    ----------
    minutes : time limit of training, which also scales the learning rate schedule; reading and tokenizing the
        data do not count
    resume : continue from ``out/checkpoint.safetensors`` if there is one
    log : receives each metrics line;  on_step : receives the number of each finished step

    Raises
    ------
    DatasetError : no workload has two different states
    BundleError : the checkpoint has other settings or data
    """
    config = config or EncoderConfig()
    t = training or EncoderTraining()
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {"encoder": dataclasses.asdict(config), "training": dataclasses.asdict(t)}
    settings["data"] = data_digest(dataset)
    loop = Loop(
        out / "checkpoint.safetensors",
        out / "metrics.jsonl",
        settings,
        Clock(steps=t.steps, minutes=minutes),
        resume,
        log,
        on_step,
    )

    train_ids, valid_ids = split_workloads(dataset.workloads(), fraction=t.valid_fraction, seed=t.seed)
    train_texts = [states_of(dataset, workload_id, t.states_limit, t.seed) for workload_id in train_ids]
    valid_texts = [states_of(dataset, w, t.valid_states, t.seed) for w in valid_ids[: t.valid_workloads]]
    action_texts = [action_texts_of(dataset, workload_id) for workload_id in train_ids]

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(t.seed)
        encoder = _start(config, out, [*train_texts, *action_texts], resume=loop.resume)
        states = TextPool.build(encoder, train_texts)
        actions = TextPool.build(encoder, action_texts)
        valid = TextPool.build(encoder, valid_texts)
        if not any(len(group) > 1 for group in states.groups):
            raise DatasetError(
                f"{dataset.root}: no workload has two different states to train an encoder on; "
                "replay more records"
            )

        def loss_of(rng: np.random.Generator) -> torch.Tensor:
            pool = actions if actions.groups and rng.random() < t.action_share else states
            numbers, groups = pool.sample(rng, groups=t.workloads_per_batch, texts=t.states_per_workload)
            chunks = pool.pick_chunks(numbers, rng, t.train_chunks)
            with autocast("cpu", t.precision):
                anchor, positive = two_views(encoder, chunks)
            return batch_loss(anchor, positive, groups, config, alike(chunks))

        loop.run(encoder, t, loss_of, lambda: validate(encoder, valid))
    encoder.eval().save(out)
    return encoder


def alike(chunks: Sequence[Sequence[np.ndarray]]) -> torch.Tensor:
    """Return whether each two texts have the same tokens in this step, bool [B, B].

    A step reads few chunks of a long text, so two states that differ elsewhere look equal.
    """
    names = [b"|".join(ids.tobytes() for ids in text) for text in chunks]
    first = {name: number for number, name in reversed(list(enumerate(names)))}
    numbers = torch.tensor([first[name] for name in names])
    return numbers[:, None] == numbers[None, :]


def batch_loss(
    anchor: torch.Tensor,
    positive: torch.Tensor,
    groups: np.ndarray,
    config: EncoderConfig,
    same: torch.Tensor,
) -> torch.Tensor:
    """Return the loss of Eq 6 with the batch's other states as negatives, except those with the same tokens.

    ``groups`` [B] separate intra- from inter-file negatives; ``same`` [B, B] comes from `alike`.
    """
    cosines = anchor @ positive.T
    group = torch.from_numpy(groups)
    return representation_loss(
        cosines.diagonal(),
        cosines,
        group[:, None] == group[None, :],
        ~same,
        intra_weight=config.intra_weight,
        inter_weight=config.inter_weight,
        temperature=config.temperature,
        reading=config.reading,
    )


@torch.no_grad()
def validate(encoder: StateEncoder, pool: TextPool) -> dict[str, Any]:
    """Return retrieval of a state's second dropout view on held-out workloads, and the embedding's shape.

    ``retrieval_intra``: the positive beats every other state of its workload; ``retrieval_inter``: every
    state of other workloads; ``retrieval_all``: both. ``effective_rank``: exp of the entropy of the
    normalized covariance eigenvalues of undisturbed embeddings (between 1 and d). Mean cosines complete them.
    """
    if len(pool.chunks) < 3:
        return {}
    owner = np.full(len(pool.chunks), -1)
    for number, texts in enumerate(pool.groups):
        owner[texts] = number
    views: list[list[np.ndarray]] = [[], [], []]
    for begin in range(0, len(pool.chunks), 16):
        batch = pool.chunks[begin : begin + 16]
        encoder.train()
        for into, view in zip(views, two_views(encoder, batch)):
            into.append(view.numpy())
        encoder.eval()
        flat, lengths = [ids for text in batch for ids in text], [len(text) for text in batch]
        views[2].append(encoder(flat, np.repeat(np.arange(len(batch)), lengths), len(batch)).numpy())
    first, second, clean = (np.concatenate(view) for view in views)
    cosines = first @ second.T
    own = owner[:, None] == owner[None, :]
    self_ = np.eye(len(owner), dtype=bool)
    best = {
        name: np.where(mask, cosines, -2).max(1) for name, mask in (("intra", own & ~self_), ("inter", ~own))
    }
    true = cosines.diagonal()
    pairs = clean @ clean.T
    return {
        "texts": len(owner),
        "retrieval_intra": float((true > best["intra"]).mean()),
        "retrieval_inter": float((true > best["inter"]).mean()),
        "retrieval_all": float((true > np.maximum(best["intra"], best["inter"])).mean()),
        "cosine_views": float(true.mean()),
        "cosine_intra": float(pairs[own & ~self_].mean()) if (own & ~self_).any() else float("nan"),
        "cosine_inter": float(pairs[~own].mean()) if (~own).any() else float("nan"),
        "effective_rank": effective_rank(clean),
    }


def _start(config: EncoderConfig, out: Path, texts: Sequence[Iterable[str]], *, resume: bool) -> StateEncoder:
    """Build the untrained encoder; a resumed run keeps its tokenizer."""
    if config.backbone is not None:
        return StateEncoder.from_backbone(config)
    path = out / "tokenizer.json"
    if resume and path.is_file():
        return StateEncoder(
            config,
            wrap_tokenizer(str(path), special_tokens(train_tokenizer([], vocab_size=config.vocab_size))),
        )
    distinct = sorted({canonical_text(text) for group in texts for text in group})
    tokenizer = train_tokenizer(distinct, vocab_size=config.vocab_size)
    tokenizer.backend_tokenizer.save(str(path))
    return StateEncoder(config, tokenizer)
