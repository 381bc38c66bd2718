"""Options of ``wmsched tune`` for a whole model and for tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wmsched.measure.buffer_offsets import PLACES
from wmsched.measure.tracker import Tracker
from wmsched.relax.importers.shapes import Shapes

FINALISTS = 4
DIVERSITY = 1.0
STOCK = ("ansor", "xgb", "random")  # AutoScheduler's own: one by two names, the benchmark's and TVM's


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of a model's tuning run.

    >>> tune_model(ModelOptions(name="model.onnx", out=Path("out"), minutes=10))

    Parameters
    ----------
    name : str
        A file ``.onnx`` or ``.pt2``, or a model of `wmsched.zoo.torch_models`.
    out : Path
        Folder of the database, the library and the report.
    trials : int, optional
        Measurements in all, those of an earlier run that is resumed included. Without it and without
        `minutes` sixteen for each task.
    minutes : float, optional
        Of search in this run, at most; reading the model and building the library are not in it.
    shapes : mapping of input name to shape
        Where the file has symbolic ones.
    variants : sequence of such mappings
        Of a model with several shapes (`wmsched.tune.shapes`), in place of `shapes`.
    states : sequence of str
        Inputs that are outputs of the call before: INPUT=OUTPUT of each, or "none"; without any, by their
        names (`wmsched.relax.state.pairs`).
    cost_model : str, optional
        A bundle's name or folder, or "xgb" or "random" for MetaSchedule's own; by default the shipped
        bundle that suits the target best.
    resume, online, diversity, seed
        As in `wmsched.tune.options.TuneOptions`.
    target : str, optional
        As TVM takes it, JSON or a tag; by default this machine's processor.
    min_repeat_ms, timeout : int
        Each candidate is timed for at least so long; a build or a run is given up after `timeout` seconds.
    places : int
        Sets of buffers on which a processor's candidate is timed (`metaschedule.measure.buffers`).
    vector_math : bool
        Whether a processor's candidates and library have exp, tanh, erf and log in vectors, at most 2 units
        in the last place off, in place of TVM's calls of the C library (`wmsched.codegen.register`), more
        of their loops in vectors, and prefetches (`wmsched.codegen.pipeline`).
    pack_weights : bool
        Whether a processor's schedules may rewrite weight layouts, once, when the library is built.
    channels_last : bool
        Whether convolutions have their channels last on a processor, and batch normalisation in their weights
        (`wmsched.relax.passes.channels_last`).
    wide_fusion : bool
        Whether, on a processor, elementwise operators move before the reshapes that follow a product, so that
        TVM fuses them into its function (`wmsched.relax.passes.wide_fusion`).
    eight_bits : bool
        Whether the quantized parts of a model are computed in eight bits on a processor
        (`wmsched.relax.int8.rewrite`).
    winograd : bool
        Whether, on a processor, convolutions are computed by Winograd where `wmsched.relax.choices`' rule
        expects that to be faster; not with `bf16`.
    depthwise_kernels : bool
        Whether, on a processor, float32 depthwise convolutions are computed by kernels with one schedule
        (`wmsched.relax.choices.depthwise`) in place of searched ones.
    product_kernels : bool
        Whether, on a processor, float32 products and convolutions have kernels with one schedule
        (`wmsched.relax.choices.products`) where its rule expects them to be faster.
    attention_kernels : bool
        Whether float32 attention is one kernel on a processor (`wmsched.relax.choices.attention`), and any
        on an NVIDIA GPU (`wmsched.relax.attention`).
    bf16 : bool
        Whether matrix products and convolutions with float32 weights are computed in bfloat16, with float32
        sums, on a processor that has such instructions (`wmsched.relax.bf16.rewrite`).
    cold_caches : bool
        Whether a cache flush precedes each call of a processor's candidate, as in AutoScheduler: in a model
        a function's weights come from memory. `min_repeat_ms` has no effect then. A resumed run keeps all
        eleven settings of its first run.
    finalists : int
        Fastest schedules of each processor function that are timed in the model at the end
        (`wmsched.tune.in_model_selection`); 1: no in-model selection.
    traversal, choice : str
        How constructed schedules are found and chosen (`wmsched.construct.TRAVERSALS` and `CHOICES`).
    graph_choices : int
        Configurations of the model's graph that are built and timed in the model, today's rules among them
        (`wmsched.tune.graph`); 1: the rules alone.
    allow_different : bool
        Whether to go on with a model that computes something else here than in PyTorch or onnxruntime.
    half : str
        Type of the products of a float32 model on CUDA, "float16", "bfloat16" or "tf32", with float32 sums
        (`wmsched.relax.half_precision`); "": as the model has them.
    rpc : Tracker, optional
        Times candidates on the devices behind TVM's RPC tracker, and the whole model on one of them.
    """

    name: str
    out: Path
    trials: int | None = None
    minutes: float | None = None
    shapes: Shapes = field(default_factory=dict)
    variants: Sequence[Shapes] = ()
    states: Sequence[str] = ()
    cost_model: str | None = None
    resume: bool = False
    online: bool = False
    diversity: float = DIVERSITY
    target: str | None = None
    seed: int | None = None
    min_repeat_ms: int = 60
    timeout: int = 15
    places: int = PLACES
    vector_math: bool = True
    pack_weights: bool = True
    channels_last: bool = True
    wide_fusion: bool = True
    eight_bits: bool = True
    winograd: bool = True
    depthwise_kernels: bool = True
    product_kernels: bool = True
    attention_kernels: bool = True
    bf16: bool = False
    cold_caches: bool = True
    finalists: int = FINALISTS
    traversal: str = "evolution"
    choice: str = "first"
    graph_choices: int = 1
    allow_different: bool = False
    half: str = ""
    rpc: Tracker | None = None


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Options of a tuning run for tasks.

    >>> tune(TuneOptions(name="resnet50", log=Path("log.json"), trials=2000))

    Parameters
    ----------
    name : str
        A task, type or model of `wmsched.zoo`; with `workloads`, an id, description or network of that file.
    trials : int, optional
        Measurements in all, those of an earlier run that is resumed included. Without it and without
        `minutes` sixteen for each task, 64 at least.
    minutes : float, optional
        Of this run's search; it ends after the round in which they are over.
    log : Path
        Where records are appended, in AutoScheduler's own format.
    cost_model : str, optional
        A bundle's name or folder, or "ansor" (also "xgb") or "random" for AutoScheduler's own; by default
        what `wmsched.model.bundles` says of the target.
    resume : bool
        Go on with the records already in `log`.
    online : bool
        Let the world model learn from this run's measurements.
    rounds : int, optional
        Spread each task's share over this many rounds of search; by default as `wmsched.search.budget` says.
    diversity : float
        See `WorldModelCostModel`.
    target : str, optional
        By default this machine's (`host_target`).
    workloads : Path, optional
        An open JSON workload file instead of the zoo.
    seed : int, optional
        Of the search; by default a new one each time.
    min_repeat_ms, timeout : int
        Each candidate is timed for at least so long on a GPU, and by calls with flushed caches on a CPU; a
        build or a run is given up after `timeout` seconds.
    places : int
        On a CPU a candidate is timed on so many sets of buffers, and where these are several, on each by the
        median of a few calls (`wmsched.measure.buffer_offsets`); by TVM on 1, by one call.
    vector_math : bool
        Whether candidates have exp, tanh and the like in vectors on a CPU (`wmsched.ansor.codegen`),
        more of their loops too, and prefetches (`wmsched.codegen.pipeline`);
        whoever builds the best of them in the end should say the same.
    """

    name: str
    log: Path
    trials: int | None = None
    minutes: float | None = None
    cost_model: str | None = None
    resume: bool = False
    online: bool = False
    rounds: int | None = None
    diversity: float = DIVERSITY
    target: str | None = None
    workloads: Path | None = None
    seed: int | None = None
    min_repeat_ms: int = 60
    timeout: int = 15
    places: int = PLACES
    vector_math: bool = True
