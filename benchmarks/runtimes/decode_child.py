"""A decoder in a process of its own, for `benchmarks.runtimes.decode`: run as a file, by the Python that has
its runtime.

Says "ready" once it has run. A line of standard input is JSON: a number of seconds, for which it makes the
same step again and again, with `CACHE` tokens in the cache, and prints its latencies in microseconds; or a
list of a prompt and a number, of which it prints the prompt with so many greedy tokens behind.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

CACHE = 128  # tokens in the cache of a timed step
WARM_STEPS = 10
TOKEN = 7  # of a timed step


class Ours:
    """A tuned model with a static cache, which it keeps."""

    def __init__(self, folder: str) -> None:
        import wmsched

        self.model = wmsched.load(folder)
        self.ids, self.place = np.array([[TOKEN]]), np.array([CACHE])

    def start(self) -> None:
        """Forget all tokens."""
        self.model.reset()

    def step(self, token: int, place: int) -> int:
        """Take a token at a place, and return the next one."""
        return int(self.model(np.array([[token]]), np.array([place]))[0, -1].argmax())

    def timed(self) -> None:
        """Make the step of the benchmark."""
        self.model(self.ids, self.place)


class OnnxRuntime:
    """A session with past and present bound, as `optimum` binds them."""

    def __init__(self, path: str) -> None:
        import onnxruntime as ort

        self.ort = ort
        self.session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.pasts = [one for one in self.session.get_inputs() if one.name.startswith("past")]
        self.presents = [one.name for one in self.session.get_outputs() if one.name.startswith("present")]
        self.logits = self.session.get_outputs()[0]
        self.start()
        self.bound = self._bound(TOKEN, CACHE, [self._past(one, CACHE) for one in self.pasts])
        shape = [1, 1, int(self.logits.shape[-1])]
        self._bind(self.bound, self.logits.name, shape)
        for one, name in zip(self.pasts, self.presents):
            self._bind(self.bound, name, self._shape(one, CACHE + 1))

    def start(self) -> None:
        """Forget all tokens."""
        self.cache: list[Any] = [self._past(one, 0) for one in self.pasts]

    def step(self, token: int, place: int) -> int:
        """Take a token at a place, and return the next one."""
        bound = self._bound(token, place, self.cache)
        for name in (self.logits.name, *self.presents):
            bound.bind_output(name, "cpu")
        self.session.run_with_iobinding(bound)
        logits, *self.cache = bound.get_outputs()
        return int(logits.numpy()[0, -1].argmax())

    def timed(self) -> None:
        """Make the step of the benchmark."""
        self.session.run_with_iobinding(self.bound)

    def _bound(self, token: int, place: int, cache: list[Any]) -> Any:
        bound = self.session.io_binding()
        for name, value in (("input_ids", token), ("position_ids", place)):
            bound.bind_ortvalue_input(name, self.ort.OrtValue.ortvalue_from_numpy(np.array([[value]])))
        for one, value in zip(self.pasts, cache):
            bound.bind_ortvalue_input(one.name, value)
        return bound

    def _bind(self, bound: Any, name: str, shape: list[int]) -> None:
        value = self.ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, "cpu")
        bound.bind_ortvalue_output(name, value)

    def _past(self, one: Any, length: int) -> Any:
        draw = np.random.default_rng(0).standard_normal(self._shape(one, length), np.float32)
        return self.ort.OrtValue.ortvalue_from_numpy(draw)

    def _shape(self, one: Any, length: int) -> list[int]:
        return [extent if isinstance(extent, int) else length for extent in one.shape]


class Eager:
    """PyTorch with the cache that transformers takes by itself."""

    def __init__(self, path: str) -> None:
        import torch

        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        from benchmarks.runtimes.decode import build

        torch.set_grad_enabled(False)
        self.torch, self.model = torch, build(Path(path).stem)
        self.start()
        for place in range(CACHE):
            self.step(TOKEN, place)
        self.ids = torch.tensor([[TOKEN]])
        self.filled = self.cache

    def start(self) -> None:
        """Forget all tokens."""
        from transformers import DynamicCache

        self.cache = DynamicCache(config=self.model.config)

    def step(self, token: int, place: int) -> int:
        """Take a token, and return the next one."""
        ids = self.torch.tensor([[token]])
        logits = self.model(ids, past_key_values=self.cache, use_cache=True).logits
        return int(logits[0, -1].argmax())

    def timed(self) -> None:
        """Make the step of the benchmark."""
        self.model(self.ids, past_key_values=self.filled, use_cache=True)
        self.filled.crop(-1)  # a view without the last token


RUNTIMES: dict[str, Any] = {"wmsched": Ours, "onnxruntime": OnnxRuntime, "eager": Eager}


def latencies(decoder: Any, seconds: float) -> list[float]:
    """Microseconds of each timed step of a spell."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end or not found:
        decoder.timed()
        found.append(round(1e6 * (time.perf_counter() - start), 2))
    return found


def greedy(decoder: Any, prompt: list[int], count: int) -> list[int]:
    """A prompt, taken token by token, and so many tokens behind it."""
    decoder.start()
    found = list(prompt)
    for place in range(len(prompt) + count - 1):
        following = decoder.step(found[place], place)
        if place + 1 == len(found):
            found.append(following)
    return found


def main() -> None:
    decoder = RUNTIMES[sys.argv[1]](sys.argv[2])
    for _ in range(WARM_STEPS):
        decoder.timed()
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        found = greedy(decoder, *asked) if isinstance(asked, list) else latencies(decoder, asked)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
