"""Inputs for a model of transformers, by the names of its arguments: the first of several forms that runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.zoo.tiny import FRAMES, SMALL_IMAGE, own, parts

LENGTH = 8  # words
MAX_WORD = 60  # ids from 100 on are of special words
LEAST_WORD = 3
SAMPLES = 4000  # of a sound
STEPS = 64  # of a spectrum
MELS = (
    "num_mel_bins", "feature_size", "mel_bins", "num_mels", "input_feat_per_channel", "input_dim",
    "feature_projection_input_dim", "input_feat_size", "mel_dim", "n_mel_bins",
)  # fmt: skip
Given = dict[str, Any]
OFTEN = (
    "attention_mask",
    "features_mask",
    "pixel_mask",
    "grid_thw",
    "image_sizes",
    "spatial_shapes",
    "target_sizes",
    "bbox",
)
PLACES = re.compile(r"(Image|Video|Audio|Multimodal) features and \w+ tokens.*features:? (\d+)")
MAX_PLACES = 512
#: What PyTorch says of a width, and the axis that has it.
FITS = (
    (re.compile(r"shapes cannot be multiplied \(\d+x(?P<found>\d+) and (?P<wanted>\d+)x\d+\)"), -1),
    (re.compile(r"tensor a \((?P<found>\d+)\) must match the size of tensor b \((?P<wanted>\d+)\)"), -1),
    (re.compile(r"to have (?P<wanted>\d+) channels, but got (?P<found>\d+) channels"), 1),
    (re.compile(r"normalized_shape=\[(?P<wanted>\d+)\].*got input of size\[.*?(?P<found>\d+)\]"), -1),
)
KINDS = "mm_token_type_ids"
STEPWISE = ("states", "actions", "rewards", "returns_to_go", "timesteps")


def setting(config: Any, *names: str, default: Any = None) -> Any:
    """Return the first setting of these names that a configuration, or one inside it, has."""
    for part in parts(config):
        for name in names:
            value = own(part, name)
            if value is not None:
                return value
    return default


def side_of(config: Any) -> tuple[int, int]:
    """Return the height and width of a configuration's images."""
    size = setting(config, "image_size", "img_size", "max_img_size", default=SMALL_IMAGE)
    if isinstance(size, dict):
        return int(size["height"]), int(size["width"])
    return (int(size[0]), int(size[-1])) if isinstance(size, (list, tuple)) else (int(size), int(size))


def words(config: Any, *shape: int) -> torch.Tensor:
    """Return ids of words."""
    known = setting(config, "vocab_size", default=MAX_WORD)
    most = min(known if isinstance(known, int) else MAX_WORD, MAX_WORD)
    return torch.randint(min(LEAST_WORD, most - 1), most, shape or (1, LENGTH))


class Choices:
    """Inputs that a model may take, the most usual form first; each failed try may add others.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    words : bool
        Words alone, without images and sounds.
    """

    def __init__(self, model: Any, *, words: bool = False) -> None:
        self.config, self.known, self.words = model.config, inspect.signature(model.forward).parameters, words
        main = model.main_input_name
        main = main[0] if isinstance(main, (list, tuple)) else main
        open_kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        needed = {
            name
            for name, one in self.known.items()
            if one.default is inspect.Parameter.empty and one.kind not in open_kinds
        }
        self.several: list[set[str]] = []
        self.seen: list[set[str]] = []
        self.repaired: list[Given] = []
        self.added = False  # a set of arguments that the last message asks for
        if main in STEPWISE:
            needed |= {name for name in STEPWISE if name in self.known}
        others = ("pixel_values", "input_features", "input_values") if main == "input_ids" else ("input_ids",)
        for name in others:
            if name in self.known:
                self._add({main, name, *needed})
        decoded = [name for name in ("decoder_input_ids", "decoder_input_values") if name in self.known][:1]
        for names in ({main, *needed}, needed, {"input_ids", *needed}):
            self._add({*names, *decoded})
            self._add(names)

    def _add(self, names: set[str], *, next_one: bool = False) -> None:
        names = {name for name in names if name in self.known and name != KINDS}
        if self.words and not all(map(is_of_words, names)):
            return
        if names and names not in self.seen:
            self.seen.append(names)
            self.several.insert(0 if next_one else len(self.several), names)
            self.added = next_one

    def __iter__(self) -> Iterator[Given]:
        while self.several:  # failed tries add to it
            names = self.several.pop(0)
            forms = {name: forms_of(name, self.config) for name in sorted(names)}
            if all(forms.values()):
                for given in _mixed(forms):
                    yield self._with_kinds(given)
                    while self.repaired:
                        yield self._with_kinds(self.repaired.pop(0))
                    if self.added:
                        self.added = False
                        self.several.insert(1, names)
                        break

    def _with_kinds(self, given: Given) -> Given:
        """Return inputs with the kind of each place: of words 0, of images 1, of videos 2, of sounds 3."""
        ids = given.get("input_ids")
        if KINDS not in self.known or ids is None or ids.dim() != 2:
            return given
        kinds = torch.zeros_like(ids)
        for kind, name in enumerate(("image", "video", "audio"), start=1):
            token = setting(self.config, f"{name}_token_id", f"{name}_token_index")
            if isinstance(token, int):
                kinds[ids == token] = kind
        return {**given, KINDS: kinds}

    def failed(self, given: Given, said: str) -> None:
        """Try what a message asks for: places of features among words, arguments that it names, or masks."""
        found = PLACES.search(said)
        if found and "input_ids" in given and given["input_ids"].dim() == 2:
            kind = found.group(1).lower().replace("multimodal", "image")
            self._place(given, kind, int(found.group(2)))
        self.repaired += _fitted(given, said)
        words = set(re.findall(r"\w+", said)) & set(self.known)
        if words - set(given):
            self._add(set(given) | words, next_one=True)
        if "NoneType" in said or "bool" in said:
            often = {name for name in self.known if name.endswith(OFTEN)}
            if "pixel_values_videos" not in given:
                often = {name for name in often if not name.startswith("video")}
            self._add(set(given) | often, next_one=True)

    def _place(self, given: Given, kind: str, count: int) -> None:
        """Try words with the places that the features of an image or a sound take."""
        token = setting(self.config, f"{kind}_token_id", f"{kind}_token_index")
        ids = given["input_ids"]
        if isinstance(token, int) and 0 < count <= MAX_PLACES and not (ids == token).any():
            ids = torch.cat([torch.full((1, count), token), ids], dim=1)
            masks = {"attention_mask": torch.ones_like(ids)} if "attention_mask" in given else {}
            self.repaired.append({**given, "input_ids": ids, **masks})


