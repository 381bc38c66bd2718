"""Conversion of AutoScheduler's compute DAG to workloads, program texts and search tasks (needs its TVM)."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from wmsched.schedules.types import Access, Iter, Stage, Workload
from wmsched.toolchain.resolve import is_cpu

#: AutoScheduler's layout rewrite options: none, and Relay's for a processor, before the model runs.
NO_REWRITE, PRE_TRANSFORMED = 0, 2
_OPS = ("Mul", "Add", "Sub", "Div", "Max", "Min", "Call", "Select", "Cast", "FloorDiv", "FloorMod")


def hardware_tuple(params: Any) -> tuple[int, ...]:
    """Return TVM's HardwareParams in the order of the log; () for None."""
    names = ("num_cores", "vector_unit_bytes", "cache_line_bytes",
             "max_shared_memory_per_block", "max_local_memory_per_block",
             "max_threads_per_block", "max_vthread_extent", "warp_size")  # fmt: skip
    return tuple(int(getattr(params, n)) for n in names) if params is not None else ()


def workload_from_task(task: Any, **labels: Any) -> Workload:
    """Return the Workload of a ``SearchTask``; ``labels`` are network, desc, weight and threads."""
    return workload_from_dag(
        task.compute_dag,
        key=task.workload_key,
        target=str(task.target),
        hardware=hardware_tuple(task.hardware_params),
        layout_rewrite=int(task.layout_rewrite_option),
        **labels,
    )


def workload_from_dag(
    dag: Any,
    *,
    key: str,
    target: str = "",
    hardware: tuple[int, ...] = (),
    layout_rewrite: int = NO_REWRITE,
    **labels: Any,
) -> Workload:
    """Return the Workload of a ``ComputeDAG``: stages with iterators, linear accesses, operation counts.

    A ``layout_rewrite`` makes schedules read weights in a rewritten order; see `laid_out`.
    """
    ops = [s.op for s in dag.init_state.stages]
    position = {op.name: n for n, op in enumerate(ops)}
    stages = tuple(_stage(op, position, layout_rewrite != NO_REWRITE) for op in ops)
    return Workload(key, target, hardware, stages, float(dag.flop_ct), **labels)


def laid_out(access: Access, last: int) -> Access:
    """Return the access of a weight after layout rewrite: its dimension along iterator ``last`` comes last.

    Layout rewrite gives a weight the order of the loops that read it. The innermost loop runs along the
    output's last axis, so a strided read, as of a dense layer's (outputs, inputs), becomes contiguous. The
    order of the other axes depends on the schedule and is left out.
    """
    place = next((n for n, dim in enumerate(access.dims) if dim == ((last, 1),)), None)
    if place is None or math.prod(access.shape[place + 1 :]) == 1:
        return access
    order = [*(n for n in range(len(access.dims)) if n != place), place]
    return Access(access.stage, tuple(access.dims[n] for n in order), tuple(access.shape[n] for n in order))


