"""Tokens of TensorIR and action text: canonical text, the small BPE tokenizer, overlapping chunks.

TVM prints TensorIR with much repetition: an iterator such as
``nn_outer_outer_outer_yy_outer_outer_outer_fused`` appears in every index of every store.
:func:`canonical_text` shortens a program several times. The canonical form is part of the model, so an
encoder stores :data:`CANONICAL_VERSION` and compares it when it is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wmsched.base.errors import BundleError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CANONICAL_VERSION = 1
"""Raise it with every change of :func:`canonical_text` or of the pre-tokenization."""

SPECIAL_TOKENS = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
MAX_INDENT = 24  # levels; deeper nests share the last indentation token plus one for the rest

_DROP = re.compile(
    r"^\s*(?:#.*|@(?:I\.ir_module|T\.prim_func)\b.*|class \w+:|T\.func_attr\(.*"
    r"|from tvm\b.*|\w+ = T\.(?:int32|int64)\(\))?$"
)
_PRAGMA = re.compile(
    r'^(\s*)(with )?T\.attr\((?:T\.iter_var\([^()]*\)|[\w.]+), "pragma_(\w+)", (?:T\.int32\()?(-?\w+)\)?\):?$'
)
_FOR = re.compile(r"^(\s*)for ([\w, ]+) in (?:T\.)?(\w+)\((.*)\):$")
_SHORT_FOR = re.compile(r"^\s*for ((?:\w+=\S+ )*\w+=\S+)(?: \w+)?:$")
_LAUNCH = re.compile(r'^(\s*)with T\.launch_thread\("([\w.]+)", (\w+)\) as (\w+):$')
_WORD = re.compile(r"[A-Za-z_]\w*")
_PREFIX = re.compile(r"\bT\.")
_SHORT_NAME = re.compile(r"v\d+$")
_CONSTANTS = re.compile(r"(?:Select\([^,]*, float\d+\([^()]*\), ){4,}float\d+\([^()]*\)(\)+)")
_UPDATE = re.compile(r"^(\s*)(\S+\[.*?\]|\w+) = \2 ([+*]) (.*)$")


def canonical_text(text: str) -> str:
    """Return a shorter program text that keeps what schedules change; idempotent.

    - the header, comments, decorators, function attributes and declarations of loop variables are dropped;
    - iterators are renamed ``v0, v1, ...`` in the order of their loops, skipping names that are taken;
    - ``for a, b in T.grid(4, 8):`` becomes ``for v0=4 v1=8:``, and the kind of a loop follows its extent
      (``for v0=64 parallel:``);
    - a constant matrix of nested ``Select`` (Winograd's) becomes ``constants(36)``: its thousand tokens,
      which no schedule changes, would push the loops out of the chunks;
    - ``C[i] = C[i] + x`` becomes ``C[i] += x``; ``T.`` prefixes go; pragmas are one short line;
    - the indentation is one space a level.

    Other text (an action, say) loses only superfluous white space.
    """
    lines: list[str] = []
    iterators: dict[str, None] = {}  # in order of appearance
    for raw in text.splitlines():
        line = raw.rstrip()
        if _DROP.match(line) or _DROP.match(_PREFIX.sub("", line)):
            continue
        loop = _FOR.match(line)
        if loop:
            line = _short_loop(loop, iterators)
        elif "pragma_" in line and (pragma := _PRAGMA.match(line)):
            indent, opens, name, value = pragma.groups()
            if name == "unroll_explicit":  # always accompanies auto_unroll_max_step with the same value
                continue
            line = f"{indent}pragma {name} {value}" + (":" if opens else "")
        elif launch := _LAUNCH.match(line):
            indent, axis, extent, name = launch.groups()
            iterators.setdefault(name)
            line = f"{indent}for {name}={extent} {axis}:"
        elif short := _SHORT_FOR.match(line):
            iterators.update(dict.fromkeys(part.split("=")[0] for part in short.group(1).split(" ")))
        lines.append(line)
    names = _short_names(lines, iterators)

    def rename(match: re.Match[str]) -> str:
        return names.get(match.group(), match.group())

    out = []
    nest = [-1]  # indentations of the enclosing blocks
    for line in lines:
        body = line.lstrip(" ")
        indent = len(line) - len(body)
        while indent < nest[-1]:
            nest.pop()
        if indent > nest[-1]:
            nest.append(indent)
        body = _PREFIX.sub("", _WORD.sub(rename, body))
        body = _CONSTANTS.sub(_short_constants, body)
        if update := _UPDATE.match(body):
            body = f"{update.group(2)} {update.group(3)}= {update.group(4)}"
        out.append(" " * (len(nest) - 2) + " ".join(body.split()))
    return "\n".join(out)


def _short_loop(loop: re.Match[str], iterators: dict[str, None]) -> str:
    indent, names, kind, extents = loop.groups()
    variables = [name.strip() for name in names.split(",")]
    iterators.update(dict.fromkeys(variables))
    sizes = [size.strip() for size in extents.split(",")]
    known = ("grid", "serial", "range", "parallel", "vectorized", "unroll")
    if kind not in known or len(sizes) != len(variables):
        return f"{indent}for {' '.join(variables)} in {kind}({extents}):"
    suffix = "" if kind in ("grid", "serial", "range") else f" {kind}"
    return f"{indent}for {' '.join(f'{v}={s}' for v, s in zip(variables, sizes))}{suffix}:"


def _short_constants(match: re.Match[str]) -> str:
    terms = match.group().count("Select(")
    return f"constants({terms})" + match.group(1)[terms:]  # keeps parentheses opened outside


def _short_names(lines: Sequence[str], iterators: Iterable[str]) -> dict[str, str]:
    """Map iterators to ``v<number>``, skipping names of that form already in use."""
    own = set(iterators)
    taken = {word for line in lines for word in _WORD.findall(line) if _SHORT_NAME.match(word)} - own
    names: dict[str, str] = {}
    number = 0
    for name in iterators:
        while f"v{number}" in taken:
            number += 1
        names[name] = f"v{number}"
        number += 1
    return names


def train_tokenizer(texts: Iterable[str], *, vocab_size: int = 4096) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on canonical texts.

    A word includes the punctuation after it (``v3 * ``, ``T_add[``); frequent ones merge into one token.
    Numbers are split off, so a common extent is always the same token. A line break with its indentation is
    one token.

    Parameters
    ----------
    texts : canonical texts (states and actions)
    vocab_size : an upper bound; small corpora give fewer tokens
    """
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        processors,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                Regex(r"\n *|[A-Za-z_][A-Za-z_0-9]*[^A-Za-z_0-9\n]*|[0-9]{1,6}|[^A-Za-z_0-9\n]+"), "isolated"
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = list(SPECIAL_TOKENS.values())
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size - MAX_INDENT,
            special_tokens=specials,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # so that no byte is unknown
            show_progress=False,
            max_token_length=32,
        ),
    )
    tokenizer.add_tokens([AddedToken("\n" + " " * n, normalized=False) for n in range(MAX_INDENT)])
    bos, eos = SPECIAL_TOKENS["bos_token"], SPECIAL_TOKENS["eos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        special_tokens=[(bos, tokenizer.token_to_id(bos)), (eos, tokenizer.token_to_id(eos))],
    )
    return wrap_tokenizer(tokenizer, SPECIAL_TOKENS)


