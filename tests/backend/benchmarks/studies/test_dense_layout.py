"""What keeps AutoScheduler from laying out a dense layer's weights anew: the names of its axes alone."""

import pytest
import tvm
from tvm import auto_scheduler, te

from benchmarks.studies.dense_layout import OPTIONS, layer

ROWS, OUTPUTS, INPUTS = 16, 64, 32


def as_relay() -> list:
    """The same layer with the axes that `topi.nn.matmul` leaves to TVM to name: i0 and i1."""
    data, weight = te.placeholder((ROWS, INPUTS), name="p0"), te.placeholder((OUTPUTS, INPUTS), name="p1")
    k = te.reduce_axis((0, INPUTS), name="k")

    def product(*axes):
        return te.sum(data[axes[0], k] * weight[axes[1], k], axis=k)

    free = {"layout_free_placeholders": [weight]}
    return [data, weight, te.compute((ROWS, OUTPUTS), product, name="T_matmul_NT", attrs=free)]


def lowered(tensors: list, target, option: int):
    """A random schedule of the layer, lowered with that layout rewrite option."""
    dag = auto_scheduler.ComputeDAG(tensors)
    task = auto_scheduler.SearchTask(
        compute_dag=dag, workload_key=dag.workload_key(), target=tvm.target.Target(target)
    )
    params = {"sample_init_min_population": 2}
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), params=params, seed=1, verbose=0)
    return tvm.lower(*dag.apply_steps_from_state(policy.sample_initial_population()[0], option))


def test_weights_are_laid_out_anew_where_the_axes_are_letters(target):
    assert lowered(layer(ROWS, OUTPUTS, INPUTS), target, OPTIONS["rewritten"])["main"] is not None


def test_with_relays_names_they_cannot_be(target):
    assert lowered(as_relay(), target, OPTIONS["kept"])["main"] is not None
    with pytest.raises(tvm.TVMError, match="name_to_arg"):
        lowered(as_relay(), target, OPTIONS["rewritten"])