def is_of_words(name: str) -> bool:
    """Return whether an argument is of words or masks them."""
    return name.endswith(("_ids", "attention_mask"))


def _fitted(given: Given, said: str) -> Iterator[Given]:
    """Return inputs with the width that a message asks for, in place of the one that it names."""
    for pattern, axis in FITS:
        if not (found := pattern.search(said)):
            continue
        sizes = {name: int(value) for name, value in found.groupdict().items()}
        for name, value in given.items():
            if value.is_floating_point() and value.dim() > 1 and value.shape[axis] == sizes["found"]:
                shape = list(value.shape)
                shape[axis] = sizes["wanted"]
                yield {**given, name: torch.randn(shape)}


def _mixed(forms: dict[str, list[Any]]) -> Iterator[Given]:
    """Return inputs of the first forms, then with one argument in each of its others, then all in others."""
    first = {name: found[0] for name, found in forms.items()}
    yield first
    if len(forms) > 1:
        for name, found in forms.items():
            yield from ({**first, name: one} for one in found[1:])
    for k in range(1, max(map(len, forms.values()))):
        yield {name: found[min(k, len(found) - 1)] for name, found in forms.items()}


def forms_of(name: str, config: Any) -> list[Any]:
    """Return values for an argument, in several forms; none for a name that no rule knows."""
    height, width = side_of(config)
    channels = setting(config, "num_channels", "in_channels", "in_chans", default=3)
    channels = channels if isinstance(channels, int) else 3
    hidden = setting(config, "hidden_size", "d_model", "embed_dim", default=64)
    hidden = hidden if isinstance(hidden, int) else hidden[0]
    image = torch.randn(1, channels, height, width)
    if name == "bbox":
        return [torch.tensor([[[1, 2, 10, 20]]]).repeat(1, LENGTH, 1)]
    if name.endswith(("input_ids", "inputs_ids")) or name in ("codebook_idx", "token_index"):
        books = setting(config, "num_codebooks", "n_codes_total", default=4)
        return [
            words(config),
            words(config, 1, LENGTH, books),
            words(config, 1, books, LENGTH),
            words(config, 1, 2, LENGTH),
        ]
    if name.endswith("attention_mask") or name == "pixel_mask":
        if name == "pixel_mask":
            return [torch.ones(1, height, width, dtype=torch.long)]
        return [torch.ones(1, LENGTH, dtype=torch.long)]
    if name.endswith("features_mask"):
        return [torch.ones(1, _steps(config), dtype=torch.long)]
    if name in ("pixel_values", "pixel_values_videos", "flattened_patches", "pixels"):
        return _images(name, config, image, channels)
    if name in ("input_values", "input_features", "audio_values", "spectrogram", "audio_mel", "waveform"):
        return _sounds(name, config)
    if name in ("inputs_embeds", "hidden_states", "encoder_hidden_states", "query_embeds", "patch_embeds"):
        if name == "encoder_hidden_states":
            hidden = setting(config, "encoder_hidden_size", default=hidden)
        return [torch.randn(1, LENGTH, hidden), *_patches(config, hidden)]
    if name.endswith("grid_thw") or name == "grid_thw":
        return [torch.tensor([[1, 4, 4]])]
    if name in (
        "past_values",
        "past_observed_mask",
        "past_time_features",
        "future_values",
        "future_time_features",
    ):
        return _series(name, config)
    if name in ("position_ids", "token_type_ids"):
        return [torch.arange(LENGTH)[None]]
    if name == "image_sizes":
        return [torch.tensor([[height, width]])]
    if name in ("spatial_shapes", "target_sizes", "tgt_sizes"):
        return [torch.tensor([[4, 4]])]
    if name in ("visual_feats", "visual_embeds"):
        return [
            torch.randn(1, LENGTH, setting(config, "visual_feat_dim", "visual_embedding_dim", default=hidden))
        ]
    if name == "visual_pos":
        return [torch.rand(1, LENGTH, 4)]
    if name == "inputs":
        return [words(config), torch.randn(1, LENGTH, setting(config, "d_model", default=hidden))]
    if name == "decoder_input_values":
        return [
            torch.randn(1, LENGTH, hidden),
            torch.randn(1, LENGTH, setting(config, "num_mel_bins", default=80)),
        ]
    if name in STEPWISE:
        widths = {"states": setting(config, "state_dim"), "actions": setting(config, "act_dim")}
        if name == "timesteps":
            return [torch.arange(LENGTH)[None]]
        return [torch.randn(1, LENGTH, widths.get(name) or 1)]
    return []


