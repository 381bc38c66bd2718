"""A model that is to learn does, whatever it was before."""

from __future__ import annotations

from wmsched.search.guarded_scoring import load_world_model


class Model:
    def __init__(self, online: bool) -> None:
        self.online = online


def test_a_model_that_does_not_learn_is_copied_for_a_run_that_does() -> None:
    still = Model(online=False)
    learning = load_world_model(still, online=True)
    assert learning.online and not still.online
    assert load_world_model(still, online=False) is still
    assert load_world_model(learning, online=True) is learning
    assert load_world_model(learning, online=False) is learning  # the caller made it so
    assert not hasattr(load_world_model(object(), online=True), "online")  # a stand-in of one's own
