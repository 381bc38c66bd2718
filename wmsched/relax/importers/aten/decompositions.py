"""Operators that PyTorch writes out in others, beyond its core set: those that no converter is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from wmsched.relax.importers.aten.importer import complex_in, label
from wmsched.relax.importers.aten.table import COMPLEX
from wmsched.relax.importers.operators.node import Refused
from wmsched.relax.importers.shapes import short

MAX_ROUNDS = 5  # a body may hold further operators


def decomposed(program: Any, is_known: Callable[[Any], bool]) -> Any:
    """Return a program whose unknown operators are written out, where PyTorch has their bodies.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        In PyTorch's core operators; not changed.
    is_known : callable (torch.fx.Node) -> bool
        Whether a converter takes the operator of a node.
    """
    from torch._decomp import decomposition_table as bodies

    table = torch.export.default_decompositions()
    used: set[Any] = set()
    for _ in range(MAX_ROUNDS):
        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        more = {node.target for node in calls if node.target in bodies and not is_known(node)} - used
        if not more:
            break
        used |= more
        for target in more:
            table[target] = bodies[target]
        try:
            program = program.run_decompositions(table)
        except Exception as error:  # of bodies that are not functional; no common base
            names = ", ".join(sorted(map(str, more)))
            raise Refused(f"{names}: PyTorch cannot write it out ({short(error)})") from error
    return program


def core(program: Any) -> Any:
    """Return a program in PyTorch's core operators; refuse complex numbers that it cannot write out."""
    try:
        return program.run_decompositions()
    except Exception as error:
        for node in program.graph.nodes:
            if node.op == "call_function" and complex_in(node):
                raise Refused(f"{label(node)}: {COMPLEX}") from error
        raise
