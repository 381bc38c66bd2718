"""Tiny configurations of transformers' architectures, by rules on the names of their settings.

Widths and heads are divided by one number in the whole configuration, so that a head's width and the sizes
that one part takes from another stay as they fit. Layers, experts, words and images become few and small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

LAYERS = re.compile(
    r"(^|_)((num_)?(hidden_)?layers?|n_layers?|depths?|num_(\w+_)?blocks|num_block_repeats|num_self_attends_per_block"
    r"|layer_depths)$"
)
NO_LAYERS = re.compile(r"feature_layer|first_k|norm|interval|freq")
HEADS = re.compile(r"(^|_)heads$|(^|_)(n|num|attention|encoder_attention|decoder_attention)_head$")
WIDTHS = re.compile(
    r"^(d_model|d_ff|d_latents|n_embd|n_inner|width|ffn_dim|channels|dims?)$|(^|_)(hidden|intermediate|embed|embedding|emb"
    r"|ffn|ff|mlp|model|proj|projection|projector|latent|inner|embd|fusion|stem|neck|out|output|conv|decoder|in"
    r"|encoder|pooler|feedforward|linear|base|text|vision|query|fpn|head_hidden|bottleneck|upsample_initial|tdnn"
    r"|codevector|downsample|classifier_proj|attention|expert|memory|fuser|reduced|shared|lru|representation)"
    r"_(sizes?|dims?|channels?|width)$|^(upsample_groups|mamba_d_ssm)$"
)
NO_WIDTHS = re.compile(r"head_dim|kernel|num_channels|input_channels|image|patch|window|vocab|conv_dim_scale")
WORDS = re.compile(r"(^|_)vocab(ulary)?(_size)?(s|_per_layer_input|_base)?$|^codebook_size$|^num_embeddings$")
IDS = re.compile(r"_(id|ids|index)$")
EXPERTS = re.compile(r"(^|_)(num_(local_|routed_)?experts|n_routed_experts|moe_num_experts)$")
#: Numbers of experts; not of words that an index chooses, whose scores of 0 are equal: any may be the next.
CHOSEN = re.compile(r"(experts_per_tok|experts_per_token|top_k_experts|^moe_k|(?<!index_)top_?k)$")
GROUPS = re.compile(r"^(n_group|topk_group|num_expert_groups?)$")
#: Places of features among words, by the name that a model has for them; without one a model finds none.
PLACE = re.compile(r"^(image|video|audio)_token_(id|index)$")
QUERIES = re.compile(r"(^|_)num_(object_)?queries$|^two_stage_num_proposals$")
MAX_QUERIES = 8  # of a detector: more lie so close that the last bits of their scores order them
INDEXES = re.compile(r"(index(es)?|indices|layers|_blocks)$")
MAX_WORDS = 128
SECTIONS = "mrope_section"
OUTPUT = "out_hidden_size"  # of a model of images
SHARED = "num_kv_shared_layers"  # the last layers, which take keys and values of those before them
FIRST_ID = 100  # from which on ids of special words are given anew
MAX_POSITIONS = 32  # of sounds
FRAMES = 4
#: Of a series, where a configuration leaves open how far it looks ahead; other settings follow from them.
OPEN = {"prediction_length": 8, "num_time_features": 2}
#: What users give where a setting has no default, by that setting.
NEEDED: dict[str, dict[str, Any]] = {
    "prediction_length": OPEN,
    "vocab_size": {"vocab_size": MAX_WORDS, "pad_token_id": 1, "mask_token_id": 2},
    "vocabulary_map": {"vocabulary_map": {"<image>": FIRST_ID, "<|extra_200|>": FIRST_ID + 1}},
}
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


def own(part: Any, name: str) -> Any:
    """Return a setting of one configuration; None where it has none, or another for each layer."""
    try:
        return getattr(part, name, None)
    except RuntimeError:  # what transformers raises of settings that differ from layer to layer
        return None


def whole(kind: Any) -> Any:
    """Return a configuration of a kind, with settings that its users have to give."""
    lacks = [name for name in NEEDED if getattr(kind, name, 0) is None]
    if not lacks:
        return kind()
    given = {key: value for name in lacks for key, value in NEEDED[name].items()}
    return kind(**{name: value for name, value in given.items() if name in lacks or hasattr(kind, name)})


def shrink(config: Any, rule: Rule) -> Any:
    """Make a configuration small, in place, and return it."""
    ids: dict[Any, int] = {}
    widths = _whole_heads(config, rule.divisor)
    for part in list(parts(config)):
        _layers(part, rule.layers)
        for held in (vars(part), *_of_layers(part).values()):
            for name, value in list(held.items()):
                if value is None and PLACE.search(name):
                    held[name] = ids.setdefault(name, FIRST_ID + len(ids))
                if value is None and CHOSEN.search(name) and any(map(EXPERTS.search, held)):
                    held[name] = 2
                if value is None and name == "mlp_layer_types":
                    held[name] = ["dense", *["sparse"] * (_count(part) - 1)]
                if name.startswith("_") or isinstance(value, bool) or value is None:
                    continue
                made = _smaller(part, name, value, rule, ids, widths)
                if made is not value and made != value:
                    held[name] = made  # not through validators: settings fit again when all are made
        _rotation(part)
    _joined(config)
    return config


def _joined(config: Any) -> None:
    """Make sizes that one part takes from another fit again.

    Features go among words with the words' width, and an image's patches are counted.
    """
    text = own(config, "text_config")
    width = own(text, "hidden_size") if text is not None else None
    for part in parts(config):
        if isinstance(width, int) and isinstance(vars(part).get(OUTPUT), int):
            part.__dict__[OUTPUT] = width
        sizes = [vars(part).get(name) for name in ("image_embedding_size", "image_size", "patch_size")]
        if all(isinstance(size, int) for size in sizes):
            part.__dict__["image_embedding_size"] = sizes[1] // sizes[2]


def _head(part: Any) -> tuple[int, int]:
    """Return a configuration's width and number of heads; 0 of what it has not."""
    found = (own(part, "hidden_size"), own(part, "num_attention_heads"))
    width, heads = (one if isinstance(one, int) else 0 for one in found)
    return width, heads


