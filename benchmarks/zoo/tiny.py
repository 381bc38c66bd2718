"""Tiny configurations of transformers' architectures, by rules on the names of their settings.

Widths and heads are divided by one number in the whole configuration, so that a head's width and the sizes
that one part takes from another stay as they fit. Layers, experts, words and images become few and small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

LAYERS = re.compile(r"(^|_)((num_)?(hidden_)?layers?|n_layers?|depths?|num_(\w+_)?blocks|layer_depths)$")
NO_LAYERS = re.compile(r"feature_layer|first_k|norm|interval|freq")
HEADS = re.compile(r"(^|_)(heads?|num_(attention_)?heads)$|(^|_)n_heads?$")
WIDTHS = re.compile(
    r"^(d_model|d_ff|n_embd|n_inner|width|ffn_dim|channels|dims?)$|(^|_)(hidden|intermediate|embed|embedding|emb"
    r"|ffn|ff|mlp|model|proj|projection|projector|latent|inner|embd|fusion|stem|neck|out|output|conv|decoder|in"
    r"|encoder|pooler|feedforward|linear|text|vision|query|fpn|head_hidden|bottleneck|upsample_initial|tdnn"
    r"|codevector|downsample|classifier_proj|attention|expert|memory|fuser|reduced|shared|lru|representation)"
    r"_(sizes?|dims?|channels?|width)$"
)
NO_WIDTHS = re.compile(r"head_dim|kernel|num_channels|input_channels|image|patch|window|vocab|conv_dim_scale")
WORDS = re.compile(r"(^|_)vocab(ulary)?(_size)?(s)?$|^codebook_size$|^num_embeddings$")
IDS = re.compile(r"_(id|ids|index)$")
EXPERTS = re.compile(r"(^|_)(num_(local_|routed_)?experts|n_routed_experts|moe_num_experts)$")
#: Numbers of experts; not of words that an index chooses, whose scores of 0 are equal: any may be the next.
CHOSEN = re.compile(r"(per_tok|per_token|(?<!index_)top_?k)$")
GROUPS = re.compile(r"^(n_group|topk_group|num_expert_groups?)$")
INDEXES = re.compile(r"(index(es)?|indices|layers|_blocks)$")
MAX_WORDS = 128
FIRST_ID = 100  # from which on ids of special words are given anew
MAX_POSITIONS = 32  # of sounds
FRAMES = 4
#: Of a series, where a configuration leaves open how far it looks ahead; other settings follow from them.
OPEN = {"prediction_length": 8, "num_time_features": 2}
PATCHES = 4  # along an image's side
SMALL_IMAGE = 64


@dataclass(frozen=True)
class Rule:
    """How much smaller a configuration becomes.

    Parameters
    ----------
    divisor : int
        Of widths and numbers of heads.
    layers : int
        That are kept of each stack; 0 keeps all.
    images : bool
        Whether images become small.
    """

    divisor: int
    layers: int
    images: bool = True


#: From small to large; the first is taken that PyTorch runs.
RULES = (
    Rule(16, 2),
    Rule(8, 2),
    Rule(4, 2),
    Rule(2, 2),
    Rule(1, 2),
    Rule(8, 4),
    Rule(4, 4),
    Rule(1, 4),
    Rule(4, 2, images=False),
    Rule(1, 2, images=False),
    Rule(8, 0),
    Rule(1, 0),
    Rule(1, 0, images=False),
)


def parts(config: Any) -> Iterator[Any]:
    """Return a configuration and those inside it."""
    yield config
    for value in list(vars(config).values()):
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if hasattr(one, "model_type") and hasattr(one, "to_dict"):
                yield from parts(one)


def whole(kind: Any) -> Any:
    """Return a configuration of a kind, with settings that its users have to give."""
    if getattr(kind, "prediction_length", 0) is not None:
        return kind()
    return kind(**{name: value for name, value in OPEN.items() if hasattr(kind, name)})


def shrink(config: Any, rule: Rule) -> Any:
    """Make a configuration small, in place, and return it."""
    ids: dict[int, int] = {}
    for part in list(parts(config)):
        _layers(part, rule.layers)
        for name, value in list(vars(part).items()):
            if name.startswith("_") or isinstance(value, bool) or value is None:
                continue
            made = _smaller(part, name, value, rule, ids)
            if made != value:
                part.__dict__[name] = made  # not through validators: settings fit again when all are made
    return config


def _smaller(part: Any, name: str, value: Any, rule: Rule, ids: dict[int, int]) -> Any:
    if WORDS.search(name):
        return _each(value, lambda one: min(one, MAX_WORDS))
    if IDS.search(name):
        return _each(value, lambda one: ids.setdefault(one, FIRST_ID + len(ids)) if one >= FIRST_ID else one)
    if EXPERTS.search(name):
        return _each(value, lambda one: min(one, 4))
    if CHOSEN.search(name):
        return _each(value, lambda one: min(one, 2))
    if GROUPS.search(name):
        return _each(value, lambda one: min(one, 1))
    if name == "first_k_dense_replace":
        return min(value, 1)
    if name == "max_source_positions":
        return min(value, MAX_POSITIONS)
    if name == "num_frames":
        return min(value, FRAMES)
    if "image_size" in name:
        return _image(part, value) if rule.images else value
    if HEADS.search(name):
        return _each(value, lambda one: max(one // rule.divisor, 1) if one > 0 else one)
    if WIDTHS.search(name) and not NO_WIDTHS.search(name):
        return _each(value, lambda one: max(-(-one // rule.divisor), 1) if one > 4 else one)
    return value


def _layers(part: Any, kept: int) -> None:
    """Keep the first layers of each kind, in counts and in lists with a setting for each layer."""
    if not kept:
        return
    names = [
        name
        for name, value in vars(part).items()
        if LAYERS.search(name) and not NO_LAYERS.search(name) and not isinstance(value, bool)
    ]
    old = {vars(part)[name] for name in names if isinstance(vars(part)[name], int)}
    lists = {
        name: value
        for name, value in vars(part).items()
        if isinstance(value, list) and len(value) in old and len(value) > kept
    }
    chosen: dict[int, list[int]] = {}
    for length in {len(value) for value in lists.values()}:
        rows = list(zip(*(map(str, value) for value in lists.values() if len(value) == length)))
        first = [k for k, row in enumerate(rows) if row not in rows[:k]][:kept]
        others = [k for k in range(length) if k not in first]
        chosen[length] = sorted([*first, *others[: kept - len(first)]])
    for name, value in lists.items():
        part.__dict__[name] = [value[k] for k in chosen[len(value)]]
    for name in names:
        value = vars(part)[name]
        if name in lists:
            continue
        if isinstance(value, int):
            part.__dict__[name] = min(value, kept)
        elif isinstance(value, (list, tuple)) and all(isinstance(one, int) for one in value):
            part.__dict__[name] = type(value)(min(one, 1) for one in value)
    for name, value in list(vars(part).items()):
        whole = isinstance(value, list) and value and all(isinstance(one, int) for one in value)
        if whole and INDEXES.search(name) and name not in {*names, *lists} and max(old, default=0) > kept:
            part.__dict__[name] = [one for one in value if one < kept] or [kept - 1]


def _image(part: Any, value: Any) -> Any:
    patch = getattr(part, "patch_size", 4)
    patch = max(patch) if isinstance(patch, (list, tuple)) else patch
    side = patch * PATCHES if isinstance(patch, int) and patch >= 8 else SMALL_IMAGE
    return _each(value, lambda one: min(one, side))


def _each(value: Any, change: Callable[[int], int]) -> Any:
    """Change a number, or the numbers of a list."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_each(one, change) for one in value)
    return value