def _images(name: str, config: Any, image: torch.Tensor, channels: int) -> list[torch.Tensor]:
    height, width = image.shape[2:]
    frames = setting(config, "num_frames", "frames_per_clip", default=FRAMES)
    frames = frames if isinstance(frames, int) else FRAMES
    patch = setting(config, "patch_size", default=16)
    patch = patch if isinstance(patch, int) else patch[0]
    flat = torch.randn(1, 16, channels * patch * patch)
    video = torch.randn(1, frames, channels, height, width)
    if name == "flattened_patches":
        rows = torch.arange(16).reshape(1, 16, 1).float()
        return [torch.cat([rows // 4 + 1, rows % 4 + 1, flat], dim=2)]
    if name == "pixel_values_videos":
        return [video, flat[0]]
    larger = torch.randn(1, channels, 2 * height, 2 * width)
    pair = torch.randn(1, 2, channels, height, width)
    found = [image, video, flat, flat[0], larger, image[:, None], pair]
    if setting(config, "temporal_patch_size") is not None:
        found = [*_patches(config, channels)[:2], *found]
    found.append(_patches(config, channels)[-1])
    seven = setting(config, "backbone_config", "vision_config")
    return found if seven is None else [*found, torch.randn(1, channels, 224, 224)]


def _sounds(name: str, config: Any) -> list[torch.Tensor]:
    mels = [
        value
        for part in parts(config)
        for one in MELS
        if isinstance(value := own(part, one), int) and not isinstance(value, bool)
    ]
    steps = setting(config, "max_length", default=STEPS) if name == "input_values" else _steps(config)
    steps = steps if isinstance(steps, int) and steps >= 16 else STEPS
    spectra = []
    for mel in dict.fromkeys(mels or [80]):
        spectra += [torch.randn(1, mel, steps), torch.randn(1, steps, mel), torch.randn(1, 1, steps, mel)]
    waves = [torch.randn(1, SAMPLES), torch.randn(1, 1, SAMPLES), torch.randn(1, 1, 4 * SAMPLES)]
    if name not in ("input_values", "waveform"):
        return [*spectra, *waves]
    rows = (
        torch.randn(1, LENGTH, width)
        if isinstance(width := setting(config, "hidden_size"), int)
        else waves[0]
    )
    return [*waves, *spectra, rows]


def _steps(config: Any) -> int:
    """Return the length of a spectrum: two steps for each position that an encoder has."""
    positions = setting(config, "max_source_positions")
    return 2 * positions if isinstance(positions, int) and positions < 1000 else STEPS


def _patches(config: Any, hidden: int) -> list[torch.Tensor]:
    """Return images as rows of patches, as some encoders take them."""
    channels = setting(config, "in_channels", "num_channels", default=3)
    patch = setting(config, "patch_size", default=14)
    times = setting(config, "temporal_patch_size", default=2)
    sizes = [one if isinstance(one, int) else one[0] for one in (channels, patch, times)]
    row = sizes[0] * sizes[1] ** 2
    patches = torch.randn(16, sizes[0], sizes[1], sizes[1])
    return [torch.randn(16, row * sizes[2]), torch.randn(16, row), torch.randn(16, hidden), patches]


def _series(name: str, config: Any) -> list[torch.Tensor]:
    context = setting(config, "context_length", default=32)
    lags = max(setting(config, "lags_sequence", default=[0]), default=0)
    features = setting(config, "num_time_features", default=0) or 1
    sources = setting(config, "num_input_channels", "input_size", default=1)
    length = (
        setting(config, "prediction_length", default=8) or 8 if name.startswith("future") else context + lags
    )
    if name.endswith("features"):
        return [torch.randn(1, length, features)]
    if name.endswith("mask"):
        return [torch.ones(1, length), torch.ones(1, length, sources)]
    return [torch.randn(1, length), torch.randn(1, length, sources)]
