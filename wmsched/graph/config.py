"""Settings of TGraph: every option, and for each point where paper and published code differ both readings.

The defaults are the paper's (arXiv 2405.16623, journal text); ``settings_for(name, reading="code")`` gives
what the published code trains. Imports nothing heavy, so that a command line can list the names.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field, replace
from typing import Any, Self

from wmsched.base.config import from_dict
from wmsched.base.errors import BundleError

COLLECTIONS = ("xla-random", "xla-default", "nlp-random", "nlp-default", "tile-xla")
READINGS = ("paper", "code")


def _check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name}={value!r} is none of {', '.join(known)}")


def _check_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise ValueError(f"{name}={value!r} must be at least {least}")


@dataclass(frozen=True)
class PreparationConfig:
    """What is done to a layout graph before training (section 2.2)."""

    prune: bool = True  # keep configurable nodes and their direct neighbours (2.2.1)
    kept_edges: str = "induced"  # paper: all edges between kept nodes; code: "touching" a configurable one
    duplicates: str = "min"  # runtime of equal configurations (2.2.2): "min"; code: "first", unused: "mean"
    pad_layouts: bool = True  # -1 instead of 0 beyond the rank in node_feat[134:140] (2.2.4)

    def __post_init__(self) -> None:
        _check_choice("kept_edges", self.kept_edges, ("induced", "touching"))
        _check_choice("duplicates", self.duplicates, ("min", "first", "mean", "keep"))


@dataclass(frozen=True)
class NetworkConfig:
    """The network (section 2.3)."""

    kind: str = "layout"  # "layout": configurations of nodes; "tile": of the whole kernel, joined late
    width: int = 256  # channels
    blocks: int = 2
    layout_channels: int = 4  # of the embedding of a dimension's place in a layout
    opcode_channels: int = 16
    opcode_rows: int = 121  # HLO ids are 0..120; the code has 120 rows, so that id 120 ("tan") has none
    config_columns: int = 18  # of node_config_feat, six a tensor
    squeeze: int = 8  # by how much channel attention narrows
    temperature: float = 0.5  # T of cross attention at the start
    channel_attention: bool = True  # A_self, Eq 5; False is the ablation
    cross_attention: bool = True  # A_cross, Eq 6; False is the ablation, and the code's "random" scripts
    edges: str = "both"  # paper: neighbours; code: "to_producers" only; "none" is the ablation
    aggregate: str = "sum"  # Eq 2; code: "mean"
    project: bool = True  # f_1 of Eq 2, a linear layer and ReLU; code: none
    l2_norm: bool = True  # N_L2 of Eq 2; code: none
    activation: str = "before_sum"  # Eq 3: e + GELU(...); code: "after_sum", GELU(e + ...)
    input_mlp: str = "plain"  # Eq 7; code: "attended", each layer with norm and attentions
    dropout: float = 0.0  # after a block; code: 0.2

    def __post_init__(self) -> None:
        _check_choice("kind", self.kind, ("layout", "tile"))
        _check_choice("edges", self.edges, ("both", "to_producers", "to_consumers", "none"))
        _check_choice("aggregate", self.aggregate, ("sum", "mean"))
        _check_choice("activation", self.activation, ("before_sum", "after_sum"))
        _check_choice("input_mlp", self.input_mlp, ("plain", "attended"))
        for name in ("width", "blocks", "layout_channels", "opcode_channels", "opcode_rows", "squeeze"):
            _check_least(name, getattr(self, name), 1)
        if self.width % 2:
            raise ValueError(f"width={self.width} must be even: cross attention fills one half")
        if self.config_columns % 6 or self.config_columns < 6:
            raise ValueError(f"config_columns={self.config_columns} must be a multiple of 6, six a tensor")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be in [0, 1)")


@dataclass(frozen=True)
class TrainingConfig:
    """The training (section 2.4)."""

    epochs: float = 750  # passes over the graphs; a step is one graph
    max_configs: int = 64  # configurations of a step, drawn without replacement: 64 default, 128 random
    learning_rate: float = 1e-3  # peak, AdamW
    warmup_share: float = 0.05  # share of the steps with a linear warm-up
    final_share: float = 0.0  # of the peak rate, where the cosine ends
    weight_decay: float = 1e-5
    decay: str = "non_bias"  # paper: weights but no biases; code in effect: "all"
    clip: float = 1.0  # norm of the gradient
    loss_reduction: str = "sum"  # over pairs, Eq 8; code: "mean" over all n * n
    members: str = "folds"  # networks of an ensemble: of "folds" of train + valid; code: "seeds" on train
    folds: int = 20  # K
    trained: int = 5  # the first so many folds, or seeds
    kept: int = 4  # the best so many by their held-out score
    checkpoint: str = "last"  # weights of a member: "last"; code: "best" by the held-out score
    validate_epochs: float = 50  # between two held-out scores; there is always one at the end
    held_out_configs: int = (
        1000  # most that a held-out graph is scored on, as officially; 0: all, much slower
    )
    checkpoint_steps: int = 500  # between two checkpoints to resume from
    precision: str = "float32"  # or "bfloat16" by autocast
    seed: int = 0

    def __post_init__(self) -> None:
        _check_choice("decay", self.decay, ("non_bias", "all"))
        _check_choice("loss_reduction", self.loss_reduction, ("sum", "mean"))
        _check_choice("members", self.members, ("folds", "seeds"))
        _check_choice("checkpoint", self.checkpoint, ("last", "best"))
        _check_choice("precision", self.precision, ("float32", "bfloat16"))
        for name in ("trained", "kept", "checkpoint_steps"):
            _check_least(name, getattr(self, name), 1)
        _check_least("held_out_configs", self.held_out_configs, 0)
        for name in ("max_configs", "folds"):  # one configuration has no pair, one fold leaves no data
            _check_least(name, getattr(self, name), 2)
        for name in ("epochs", "learning_rate", "validate_epochs", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)!r} must be above 0")
        if self.members == "folds" and self.trained > self.folds:
            raise ValueError(f"trained={self.trained} is more than folds={self.folds}")
        if self.kept > self.trained:
            raise ValueError(f"kept={self.kept} is more than trained={self.trained}")


@dataclass(frozen=True)
class InferenceConfig:
    """How configurations are scored (section 2.5.3)."""

    context: int = 128  # configurations that see each other; code: 128, 256 or 512
    permutations: int = 10  # orders over which scores are averaged; code: 1, the order of the file

    def __post_init__(self) -> None:
        _check_least("context", self.context, 1)
        _check_least("permutations", self.permutations, 1)


@dataclass(frozen=True)
class Settings:
    """All settings of a run, as a bundle's ``config.json`` keeps them.

    Examples
    --------
    >>> settings_for("xla-default").with_options(["network.edges=none"]).network.edges
    'none'
    """

    preparation: PreparationConfig = field(default_factory=PreparationConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    inference: InferenceConfig = field(default_factory=InferenceConfig)

    def to_json(self) -> dict[str, Any]:
        """Return nested dictionaries of plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Rebuild from `to_json`.

        Raises
        ------
        BundleError
            A key is unknown or missing, or a value is out of its range.
        """
        parts = {"preparation": PreparationConfig, "network": NetworkConfig}
        parts |= {"training": TrainingConfig, "inference": InferenceConfig}  # type: ignore[dict-item]
        if sorted(values) != sorted(parts):
            raise BundleError(f"graph settings have parts {sorted(values)}, not {sorted(parts)}")
        try:
            return cls(**{name: from_dict(kind, values[name], name) for name, kind in parts.items()})  # type: ignore[arg-type]
        except (ValueError, TypeError) as error:
            raise BundleError(f"graph settings: {error}") from error

    def with_options(self, options: list[str]) -> Self:
        """Return settings with options like ``network.edges=none`` replaced.

        Raises
        ------
        ValueError
            The name is unknown, or the value has another type or is out of its range.
        """
        changes: dict[str, dict[str, Any]] = {}
        for option in options:
            name, separator, text = option.partition("=")
            part, _, key = name.strip().partition(".")
            old = getattr(getattr(self, part, None), key, None) if key else None
            if not separator or old is None:
                raise ValueError(f"{option!r} is no option: write PART.NAME=VALUE, one of {option_names()}")
            changes.setdefault(part, {})[key] = _parse(name, text.strip(), old)
        # all of a part at once: their ranges depend on each other
        parts = {part: replace(getattr(self, part), **values) for part, values in changes.items()}
        return replace(self, **parts)


def _parse(name: str, text: str, old: object) -> object:
    """Return a text as a value of the type that the option has."""
    if isinstance(old, str):
        return text
    try:
        value = json.loads(text.lower())
    except ValueError:
        value = None
    if type(value) is int and type(old) is float:
        value = float(value)
    if name.endswith("epochs") and type(value) is float:  # 750 or 17.5
        return value
    if type(value) is not type(old):
        raise ValueError(f"{name}={text} must be {type(old).__name__}, as {old!r} is")
    return value


def option_names() -> str:
    """Return all names that `Settings.with_options` takes, in a line."""
    defaults = dataclasses.asdict(Settings())
    return ", ".join(f"{part}.{name}" for part, values in defaults.items() for name in values)


def settings_for(collection: str, *, reading: str = "paper") -> Settings:
    """Return the settings of one of TpuGraphs' five collections.

    Parameters
    ----------
    collection : str
        One of `COLLECTIONS`.
    reading : str
        "paper", or "code": what the published code trains where the two differ.

    Raises
    ------
    ValueError
        A name is unknown.
    """
    _check_choice("collection", collection, COLLECTIONS)
    _check_choice("reading", reading, READINGS)
    is_tile, is_random = collection == "tile-xla", collection.endswith("random")
    epochs = 17.5 if is_tile else 1000 if collection.startswith("nlp") else 750
    training = TrainingConfig(
        epochs=epochs,
        max_configs=128 if is_random else 64,
        validate_epochs=1 if is_tile else 50,
    )
    settings = Settings(network=NetworkConfig(kind="tile" if is_tile else "layout"), training=training)
    if reading == "paper":
        return settings
    network = replace(
        settings.network,
        opcode_rows=120,
        cross_attention=not is_random,
        edges="to_producers",
        aggregate="mean",
        project=False,
        l2_norm=False,
        activation="after_sum",
        input_mlp="attended",
        dropout=0.2,
    )
    count = 5 if is_tile else 20
    training = replace(
        training,
        decay="all",
        loss_reduction="mean",
        members="seeds",
        trained=count,
        kept=count,
        checkpoint="best",
    )
    context = 512 if is_random else 256 if collection == "nlp-default" else 128
    return Settings(
        preparation=PreparationConfig(kept_edges="touching", duplicates="first"),
        network=network,
        training=training,
        inference=InferenceConfig(context=context, permutations=1),
    )
