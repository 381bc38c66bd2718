"""Configurations of a Relax graph: what can be chosen, and a module with one choice for each.

A module is as `channels_last` leaves it. A configuration is applied as a whole or refused as a whole.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
from tvm import relax

from wmsched.base.errors import WmschedError
from wmsched.relax.attention.match import Found
from wmsched.relax.choices.attention import Attention, attention_pays, attentions
from wmsched.relax.choices.blocks import kernel_pays
from wmsched.relax.choices.core import Core
from wmsched.relax.choices.products import MATMUL, product_of, weights_of
from wmsched.relax.choices.rewrite import Rewriter
from wmsched.relax.choices.winograd import KERNEL, MATRICES
from wmsched.relax.choices.winograd_rule import tile_by_rule
from wmsched.relax.passes.barrier import barrier_of
from wmsched.relax.passes.fold_constants import folding
from wmsched.relax.passes.legalize import concat_as_copies
from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["ALGORITHMS", "Configuration", "Site", "applied", "by_rules", "rules", "sites"]

logger = logging.getLogger("wmsched")

DIRECT, PRODUCT, KERNEL_OF_OWN = "direct", "product", "kernel"
WINOGRAD = {f"winograd{m}": m for m in MATRICES}
FUSED, APART, COPIED = "fused", "apart", "copied"
#: Algorithms that rules may take.
ATTENTION_KERNELS = "attention_kernels"
ALGORITHMS = ("winograd", "depthwise_kernels", "product_kernels", ATTENTION_KERNELS)
AS_IT_IS = frozenset({DIRECT, FUSED})  # options that change nothing
CONVOLUTION, CHAIN, CONCAT, ATTENTION = "convolution", "chain", "concat", "attention"
CONV2D = "relax.nn.conv2d"
MIN_CHANNELS = 8  # of data and result: with fewer the transforms cost more than they save
#: Operators of many instructions an element, which a product's loops may be better without.
COSTLY = frozenset(
    f"relax.{name}" for name in ("sigmoid", "tanh", "erf", "exp", "nn.silu", "nn.gelu", "nn.gelu_tanh")
)
CHEAP = frozenset(
    f"relax.{name}" for name in ("add", "multiply", "subtract", "maximum", "minimum", "nn.relu")
)


@dataclass(frozen=True)
class Site:
    """One place of a graph where something can be chosen.

    Parameters
    ----------
    place : int
        Of its binding in ``main``.
    kind : str
        "convolution", "chain", "concat" or "attention".
    shape : tuple of int
        Of the result.
    options : tuple of str
        What can be chosen; the first is what the rules take.
    attention : (Found, Attention), optional
        Of the graph in which the site was found.
    """

    place: int
    kind: str
    shape: tuple[int, ...]
    options: tuple[str, ...]
    attention: tuple[Found, Attention] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Configuration:
    """One option for each site of a graph, by number."""

    choices: tuple[int, ...]

    def changed(self, site: int, option: int) -> Configuration:
        """Return a configuration with another option at one site."""
        return replace(self, choices=(*self.choices[:site], option, *self.choices[site + 1 :]))


def rules(found: Sequence[Site]) -> Configuration:
    """Return what the rules take as a configuration."""
    return Configuration((0,) * len(found))


def simplified(module: Any) -> Any:
    """Return a module with constants folded, as `sites` and `applied` read it."""
    passes = [
        relax.transform.Normalize(),
        relax.transform.CanonicalizeBindings(),
        folding(whole=True),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]
    return tvm.transform.Sequential(passes)(module)


def sites(
    module: Any, name: str = "main", algorithms: Collection[str] = (), core: Core | None = None
) -> list[Site]:
    """Return the places of a `simplified` module's function where something can be chosen, in order.

    Parameters
    ----------
    algorithms : collection of str
        Of `ALGORITHMS`, those that the rules take: Winograd's convolution where `winograd_rule` expects it to
        be faster, all depthwise convolutions by a kernel of their own, products and convolutions by theirs
        where `products.kernel_pays`, and attention as one kernel where `attention_pays`. Attention is a place
        only if rules take its kernel, and its products are none then.
    core : Core, optional
        For which the rules choose.
    """
    graph, found = Rewriter(module, name), []
    kernels = _attentions(graph) if ATTENTION_KERNELS in algorithms else {}
    inside = {each for one, _ in kernels.values() for each in (*one.inside, one.last)}
    for place, (variable, value) in enumerate(graph.bindings):
        if variable in kernels:
            options: tuple[str, ...] = (KERNEL_OF_OWN, DIRECT)
            found.append(Site(place, ATTENTION, shape_of(value) or (), options, kernels[variable]))
        if variable in inside:
            continue
        kind, options = _options(graph, variable, value)
        if kind == CONVOLUTION:
            options = _preferred(value, options, algorithms, core or Core())
        shape = shape_of(value)
        if len(options) > 1 and shape is not None:
            found.append(Site(place, kind, shape, options))
    return found


def _attentions(graph: Rewriter) -> dict[Any, tuple[Found, Attention]]:
    """Return the attentions that rules take kernels for, by the variable of their softmax."""
    found = attentions(graph.known)
    return {one.softmax: (one, shape) for one, shape in found if attention_pays(shape)}


def _options(graph: Rewriter, variable: Any, value: Any) -> tuple[str, tuple[str, ...]]:
    name = graph.operator(value)
    if name == CONV2D:
        return CONVOLUTION, _algorithms(value)
    if name == "relax.concat" and str(value.ty.dtype) == "float32":
        return CONCAT, (FUSED, COPIED)
    if name == MATMUL and _is_product(value):
        return CONVOLUTION, (DIRECT, KERNEL_OF_OWN)
    if name in CHEAP | {CONV2D, MATMUL} and _begins_chain(graph, variable, value):
        return CHAIN, (FUSED, APART)
    return "", ()


def _algorithms(call: Any) -> tuple[str, ...]:
    """Return the algorithms that a convolution can have."""
    attrs, weight = call.attrs, call.args[1]
    data, shape = shape_of(call.args[0]), shape_of(weight)
    real = all(str(one.ty.dtype) == "float32" for one in (call, *call.args))
    constant = isinstance(weight, tvm.ir.Constant) and real
    last = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)) == (
        "NHWC",
        "HWIO",
        "NHWC",
    )
    if not (constant and last) or data is None or shape is None or shape_of(call) is None:
        return (DIRECT,)
    if _is_depthwise(call):
        return DIRECT, KERNEL_OF_OWN
    if int(attrs.groups) != 1:
        return (DIRECT,)
    if any(int(step) != 1 for step in (*attrs.strides, *attrs.dilation)):
        return DIRECT, KERNEL_OF_OWN
    if shape[:2] == (1, 1) and not any(map(int, attrs.padding)):
        return DIRECT, PRODUCT, KERNEL_OF_OWN
    if shape[:2] != (KERNEL, KERNEL) or min(shape[2:]) < MIN_CHANNELS:
        return DIRECT, KERNEL_OF_OWN
    return DIRECT, *WINOGRAD, KERNEL_OF_OWN


def _is_depthwise(call: Any) -> bool:
    data, shape = shape_of(call.args[0]), shape_of(call.args[1])
    if Rewriter.operator(call) != CONV2D or data is None or shape is None:
        return False
    return int(call.attrs.groups) == data[3] == shape[3] > 1


def _is_product(call: Any) -> bool:
    """Whether a call is a float32 product with a constant matrix, or of as many matrices on both sides."""
    given, right = shape_of(call.args[0]), shape_of(call.args[1])
    if given is None or right is None or any(str(one.ty.dtype) != "float32" for one in (call, *call.args)):
        return False
    if isinstance(call.args[1], tvm.ir.Constant) and len(given) > 1 and len(right) > 1:
        return weights_of(call).ndim == 2 or given[:-2] == right[:-2]
    return len(given) > 2 and given[:-2] == right[:-2]


def _preferred(
    call: Any, options: tuple[str, ...], algorithms: Collection[str], core: Core
) -> tuple[str, ...]:
    """Return a convolution's options with the one that the rules take in front."""
    taken = ""
    if "winograd" in algorithms and not WINOGRAD.keys().isdisjoint(options):
        taken = f"winograd{tile_by_rule(shape_of(call.args[0]) or (), shape_of(call) or ())}"
    if taken not in options and KERNEL_OF_OWN in options:
        name = "depthwise_kernels" if _is_depthwise(call) else "product_kernels"
        if name in algorithms and (name == "depthwise_kernels" or _pays(call, core)):
            taken = KERNEL_OF_OWN
    return tuple(sorted(options, key=lambda option: option != taken))