def wrap_tokenizer(tokenizer: object, specials: dict[str, str]) -> PreTrainedTokenizerFast:
    """Wrap a ``tokenizers.Tokenizer`` (or the path of a tokenizer.json) with its special tokens.

    Raises
    ------
    BundleError : the file is missing or damaged
    """
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    if isinstance(tokenizer, str):
        try:
            tokenizer = Tokenizer.from_file(tokenizer)
        except Exception as error:  # tokenizers raises a bare Exception
            raise BundleError(
                f"{tokenizer}: no usable encoder tokenizer ({error}); train or copy it again"
            ) from error
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials)


def special_tokens(tokenizer: PreTrainedTokenizerFast) -> dict[str, str]:
    """Return the special tokens by role, an argument of :func:`wrap_tokenizer`."""
    return {k: str(v) for k, v in tokenizer.special_tokens_map.items() if isinstance(v, str)}


@dataclass(frozen=True, slots=True)
class Chunks:
    """Token chunks of several texts. ``ids[i]`` belongs to text ``owner[i]``; owners ascend."""

    ids: list[np.ndarray]
    owner: np.ndarray


def chunk_texts(
    tokenizer: PreTrainedTokenizerFast,
    texts: Sequence[str],
    *,
    max_length: int,
    stride: int,
    max_chunks: int,
) -> Chunks:
    """Cut canonical texts into chunks of at most ``max_length`` tokens, neighbours sharing ``stride``.

    A text of more than ``max_chunks`` chunks keeps the first, the last and evenly spaced ones between: the
    epilogue of a program matters as much as its beginning.
    """
    if not texts:
        return Chunks([], np.zeros(0, np.int64))
    encoded = tokenizer(
        list(texts),
        truncation=True,
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        return_attention_mask=False,
        return_token_type_ids=False,
    )
    owner = np.asarray(encoded["overflow_to_sample_mapping"], np.int64)
    counts = np.bincount(owner, minlength=len(texts))
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    keep = [
        start + (np.arange(n) if n <= max_chunks else np.linspace(0, n - 1, max_chunks).round().astype(int))
        for start, n in zip(first, counts)
    ]
    rows = np.concatenate(keep)
    ids = encoded["input_ids"]
    return Chunks([np.asarray(ids[row], np.int32) for row in rows], owner[rows])
