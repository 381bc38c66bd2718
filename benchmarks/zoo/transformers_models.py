"""Architectures of transformers: the classes of its list for `AutoModel`, with tiny configurations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.zoo import inputs, tiny
from benchmarks.zoo.model import Example, NoModel

MAX_PARAMETERS = 80_000_000
NOISE = 0.03  # added to weights, many of which are 0 or 1 at first
MAX_FORMS = 100  # of inputs, that are tried on a model


def names() -> dict[str, str]:
    """Return the kind of each architecture's configuration, by the name of its class."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    found: dict[str, str] = {}
    for kind, classes in MODEL_MAPPING_NAMES.items():
        found.setdefault(classes if isinstance(classes, str) else classes[0], kind)
    return found


def example(name: str, draw: int = 0, *, words: bool = False) -> Example:
    """Return an architecture's model, tiny and with random weights, and inputs that it runs on.

    Parameters
    ----------
    name : str
    draw : int
        Number of the draw of weights and inputs.
    words : bool
        Words alone as inputs.

    Raises
    ------
    NoModel
        PyTorch runs none of the configurations and inputs that the rules make.
    """
    said: list[str] = []  # of runs
    unmade: list[str] = []
    for rule in tiny.RULES:
        try:
            model = _made(name, rule, draw)
        except Exception as error:  # whatever a configuration or a model says of settings that do not fit
            unmade.append(f"{type(error).__name__}: {error}")
            continue
        tries = inputs.Choices(model, words=words)
        for given in itertools.islice(tries, MAX_FORMS):
            try:
                with torch.no_grad():
                    model(**given)
            except Exception as error:  # whatever a model says of inputs that it does not take
                said.append(f"{type(error).__name__}: {error}")
                tries.failed(given, str(error))
            else:
                return Example(model, given)
    raise NoModel([*said, *unmade, "no rule for its inputs"][0])


def _made(name: str, rule: tiny.Rule, draw: int = 0) -> Any:
    """Return a model of the list's configuration, or of its class's own where that one does not fit."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = getattr(transformers, name)
    listed = CONFIG_MAPPING[names()[name]]
    own = getattr(kind, "config_class", None) or listed
    try:
        return _of(kind, listed, rule, draw)
    except Exception:  # whatever a configuration or a model says of settings that do not fit
        if own is listed:
            raise
        return _of(kind, own, rule, draw)


def _of(kind: Any, settings: Any, rule: tiny.Rule, draw: int) -> Any:
    config = tiny.shrink(tiny.whole(settings), rule)
    config.use_cache = False
    if hasattr(config, "return_loss"):
        config.return_loss = False  # the exporter takes no model that returns one
    with torch.device("meta"):
        count = sum(one.numel() for one in kind(config).parameters())
    if count > MAX_PARAMETERS:
        raise NoModel(f"{count} parameters")
    torch.manual_seed(draw)
    model = kind(config).eval()
    with torch.no_grad():
        for one in model.parameters():
            if one.is_floating_point():
                one.add_(torch.randn(one.shape) * NOISE)
    return model.float()


def exported(made: Example) -> Any:
    """Return the program that transformers' own exporter makes."""
    from transformers.exporters.exporter_dynamo import DynamoConfig, DynamoExporter

    given = dict(made.inputs)
    if hasattr(made.model.config, "use_cache"):
        given["use_cache"] = False
    program, _ = DynamoExporter().export_program(made.model, given, DynamoConfig(dynamic=False))
    return program


def kinds() -> Iterator[str]:
    """Return the names of all architectures."""
    yield from names()
