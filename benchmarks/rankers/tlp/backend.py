"""TLP in AutoScheduler's search. Needs its TVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from benchmarks.rankers.tlp.fit import Tlp
from wmsched.search.selection import SelectionMap


def cost_model(tlp: Tlp) -> Any:
    """A PythonBasedModel that scores candidates by their transform steps and learns nothing from the run."""
    from tvm import auto_scheduler
    from tvm.auto_scheduler.cost_model.cost_model import PythonBasedModel

    blank = auto_scheduler.MeasureResult([0.0], 0, "", 0.0, 0.0)

    class TlpCostModel(PythonBasedModel):
        """Scores are mapped to (0, 1] by the first batch, as the world model's are, and so are comparable."""

        def __init__(self) -> None:
            super().__init__()
            self._map: SelectionMap | None = None

        def predict(self, task: Any, states: Sequence[Any]) -> NDArray[np.float32]:
            lines = [
                str(
                    auto_scheduler.measure_record.dump_record_to_string(
                        auto_scheduler.MeasureInput(task, state), blank
                    )
                )
                for state in states
            ]
            margins = tlp.score([orjson.loads(line)["i"][1][1] for line in lines])
            if self._map is None and len(margins):
                self._map = SelectionMap.fit(margins)
            return self._map(margins) if self._map else np.zeros(0, dtype=np.float32)

        def predict_stages(self, task: Any, states: Sequence[Any]) -> NDArray[np.float32]:
            # packed: the scores, then for each state its count of stage scores, which is 0
            return np.concatenate([self.predict(task, states), np.zeros(len(states), dtype=np.float32)])

        def update(self, inputs: Any, results: Any) -> None:
            pass

    return TlpCostModel()
