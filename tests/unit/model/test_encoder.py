"""The state encoder: canonical text, tokens, embeddings, saving, training."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_dataset import ToyDataset, program

from wmsched.base.errors import BundleError
from wmsched.learn.data.embeddings import EmbeddingCache
from wmsched.learn.data.splits import split_workloads
from wmsched.learn.training.train_encoder import EncoderTraining, train_encoder
from wmsched.model.config import EncoderConfig
from wmsched.model.encoder import StateEncoder, effective_rank
from wmsched.model.tokenizer import canonical_text, chunk_texts, train_tokenizer

SMALL = EncoderConfig(
    hidden=16, layers=1, heads=2, feedforward=32, vocab_size=512, max_length=48, stride=8, dim=8
)
SHORT = EncoderTraining(
    steps=7, epoch_steps=3, checkpoint_steps=2, workloads_per_batch=3, states_per_workload=3
)
TEXTS = [program("red", n, 8, outer, inner, kind) for n in (64, 4096) for outer in (1, 2) for inner in (4, 8)
         for kind in ("range", "T.parallel")]  # fmt: skip

EXPECTED = """\
def main(p0: Buffer((64, 8), "float32"), red: Buffer((64,), "float32")):
 for v0=8 parallel:
  for v1=2 v2=4:
   red[v0 * 8 + v1 * 4 + v2] = float32(0)
  for v1=2 v3=8 v2=4:
   red[v0 * 8 + v1 * 4 + v2] += p0[v0 * 8 + v1 * 4 + v2, v3]"""


@pytest.fixture(scope="module")
def encoder() -> StateEncoder:
    torch.manual_seed(0)
    tokenizer = train_tokenizer([canonical_text(text) for text in TEXTS], vocab_size=512)
    return StateEncoder(SMALL, tokenizer).eval()


def test_canonical_text_of_a_program() -> None:
    assert canonical_text(program("red", 64, 8, 2, 4, "T.parallel")) == EXPECTED


def test_canonical_text_of_pragmas_and_threads() -> None:
    text = """\
    x_outer = T.int32()
    with T.attr(T.iter_var(x_outer, None, "DataPar", ""), "pragma_auto_unroll_max_step", 64):
        T.attr(T.iter_var(x_outer, None, "DataPar", ""), "pragma_unroll_explicit", 1)
        with T.launch_thread("threadIdx.x", 32) as threadIdx_x:
            v0[threadIdx_x] = v0[threadIdx_x + 1] + NT.T_b[T.min(threadIdx_x, 3)]"""
    assert canonical_text(text) == (
        "pragma auto_unroll_max_step 64:\n for v1=32 threadIdx.x:\n  v0[v1] = v0[v1 + 1] + NT.T_b[min(v1, 3)]"
    )


@given(st.sampled_from(TEXTS) | st.text("for in:=()T. \n\tv01ab[],+*/%", max_size=200))
def test_canonical_text_is_idempotent(text: str) -> None:
    once = canonical_text(text)
    assert canonical_text(once) == once


def test_canonical_text_of_a_constant_matrix() -> None:
    matrix = "T.float32(0)"
    for i in range(6):
        matrix = f"T.Select(i % 6 == {i} and j % 6 == 0, T.float32({i}.5), {matrix})"
    assert canonical_text(f"for i, j in T.grid(6, 6):\n    B[i, j] = {matrix}") == (
        "for v0=6 v1=6:\n B[v0, v1] = constants(6)"
    )
    assert canonical_text(f"C[0] = C[0] + (A[i] * {matrix})") == "C[0] += (A[i] * constants(6))"
    few = "for i in range(6):\n    B[i] = T.Select(i == 0, T.float32(1), A[i])"
    assert canonical_text(few) == "for v0=6:\n B[v0] = Select(v0 == 0, float32(1), A[v0])"


def test_canonical_text_keeps_what_differs() -> None:
    assert len({canonical_text(text) for text in TEXTS}) == len(TEXTS)


def test_iterator_names_do_not_matter_but_their_use_does() -> None:
    a = "for ax0_outer, ax1 in T.grid(4, 8):\n    C[ax0_outer * 8 + ax1] = 0"
    assert canonical_text(a) == canonical_text(a.replace("ax0_outer", "i").replace("ax1", "j"))
    assert canonical_text(a) != canonical_text(a.replace("ax0_outer * 8 + ax1", "ax1 * 8 + ax0_outer"))


def test_tokens_round_trip_and_are_what_the_docstring_says(encoder: StateEncoder) -> None:
    tokenizer = encoder.tokenizer
    ids = tokenizer(EXPECTED)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False) == EXPECTED
    pieces = [tokenizer.decode([i]) for i in ids]
    assert "\n   " in pieces  # a line break and its indentation: one token
    assert "64" in pieces and "4" in pieces  # numbers stand alone
    assert all(
        piece.isdigit() or not any(c.isdigit() for c in piece.lstrip("vpred0123456789float"))
        for piece in pieces[1:-1]
    )
    assert tokenizer.unk_token_id not in tokenizer("ø £ \t 漢")["input_ids"]


def test_chunks_overlap_by_the_stride_and_cover_the_text(encoder: StateEncoder) -> None:
    text = TEXTS[0]
    whole = encoder.tokenizer(canonical_text(text))["input_ids"][1:-1]
    chunks = chunk_texts(
        encoder.tokenizer, [canonical_text(text), "x"], max_length=20, stride=5, max_chunks=99
    )
    own = [ids[1:-1].tolist() for ids, owner in zip(chunks.ids, chunks.owner) if owner == 0]
    assert all(len(ids) <= 20 for ids in chunks.ids)
    assert all(left[-5:] == right[:5] for left, right in itertools.pairwise(own))
    assert own[0] + [token for ids in own[1:] for token in ids[5:]] == whole
    few = chunk_texts(encoder.tokenizer, [canonical_text(text)], max_length=20, stride=5, max_chunks=3)
    kept = [ids[1:-1].tolist() for ids in few.ids]
    assert len(kept) == 3 and kept[0] == own[0] and kept[-1] == own[-1]


def test_embedding_is_the_pooled_mean_written_out(encoder: StateEncoder) -> None:
    """Eq 4 by hand: tokens -> chunk means -> text mean -> head -> unit vector, one chunk at a time."""
    text = TEXTS[5]
    chunks = encoder.chunk([canonical_text(text)]).ids
    assert len(chunks) > 1
    means = []
    with torch.no_grad():
        for ids in chunks:
            hidden = encoder.backbone(torch.tensor(ids[None].astype(np.int64))).last_hidden_state
            means.append(hidden[0].numpy().mean(0))
        pooled = np.mean(means, 0)
        z = encoder.head(torch.from_numpy(pooled)).numpy()
    np.testing.assert_allclose(encoder.encode_actions([text])[0], pooled, atol=2e-6)
    np.testing.assert_allclose(encoder.encode([text])[0], z / np.linalg.norm(z), atol=2e-6)


def test_encode_shape_norm_and_empty(encoder: StateEncoder) -> None:
    z = encoder.encode(TEXTS)
    assert z.shape == (len(TEXTS), 8) and z.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1, atol=1e-5)
    assert encoder.encode([]).shape == (0, 8)
    assert encoder.encode_actions([]).shape == (0, 16)
    assert np.isfinite(encoder.encode([""])).all()
    with pytest.raises(TypeError, match="list of texts"):
        encoder.encode("one text")  # type: ignore[arg-type]


def test_encode_does_not_depend_on_order_duplicates_or_padding(encoder: StateEncoder) -> None:
    z = encoder.encode(TEXTS)
    order = np.random.default_rng(0).permutation(len(TEXTS))
    np.testing.assert_array_equal(encoder.encode([TEXTS[i] for i in order]), z[order])
    np.testing.assert_array_equal(encoder.encode(TEXTS + TEXTS[:3]), np.concatenate([z, z[:3]]))
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(alone, z, atol=1e-5)
    np.testing.assert_allclose(
        encoder.encode([*TEXTS, "x", "for " * 300], batch_size=1)[: len(TEXTS)], z, atol=1e-5
    )


def test_bfloat16_stays_close_and_an_unknown_precision_is_refused(encoder: StateEncoder) -> None:
    z, low = encoder.encode(TEXTS), encoder.encode(TEXTS, precision="bfloat16")
    assert 0.999 < (z * low).sum(1).min() <= 1 + 1e-6
    assert not np.array_equal(z, low)
    with pytest.raises(ValueError, match="float16"):
        encoder.encode(TEXTS, precision="float16")


def test_encode_leaves_training_mode_as_it_was_and_has_no_dropout(encoder: StateEncoder) -> None:
    encoder.train()
    try:
        np.testing.assert_array_equal(encoder.encode(TEXTS[:2]), encoder.encode(TEXTS[:2]))
        assert encoder.training
    finally:
        encoder.eval()


def test_what_is_saved_others_can_read(encoder: StateEncoder, tmp_path) -> None:
    (tmp_path / "plain").touch()
    encoder.save(tmp_path / "e")
    modes = {path.stat().st_mode for path in (*(tmp_path / "e").iterdir(), tmp_path / "plain")}
    assert len(modes) == 1  # as the user's umask says


def test_save_load_gives_the_same_numbers(encoder: StateEncoder, tmp_path) -> None:
    encoder.save(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", "tokenizer.json", "model.safetensors"}
    loaded = StateEncoder.load(tmp_path)
    assert loaded.config == encoder.config
    assert loaded.fingerprint() == encoder.fingerprint()
    np.testing.assert_array_equal(loaded.encode(TEXTS), encoder.encode(TEXTS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["encoder"].update(colour=3), "colour"),
        (lambda c: c.update(format_version=99), "format 99"),
        (lambda c: c["encoder"].update(hidden=16, dim=9), "train or copy"),
        (lambda c: c.pop("backbone"), "backbone"),
    ],
)
def test_a_changed_config_is_refused(encoder: StateEncoder, tmp_path, change, message) -> None:
    encoder.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    change(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BundleError, match=message):
        StateEncoder.load(tmp_path)


def test_damaged_or_missing_files_are_refused(encoder: StateEncoder, tmp_path) -> None:
    with pytest.raises(BundleError, match="nowhere"):
        StateEncoder.load(tmp_path / "nowhere")
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        encoder.save(tmp_path)
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:40])
        with pytest.raises(BundleError, match="no usable encoder"):
            StateEncoder.load(tmp_path)


def test_another_canonical_version_is_refused(encoder: StateEncoder) -> None:
    other = StateEncoder(dataclasses.replace(SMALL, canonical_version=0), encoder.tokenizer)
    with pytest.raises(BundleError, match="version 0"):
        other.encode(TEXTS[:1])


def test_a_backbone_by_path_is_used_with_its_own_tokenizer(encoder: StateEncoder, tmp_path) -> None:
    encoder.backbone.save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    config = dataclasses.replace(SMALL, backbone=str(tmp_path))
    other = StateEncoder.from_backbone(config)
    np.testing.assert_allclose(other.encode_actions(TEXTS), encoder.encode_actions(TEXTS), atol=1e-6)
    other.save(tmp_path / "saved")
    loaded = StateEncoder.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.encode(TEXTS), other.encode(TEXTS))
    with pytest.raises(BundleError, match="max_length=4096"):
        StateEncoder.from_backbone(dataclasses.replace(config, max_length=4096))
    with pytest.raises(BundleError, match="no/such"):
        StateEncoder.from_backbone(dataclasses.replace(config, backbone="no/such"))


@pytest.mark.parametrize("bad", [{"reading": "add"}, {"stride": 48}, {"temperature": 0.0}, {"max_chunks": 0}])
def test_bad_settings_are_refused(bad) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        dataclasses.replace(SMALL, **bad)


def test_effective_rank() -> None:
    rng = np.random.default_rng(0)
    assert effective_rank(np.outer(rng.normal(size=50), np.ones(4))) == pytest.approx(1, abs=1e-3)
    cross = np.concatenate([np.eye(4), -np.eye(4)])
    assert effective_rank(cross) == pytest.approx(4)


def test_split_holds_out_whole_networks() -> None:
    workloads = ToyDataset().workloads()
    train, valid = split_workloads(workloads, fraction=0.2, seed=1)
    network = {w.id: w.network for w in workloads}
    assert len(train) + len(valid) == 6 and len(valid) == 2
    assert not {network[w] for w in train} & {network[w] for w in valid}
    same = [dataclasses.replace(w, network="one") for w in workloads]
    train, valid = split_workloads(same, fraction=0.2)
    assert len(valid) == 2 and len(train) == 4
    assert split_workloads(workloads[:1], fraction=0.5) == ([workloads[0].id], [])


@pytest.mark.parametrize("networks", [("one", "one"), ("", ""), (None, ""), (None, "one")])
def test_split_keeps_a_program_on_one_side_whatever_machines_measured_it(networks) -> None:
    workloads = []
    for machine, network in enumerate(networks):  # None: the toy's own
        for workload in ToyDataset().workloads():
            label = workload.network if network is None else network
            one = dataclasses.replace(workload, network=label, target=f"machine{machine}")
            one.__dict__["id"] = f"{machine}-{workload.id}"
            workloads.append(one)
    key = {workload.id: workload.key for workload in workloads}
    for seed in range(4):
        train, valid = split_workloads(workloads, fraction=0.3, seed=seed)
        assert valid and len(train) + len(valid) == 12
        assert not {key[w] for w in train} & {key[w] for w in valid}


def test_embedding_cache_keeps_rows_and_survives_damage(encoder: StateEncoder, tmp_path) -> None:
    first = EmbeddingCache(encoder, tmp_path)
    first.add(TEXTS)
    again = EmbeddingCache(encoder, tmp_path)
    assert len(again.rows) == len(TEXTS)
    np.testing.assert_array_equal(again[TEXTS[3]], first[TEXTS[3]])
    np.testing.assert_allclose(first[TEXTS[3]], encoder.encode([TEXTS[3]])[0], atol=1e-5)
    (path,) = tmp_path.glob("*.npz")
    path.write_bytes(path.read_bytes()[:100])
    damaged = EmbeddingCache(encoder, tmp_path)
    assert not damaged.rows
    np.testing.assert_allclose(damaged[TEXTS[3]], first[TEXTS[3]], atol=1e-5)
    assert (
        EmbeddingCache(StateEncoder(SMALL, encoder.tokenizer), tmp_path).rows == {}
    )  # other weights, other file


def test_embeddings_that_cannot_be_kept_are_computed_all_the_same(
    encoder: StateEncoder, tmp_path, caplog
) -> None:
    (tmp_path / "file").touch()
    cache = EmbeddingCache(encoder, tmp_path / "file" / "folder")
    for text in TEXTS[:3]:
        np.testing.assert_allclose(cache[text], encoder.encode([text])[0], atol=1e-5)
    assert [message.partition(" (")[2][:15] for message in caplog.messages] == ["Not a directory"]  # once
    assert len(cache.rows) == 3


@pytest.mark.parametrize("reading", ["multiply", "log"])
def test_training_learns_to_tell_states_apart(tmp_path, reading: str) -> None:
    training = dataclasses.replace(
        SHORT, steps=30, epoch_steps=15, learning_rate=5e-3, warmup=2, valid_fraction=0.3
    )
    config = dataclasses.replace(SMALL, reading=reading)
    rows: list[dict] = []
    encoder = train_encoder(
        ToyDataset(records=8), config=config, training=training, out=tmp_path, log=rows.append
    )
    assert [row["step"] for row in rows] == [15, 30]
    assert rows[1]["loss"] < rows[0]["loss"]
    assert rows[1]["retrieval_inter"] > 0.5
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [
        15,
        30,
    ]
    np.testing.assert_array_equal(StateEncoder.load(tmp_path).encode(TEXTS[:3]), encoder.encode(TEXTS[:3]))


def test_a_killed_run_resumes_to_the_same_weights(tmp_path) -> None:
    class Killed(Exception):
        pass

    def kill_at(number: int):
        def on_step(step: int) -> None:
            if step == number:
                raise Killed

        return on_step

    data = ToyDataset()
    whole = train_encoder(data, config=SMALL, training=SHORT, out=tmp_path / "whole")
    for at in (3, 5):  # the second kill strikes between two checkpoints
        with pytest.raises(Killed):
            train_encoder(data, config=SMALL, training=SHORT, out=tmp_path / "cut", on_step=kill_at(at))
    cut = train_encoder(data, config=SMALL, training=SHORT, out=tmp_path / "cut")
    assert cut.fingerprint() == whole.fingerprint()
    lines = [
        [
            {k: v for k, v in json.loads(line).items() if k != "seconds"}
            for line in path.read_text().splitlines()
        ]
        for path in (tmp_path / "whole" / "metrics.jsonl", tmp_path / "cut" / "metrics.jsonl")
    ]
    assert lines[0] == lines[1] and [row["step"] for row in lines[0]] == [3, 6, 7]
    with pytest.raises(BundleError, match=r"other settings: training .*choose another output"):
        train_encoder(data, config=SMALL, training=dataclasses.replace(SHORT, seed=5), out=tmp_path / "cut")


def test_a_time_budget_ends_the_run_early(tmp_path) -> None:
    steps: list[int] = []
    training = dataclasses.replace(SHORT, steps=100_000)
    encoder = train_encoder(
        ToyDataset(), config=SMALL, training=training, out=tmp_path, minutes=0.02, on_step=steps.append
    )
    assert 0 < len(steps) < 100_000
    with pytest.raises(ValueError, match="minutes=0"):
        train_encoder(ToyDataset(), config=SMALL, training=training, out=tmp_path / "none", minutes=0)
    assert StateEncoder.load(tmp_path).fingerprint() == encoder.fingerprint()