def _count(part: Any) -> int:
    """Return a configuration's number of layers; 1 where it has none."""
    count = own(part, "num_hidden_layers")
    return count if isinstance(count, int) else 1


def _whole_heads(config: Any, divisor: int) -> dict[int, int]:
    """Return smaller widths by their old ones, where a divided width would have no whole, even heads."""
    found = {}
    for part in parts(config):
        width, heads = _head(part)
        if not heads or width % heads:
            continue
        few = max(heads // divisor, 1)
        small = -(-width // divisor)
        if small % few or small // few % 2:
            found[width] = width // heads * few
    return found


def _rotation(part: Any) -> None:
    """Make the parts of a head that turn by time, height and width add up to half of it.

    Some models have rotations for each kind of layer, where their configuration has one for all.
    """
    turns, (width, heads) = own(part, "rope_parameters"), _head(part)
    for name, value in (("head_dim", width // max(heads, 1)), ("num_key_value_heads", heads)):
        if heads and vars(part).get(name, 0) is None:
            part.__dict__[name] = value
    head = own(part, "head_dim") or (width // heads if heads else 0)
    if not isinstance(turns, dict) or not isinstance(head, int):
        return
    named = SECTIONS in (own(part, "ignore_keys_at_rope_validation") or ())
    is_flat = not any(isinstance(value, dict) for value in turns.values())
    half = -(-int(head * (turns.get("partial_rotary_factor") or 1)) // 2)
    sections = turns.get(SECTIONS)
    if (named or sections) and sum(sections or ()) != half:
        turns[SECTIONS] = [half // 3, half // 3, half - 2 * (half // 3)]
    if is_flat:
        plain = {"rope_type": "default", "rope_theta": 10000.0, **turns}
        for kind in set(own(part, "layer_types") or ()):
            turns.setdefault(kind, dict(plain))


def _of_layers(part: Any) -> dict[int, dict[str, Any]]:
    """Return the settings that single layers have otherwise than their configuration, by layer."""
    special = vars(part).get("_heterogeneity_spec")
    return special.per_layer_overrides if special is not None else {}


def _smaller(
    part: Any, name: str, value: Any, rule: Rule, ids: dict[Any, int], widths: dict[int, int]
) -> Any:
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
    if QUERIES.search(name):
        return _each(value, lambda one: min(one, MAX_QUERIES))
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
        return _each(value, lambda one: widths.get(one, max(-(-one // rule.divisor), 1)) if one > 4 else one)
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
    if special := _of_layers(part):
        there = chosen.get(getattr(part, "num_hidden_layers", 0), list(range(kept)))
        left = {place: special[k] for place, k in enumerate(there) if k in special}
        special.clear()
        special.update(left)
    for name in names:
        value = vars(part)[name]
        if name in lists:
            continue
        if name == SHARED:
            part.__dict__[name] = min(value, kept // 4)
        elif isinstance(value, int):
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