def _stage(op: Any, position: dict[str, int], rewritten: bool) -> Stage:
    import tvm

    out = op.output(0)
    shape = tuple(_const(d) for d in out.shape)
    nbytes = max(1, tvm.DataType(out.dtype).bits // 8)
    if not hasattr(op, "body"):
        return Stage(op.name, "placeholder", (), (), (), shape, nbytes)
    axes = [*op.axis, *op.reduce_axis]
    iters = tuple(
        Iter(v.var.name, _const(v.dom.extent), "S" if n < len(op.axis) else "R") for n, v in enumerate(axes)
    )
    variables = [v.var for v in axes]
    free = _layout_free(op) if rewritten else set()
    reads: list[Access] = []
    counts: Counter[str] = Counter()

    def visit(node: Any) -> None:
        kind = type(node).__name__
        if kind == "ProducerLoad":
            producer = node.producer.op.name
            dims = tuple(_linear(i, variables) for i in node.indices)
            access = Access(position.get(producer, -1), dims, tuple(_const(d) for d in node.producer.shape))
            reads.append(laid_out(access, len(op.axis) - 1) if producer in free else access)
        elif kind in _OPS:
            name = kind
            if kind == "Call":
                name = getattr(node.op, "name", "call").rsplit(".", 1)[-1]
            counts[name] += 1
        elif kind == "Reduce":
            counts["Reduce"] += 1
            for part in node.combiner.result:
                tvm.tir.stmt_functor.post_order_visit(part, visit)

    for body in op.body:
        tvm.tir.stmt_functor.post_order_visit(body, visit)
    return Stage(op.name, "compute", iters, tuple(reads), tuple(sorted(counts.items())), shape, nbytes)


def _layout_free(op: Any) -> set[str]:
    """Return the names of the tensors that `op` marks with a free layout."""
    attributes = dict(op.attrs.items()) if op.attrs is not None else {}
    return {tensor.op.name for tensor in attributes.get("layout_free_placeholders", ())}


def _const(x: Any) -> int:
    return int(x) if hasattr(x, "value") or isinstance(x, int) else 0


def _linear(index: Any, variables: list[Any]) -> tuple[tuple[int, int], ...]:
    """Return (iterator, coefficient) pairs; coefficient 0 marks an iterator that is not used linearly."""
    import tvm

    coefficients = tvm.arith.detect_linear_equation(index, variables)
    if len(coefficients):
        return tuple(
            (n, int(c)) for n, c in enumerate(coefficients[:-1]) if hasattr(c, "value") and int(c) != 0
        )
    found: list[tuple[int, int]] = []

    def visit(node: Any) -> None:
        for n, v in enumerate(variables):
            if node.same_as(v) and (n, 0) not in found:
                found.append((n, 0))

    tvm.tir.stmt_functor.post_order_visit(index, visit)
    return tuple(found)


def state_text(dag: Any, state: Any) -> str:
    """Return the TensorIR of ``state`` before unrolling and vectorizing, without the header.

    The text is that of TVM's ``schedule_to_module``.

    Parameters
    ----------
    dag : auto_scheduler.ComputeDAG
    state : auto_scheduler State or StateObject, of any prefix of a schedule
    """
    from tvm.driver.build_module import schedule_to_module

    schedule, tensors = dag.apply_steps_from_state(state)
    lines = schedule_to_module(schedule, tensors).script().splitlines()
    body = next(n for n, line in enumerate(lines) if line.lstrip().startswith("def "))
    return "\n".join(line[4:] if line.startswith("    ") else line for line in lines[body:])


def initial_text(dag: Any) -> str:
    """Return the TensorIR of the unscheduled program, s0."""
    return state_text(dag, dag.init_state)


def dag_from_row(row: dict[str, Any]) -> Any:
    """Return the ``ComputeDAG`` of a workload row."""
    import tvm
    from tvm import auto_scheduler

    tensors = row["tensors"]
    text = tensors if isinstance(tensors, str) else json.dumps(tensors)
    return auto_scheduler.ComputeDAG(list(tvm.ir.load_json(text)))


def task_from_row(row: dict[str, Any], *, target: Any, hardware_params: Any = None) -> Any:
    """Return the ``SearchTask`` of a workload row; registers its workload with TVM."""
    import tvm
    from tvm import auto_scheduler
    from tvm.auto_scheduler.workload_registry import register_workload_tensors

    dag = dag_from_row(row)
    register_workload_tensors(row["workload_key"], list(dag.tensors), override=True)
    target = tvm.target.Target(target) if isinstance(target, str) else target
    return auto_scheduler.SearchTask(
        compute_dag=dag,
        workload_key=row["workload_key"],
        target=target,
        hardware_params=hardware_params,
        layout_rewrite_option=layout_rewrite(int(row.get("layout_rewrite") or 0), dag, target),
        desc=row.get("desc", ""),
    )


def layout_rewrite(wanted: int, dag: Any, target: Any) -> int:
    """Return the wanted layout rewrite option where TVM can build it, else `NO_REWRITE`.

    Layouts are rewritten on processors only, as TVM chooses by default. Works around TVM 0.16's
    compute_dag.cc, which cannot find a weight's axis whose name ends in a digit; remove when it can.
    """
    return wanted if wanted and is_cpu(target) and _rewritable(dag) else NO_REWRITE


def _rewritable(dag: Any) -> bool:
    import tvm

    axes: list[Any] = []
    for op in (stage.op for stage in dag.init_state.stages):
        weights = _layout_free(op)

        def visit(node: Any, weights: set[str] = weights) -> None:
            if type(node).__name__ == "ProducerLoad" and node.producer.op.name in weights:
                for index in node.indices:
                    axes.extend(tvm.tir.analysis.undefined_vars(index))

        for body in op.body if weights else ():
            tvm.tir.stmt_functor.post_order_visit(body, visit)
    return not any(str(axis.name)[-1].isdigit() for axis in axes)
