"""What a benchmark's run counts of its cost model: both ways in which candidates reach it."""

import numpy as np

from benchmarks.tune.curve import Stopwatch


class Model:
    """As much of a cost model as is watched."""

    def predict(self, task, states):
        return np.zeros(len(states))

    def predict_steps(self, task, keys, schedules):
        return np.ones(len(keys))

    def predict_stages(self, task, states):
        return self.predict(task, states)

    def update(self, inputs, results):
        return None


def test_scored_states_and_steps_are_counted():
    model = Model()
    watch = Stopwatch(model)
    assert (model.predict("task", [1, 2, 3]) == 0).all()
    assert (model.predict_steps("task", [b"a", b"b"], [[], []]) == 1).all()
    model.update([], [])
    assert watch.candidates == 5 and watch.predict_seconds > 0 and watch.update_seconds > 0


def test_a_model_without_steps_is_watched_too():
    class Stock(Model):
        predict_steps = property()  # has none: asking for it raises AttributeError

    model = Stock()
    watch = Stopwatch(model)
    model.predict("task", [1])
    assert watch.candidates == 1
