"""Quantized models of `benchmarks.runtimes`: NAME-int8 is NAME as onnxruntime's quantizer writes it.

Static, in pairs of QuantizeLinear and DequantizeLinear, unsigned data and signed weights by channel. It is
calibrated with random inputs, so only its speed and its agreement with other runtimes mean something.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SUFFIX = "-int8"
MODELS = ("resnet50", "mobilenetv2", "efficientnet-b0", "bert-base")
CALIBRATIONS = 4  # random inputs
MAX_WHOLE = 2  # whole numbers of inputs are below: indices into any table


def is_quantized(model: str) -> bool:
    """Whether a model's name is that of a quantized one."""
    return model.endswith(SUFFIX)


def quantize(source: Path, target: Path) -> None:
    """Quantize an ONNX file, unless that is done.

    Raises
    ------
    ModuleNotFoundError
        onnxruntime, which quantizes, is not installed.
    """
    if target.is_file():
        return
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from wmsched.base.files import atomic_path

    described = onnx.load(str(source), load_external_data=False).graph.input

    class Draws(CalibrationDataReader):
        """Random inputs."""

        def __init__(self) -> None:
            generator = np.random.default_rng(0)
            self.left = [{one.name: _drawn(one, generator) for one in described} for _ in range(CALIBRATIONS)]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    prepared = target.with_suffix(".prepared.onnx")
    try:
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        with atomic_path(target) as partial:
            quantize_static(
                str(prepared),
                str(partial),
                Draws(),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
    finally:
        prepared.unlink(missing_ok=True)


def _drawn(described: Any, generator: np.random.Generator) -> Any:
    from onnx import helper

    tensor = described.type.tensor_type
    shape = [int(extent.dim_value) for extent in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if np.issubdtype(dtype, np.floating):
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, MAX_WHOLE, shape).astype(dtype)


def ratios(
    medians: Mapping[str, Mapping[str, float]], over: str, ours: str = "constructed", *, suffix: str = SUFFIX
) -> dict[str, float]:
    """By model: how many times as fast its library of few bits is as something else of the same run.

    Parameters
    ----------
    medians : mapping of model to mapping of runtime to microseconds
    over : str
        "fp32", our library of the model that it was made of, or another runtime of the same model.
    suffix : str
        Of the models' names.
    """
    found = {}
    for model, times in medians.items():
        if not model.endswith(suffix) or ours not in times:
            continue
        plain = medians.get(model.removesuffix(suffix), {})
        theirs = plain.get(ours) if over == "fp32" else times.get(over)
        if theirs:
            found[model] = theirs / times[ours]
    return found
