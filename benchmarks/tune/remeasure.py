"""Second measurement of a task's best schedules, in a process of its own (see `benchmarks.tune.child`).

All schedules are built in one process and timed in turn, round after round, so that whatever the machine
does meanwhile happens to all of them, on the same tensors, which lie elsewhere each round (`buffers`). These
are the numbers that are reported: the best of many noisy first measurements is partly luck, and the luckiest
method would win. What is timed is what the search timed, calls with flushed caches: of those a search has a
few a candidate, and a timing here is the median of ten.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.outcomes.outcomes import WRONG
from benchmarks.tune import child
from benchmarks.tune.buffers import Buffers
from benchmarks.tune.emulated import Emulator, emulated
from benchmarks.tune.measuring import search_task
from wmsched.base.cores import name_threads, requested_threads
from wmsched.measure.cache_flush import TVM_FLUSH as FLUSH
from wmsched.toolchain.resolve import autoscheduler_tvm, is_cpu

COLD_CALLS = 10  # a timing on a processor, each after a flush
MIN_REPEAT_MS = 100  # a timing elsewhere


def remeasure(spec: dict[str, Any]) -> dict[str, Any]:
    """Time each of `spec["records"]` `spec["rounds"]` times, interleaved, from round `spec["first"]` (0) on.

    Those with a true `spec["vector_math"]` are built so (`wmsched.ansor.codegen`).
    Whether they compute the right thing is looked at where the first round is among them.

    Returns
    -------
    dict
        `entries`: for each record its `seconds` list, `median` and `spread` (half the range between the
        quartiles over the median), or `error` for one that would not build or run, or on a processor does
        not compute what the plain program computes.
    """
    tvm = autoscheduler_tvm()
    name_threads(tvm)  # which takes longer than the smallest kernels
    from benchmarks.tune.verify_ansor import Verifier
    from wmsched.ansor.codegen import vector_math

    threads = int(spec.get("emulated_threads", 0))
    task = search_task(spec["row"], spec["target"], threads)
    first = int(spec.get("first", 0))
    verifier = Verifier(task) if is_cpu(task.target) and first == 0 else None
    device = tvm.device(str(task.target), 0)
    fill = tvm.get_global_func("tvm.contrib.random.random_fill")
    buffers = Buffers(lambda shape, dtype: tvm.nd.empty(shape, dtype, device), fill, first=first)

    def build(choice: tuple[str, bool]) -> Callable[[], float]:
        record, vectors = choice
        with vector_math(vectors):
            return timer(task, device, record, verifier, buffers, emulator)

    records = spec["records"]
    with emulated(threads) as emulator:
        entries = interleave(
            list(zip(records, spec.get("vector_math", [False] * len(records)), strict=True)),
            build,
            spec["rounds"],
            seed=first,
        )
    how = {"cold_calls": COLD_CALLS} if is_cpu(task.target) else {"min_repeat_ms": MIN_REPEAT_MS}
    return {
        "status": "ok",
        "rounds": spec["rounds"],
        "emulated_threads": threads,
        "threads_told": requested_threads(os.environ),
        **how,
        "entries": entries,
    }


def interleave(
    records: Sequence[Any], build: Callable[[Any], Callable[[], float]], rounds: int, *, seed: int = 0
) -> list[dict[str, Any]]:
    """Time the programs of some records in turn, each round in another order.

    Parameters
    ----------
    records : sequence of hashable
    build : callable
        Makes of a record a function that times its program once, in seconds.
    rounds : int
    seed : int
        Of the orders.

    Returns
    -------
    list of dict
        For each record what `remeasure` says of its entries.
    """
    timers: dict[Any, Callable[[], float]] = {}
    errors: dict[Any, str] = {}
    for record in dict.fromkeys(records):  # two methods may have found the same program
        try:
            timers[record] = build(record)
        except Exception as error:  # whatever TVM raises, the other schedules are measured
            errors[record] = f"{type(error).__name__}: {str(error)[-300:]}"
    seconds: dict[Any, list[float]] = {record: [] for record in timers}
    order = list(timers)
    shuffle = random.Random(seed)
    for _ in range(rounds):
        order = [record for record in order if record not in errors]
        shuffle.shuffle(order)  # no schedule always follows the same one
        for record in order:
            try:
                seconds[record].append(timers[record]())
            except Exception as error:  # of this one's run: the others go on
                errors[record] = f"{type(error).__name__}: {str(error)[-300:]}"
    return [
        {"error": errors[record]}
        if record in errors
        else {"seconds": seconds[record], **summary(seconds[record])}
        for record in records
    ]


def summary(seconds: list[float]) -> dict[str, float]:
    """The median and the spread: half the range between the quartiles, as a share of the median."""
    median = statistics.median(seconds)
    if len(seconds) < 2:
        return {"median": median, "spread": 0.0}
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return {"median": median, "spread": (high - low) / 2 / median}


def timer(
    task: Any, device: Any, record: str, verifier: Any, buffers: Buffers, emulator: Emulator | None
) -> Callable[[], float]:
    """Build the record's program and return a function that times it once, in seconds.

    ValueError if the verifier finds it wrong.
    """
    import tvm
    from tvm.auto_scheduler.measure_record import load_record_from_string

    from benchmarks.tune.verify_ansor import TOLERANCE

    entry, _ = load_record_from_string(record)
    wrong = verifier.error(entry.state) if verifier is not None else 0.0
    if wrong > TOLERANCE:
        raise ValueError(f"{WRONG}: outputs differ by {wrong:.3g} of their largest")
    state = task.compute_dag.infer_bound_from_state(entry.state)
    schedule, arguments = task.compute_dag.apply_steps_from_state(state, task.layout_rewrite_option)
    function = tvm.build(schedule, arguments, target=task.target)
    name = function.entry_name
    if emulator is not None:
        function = emulator.load(function)
    # the flush comes before each repeat: with `min_repeat_ms` all calls of one but the first would be warm
    how = (
        {"repeat": COLD_CALLS, "f_preproc": FLUSH}
        if is_cpu(task.target)
        else {"repeat": 1, "min_repeat_ms": MIN_REPEAT_MS}
    )
    evaluate = function.time_evaluator(name, device, number=1, **how)
    return buffers.timer(evaluate, arguments)


if __name__ == "__main__":
    child.answer(remeasure)