def _pays(call: Any, core: Core) -> bool:
    shape, count = product_of(call)
    return kernel_pays(shape, core, packs=bool(count) and not isinstance(call.args[1], tvm.ir.Constant))


def _begins_chain(graph: Rewriter, variable: Any, value: Any) -> bool:
    """Whether a costly elementwise operator reads what TVM fuses with a product or convolution."""
    readers = graph.readers.get(variable, [])
    if not any(graph.operator(graph.value.get(reader)) in COSTLY for reader in readers):
        return False
    shape = shape_of(value)
    while graph.operator(value) in CHEAP:
        before = [graph.value[each] for each in value.args if each in graph.value]
        value = next((each for each in before if shape_of(each) == shape), None)
        if value is None:
            return False
    return graph.operator(value) in (CONV2D, MATMUL)


def applied(
    module: Any, found: Sequence[Site], configuration: Configuration, core: Core | None = None
) -> Any:
    """Return a `simplified` module with a configuration.

    Parameters
    ----------
    core : Core, optional
        For which kernels are written.

    Raises
    ------
    WmschedError
        The configuration is another graph's, or TVM cannot build the module with it: nothing is applied.
    """
    choices = configuration.choices
    fits = len(choices) == len(found) and all(0 <= k < len(site.options) for k, site in zip(choices, found))
    if not fits:
        raise WmschedError(
            f"a configuration of {len(choices)} choices does not fit a graph of {len(found)} places: "
            "enumerate that graph's own"
        )
    if all(site.options[k] in AS_IT_IS for k, site in zip(choices, found)):
        return module
    try:
        return simplified(rewritten(module, found, choices, core=core))
    except Exception as error:  # of TVM, on an expression that it does not expect; no common base
        raise WmschedError(f"the graph cannot be rewritten: {str(error).strip()[-300:]}") from error


