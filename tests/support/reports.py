"""A report's numbers, made up, for tests of the page."""

from __future__ import annotations

from typing import Any

from wmsched.report.limits import WAITS


def row(name: str, what: str, seconds: float, **settings: Any) -> dict[str, Any]:
    """One function: a tenth of a millisecond a call, and a limit of a quarter of that."""
    limit = {"compute": seconds / 4, "memory": seconds / 8, "launch": 0.0, "seconds": seconds / 4}
    return {
        "name": name,
        "what": what,
        "calls": 2,
        "seconds": seconds,
        "warm": seconds * 0.9,
        "flops": 3e6,
        "bytes": 1.5e5,
        "weights": 1e5,
        "shapes": ["float32 1x8", "float32 8x8"],
        "loops": 2,
        "shared": 2,
        "share": seconds / 4e-3,
        "gflops": 3e-3 / seconds,
        "gbs": 1.5e-4 / seconds,
        "limit": limit | {"waits": "code"},
        "over": seconds * 0.75,
        "trials": 16,
        "how": "measured",
        "alone": seconds,
    } | settings


def report(**settings: Any) -> dict[str, Any]:
    """A searched model of three functions, of which one's operations are not known."""
    unknown = {"compute": None, "memory": 1e-5, "launch": 0.0, "seconds": 1e-5, "waits": "unknown"}
    rows = [
        row("fused_conv2d_relu_prepacked", "3x3 convolution of 3 channels to 1 x 8 x 8 x 16, ReLU", 2e-3),
        row("softmax", "softmax of 1 x 1000", 1.25e-3, trials=0, how="constructed", loops=0, shared=0),
        row(
            "sort<&>",
            "sort <b>",
            5e-4,
            flops=None,
            gflops=None,
            warm=None,
            limit=unknown,
            over=4e-4,
            trials=None,
        ),
    ]
    return {
        "model": "/models/net & co.onnx",
        "tuned": "2026-01-01T00:00:00+00:00",
        "date": "2026-01-02T00:00:00+00:00",
        "target": '{"kind": "llvm", "mcpu": "znver4"}',
        "threads": 2,
        "versions": {"tvm": "0.27"},
        "constructed": False,
        "profile": {
            "seconds": 4e-3,
            "machine": 1.5e-4,
            "rest": 1e-4,
            "clock": 1e-5,
            "measured": 4.1e-3,
            "rounds": 50,
            "spread": [3.9e-3, 4.4e-3],
            "memory": 2e7,
        },
        "functions": rows,
        "waits": {"code": 3.25e-3, "unknown": 5e-4},
        "meaning": WAITS,
        "machine": {
            "threads": 2,
            "gflops": 240.0,
            "int8": None,
            "bandwidth": [[1 << 15, 400.0], [1 << 20, 200.0], [1 << 26, 20.0]],
            "handover": 1e-6,
            "memory": 25.0,
        },
        "why_unknown": "",
        "then": {"untuned": 1e-2, "tuned": 4e-3, "onnxruntime": 5e-3},
        "library": {"file": "model.so", "build": "tuned", "why": ""},
        "compared": None,
        "search": {
            "trials": 32,
            "failed": 1,
            "seconds": 90.0,
            "construct_seconds": None,
            "curve": [[9, 6e-3], [20, 4e-3], [32, 4e-3]],
        },
        "left": [{"name": "softmax", "why": "it had no trial: it has a schedule by rule"}],
    } | settings
