"""A trained ensemble: networks whose scores are averaged over members and orders, and its folder.

With cross attention a score depends on the configurations beside it. So the network always sees about
``context`` of them, as in training, in several fixed pseudo-random orders (section 2.5.3), and the same
configurations always get the same scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from wmsched.base.errors import BundleError
from wmsched.base.files import atomic_open
from wmsched.graph.checkpoint import shortened
from wmsched.graph.config import InferenceConfig, NetworkConfig, PreparationConfig, Settings
from wmsched.graph.network import GraphTensors, TGraph
from wmsched.graph.prepare import PreparedGraph, prepare_graph
from wmsched.graph.tpugraphs import LayoutGraph, TileGraph

FORMAT_VERSION = 1
CONFIG = "config.json"


class GraphRanker:
    """An ensemble that ranks the configurations of a graph.

    Parameters
    ----------
    settings : Settings
    networks : the members, one at least
    record : JSON values about the training, kept in the bundle

    Examples
    --------
    >>> ranker = GraphRanker.load("bundles/xla-default")
    >>> scores = ranker.score(read_graph("resnet50.npz"))
    >>> fastest = scores.argmin()
    """

    def __init__(
        self, settings: Settings, networks: Sequence[TGraph], record: dict[str, Any] | None = None
    ) -> None:
        if not networks:
            raise ValueError("an ensemble of no networks ranks nothing")
        self.settings = settings
        self.networks = [network.eval() for network in networks]
        self.record = record or {}

    @property
    def network_config(self) -> NetworkConfig:
        """The members' network settings."""
        return self.settings.network

    @property
    def preparation(self) -> PreparationConfig:
        """What graphs get before they are scored."""
        return self.settings.preparation

    def with_inference(self, *, context: int | None = None, permutations: int | None = None) -> Self:
        """Return a ranker with the same members and other `InferenceConfig` values where given."""
        old = self.settings.inference
        inference = InferenceConfig(context or old.context, permutations or old.permutations)
        return type(self)(replace(self.settings, inference=inference), self.networks, self.record)

    def to(self, device: str | torch.device) -> Self:
        """Move all members to a device."""
        for network in self.networks:
            network.to(device)
        return self

    def score(self, graph: LayoutGraph | TileGraph | PreparedGraph) -> NDArray[np.float64]:
        """Score all configurations of a graph, low for fast.

        Parameters
        ----------
        graph : read from a file, or prepared with this ranker's `preparation`

        Returns
        -------
        float64 [c], in the order of the file, comparable within the graph only

        Raises
        ------
        DatasetError
            The graph is of another kind or width than the network.
        BundleError
            A score is not finite.
        """
        if not isinstance(graph, PreparedGraph):
            graph = prepare_graph(graph, self.preparation, for_training=False)
        total = np.zeros(len(graph))
        for network in self.networks:
            total += score_graph(network, graph, self.settings.inference)
        if not np.isfinite(total).all():
            raise BundleError(
                f"{graph.name} gets scores that are not finite: a member has diverged; train again"
            )
        return total / len(self.networks)

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and the weights it names; a kill leaves the older bundle or the new one.

        The weights' name has their hash, so that they never belong to another config.json.
        """
        from safetensors.torch import save

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"{number}.{name}": tensor.detach().cpu().contiguous()
            for number, network in enumerate(self.networks)
            for name, tensor in network.state_dict().items()
        }
        content = save(tensors)
        weights = f"weights-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
        with atomic_open(folder / weights) as file:
            file.write(content)
        config = {
            "format_version": FORMAT_VERSION,
            "kind": "graph",
            "settings": self.settings.to_json(),
            "members": len(self.networks),
            "weights": weights,
            "record": self.record,
        }
        with atomic_open(folder / CONFIG) as file:
            file.write(json.dumps(config, indent=1).encode() + b"\n")
        for old in folder.glob("weights-*.safetensors"):
            if old.name != weights:
                old.unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        BundleError
            The folder is no graph bundle, is damaged, or is another release's.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load

        folder = Path(folder)
        try:
            config = json.loads((folder / CONFIG).read_bytes())
            if not isinstance(config, dict) or config.get("kind") != "graph":
                raise BundleError(f"{folder / CONFIG} is of no graph bundle; `wmsched graph train` makes one")
            if config["format_version"] != FORMAT_VERSION:
                raise BundleError(
                    f"{folder}: graph bundle format {config['format_version']}, this library reads "
                    f"{FORMAT_VERSION}; use the wmsched release that wrote it, or train it again"
                )
            settings = Settings.from_json(config["settings"])
            tensors = load((folder / config["weights"]).read_bytes())
            networks = [TGraph(settings.network) for _ in range(config["members"])]
            for number, network in enumerate(networks):
                own = f"{number}."
                network.load_state_dict(
                    {name[len(own) :]: t for name, t in tensors.items() if name.startswith(own)}
                )
            return cls(settings, networks, config["record"])
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise BundleError(
                f"{folder}: no usable graph bundle ({type(error).__name__}: {shortened(error)}); "
                "train or copy it again"
            ) from error


def is_bundle(folder: str | Path) -> bool:
    """Whether a folder has a graph bundle's config.json."""
    try:
        config = json.loads((Path(folder) / CONFIG).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("kind") == "graph"


@torch.no_grad()
def score_graph(
    network: TGraph, graph: PreparedGraph, inference: InferenceConfig | None = None
) -> NDArray[np.float64]:
    """Score a prepared graph's configurations with one network (section 2.5.3): float64 [c], low for fast.

    Each order is cut into parts of nearly equal size, none above ``context``: the published batches of
    exactly ``context`` may leave a last one of a single configuration, which has nothing to be compared with.
    """
    inference = inference or InferenceConfig()
    network.eval()
    device = network.mean.device
    tensors = GraphTensors.of(graph, network.config, device)
    count = len(graph)
    # without cross attention scores depend on no order, and a tile's do not
    depends = network.config.cross_attention and not network.is_tile
    passes = inference.permutations if depends else 1
    total = np.zeros(count)
    for number in range(passes):
        order = np.arange(count) if passes == 1 else np.random.default_rng(number).permutation(count)
        for rows in np.array_split(order, -(-count // inference.context)):
            configs = torch.from_numpy(graph.configs_at(rows)).to(device)
            total[rows] += network(tensors, configs).double().cpu().numpy()
    return total / passes