def by_rules(module: Any, algorithms: Collection[str], core: Core) -> Any:
    """Return a module with some of `ALGORITHMS` where the rules take them; itself if that is nowhere.

    Its outputs differ in rounding.
    """
    if not algorithms:
        return module
    try:
        simple = simplified(module)
        found = sites(simple, algorithms=algorithms, core=core)
        changed = applied(simple, found, rules(found), core)
    except WmschedError as error:
        logger.info("wmsched: convolutions stay as they are: %s", error)
        return module
    return module if changed is simple else changed


def rewritten(
    module: Any,
    found: Sequence[Site],
    choices: Sequence[int],
    name: str = "main",
    core: Core | None = None,
) -> Any:
    """Return a module one of whose functions has the options of some numbers; it is not simplified."""
    graph = Rewriter(module, name, core)
    planned = [(site, site.options[k]) for site, k in zip(found, choices, strict=True)]
    planned = [(site, option) for site, option in planned if option not in AS_IT_IS]
    # a chain ends what is absorbed, and attention reads what others would absorb
    for site, option in sorted(planned, key=lambda one: (one[1] != APART, one[0].kind != ATTENTION)):
        _plan(graph, site, option)
    return graph.rewritten()


def _plan(graph: Rewriter, site: Site, option: str) -> None:
    variable, value = graph.bindings[site.place]
    if option in WINOGRAD:
        graph.winograd(variable, MATRICES[WINOGRAD[option]])
    elif site.attention is not None:
        assert site.attention[0].softmax.same_as(variable), "the sites are another graph's"
        graph.attention(*site.attention)
    elif option == KERNEL_OF_OWN and _is_depthwise(value):
        graph.depthwise(variable)
    elif option == KERNEL_OF_OWN:
        graph.product(variable)
    elif option == PRODUCT:
        graph.replace(variable, _product)
    elif option == COPIED:
        graph.replace(variable, lambda builder, call: concat_as_copies(builder, call))
    else:
        assert option == APART, option
        graph.after(variable, barrier_of(value))


def _product(builder: Any, call: Any) -> Any:
    """Return a convolution of one pixel as a product over all pixels."""
    data, weight = call.args
    given, shape = shape_of(data), shape_of(weight)
    assert given is not None and shape is not None
    flat = builder.emit(relax.op.reshape(data, (math.prod(given[:3]), given[3])))
    made = builder.emit(relax.op.matmul(flat, relax.const(weight.value.numpy().reshape(shape[2:]))))
    return relax.op.reshape(made, (*given[:3], shape[3]))
