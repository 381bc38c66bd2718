"""ONNX's backend test cases, and the verdict on one: right, refused, unnamed, wrong.

`onnx` ships them: nodes, simple, and those converted from PyTorch.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner, _normalize_tensor

from wmsched.base.errors import WmschedError

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
#: The sizes of their outputs hang on data.
DATA_SIZED = ("Compress", "NonMaxSuppression", "NonZero", "Unique")
WHO = ("ours", "stock", "onnxruntime")
#: How a case is counted; "tensors" are those that a program of fixed shapes can serve.
TENSORS, STRINGS, SEQUENCES, SIZES = "tensors", "strings", "sequences", "data-sized"


@functools.cache
def cases() -> dict[str, Any]:
    """Return all cases by name, kinds in order."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for kind in KINDS for case in load_model_tests(kind=kind)}


def model_of(case: Any) -> Any:
    return case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")


def data_of(case: Any, model: Any) -> list[tuple[list[Any], list[Any]]]:
    """Return the inputs and wanted outputs of a case."""
    if case.data_sets is not None:
        sets = case.data_sets
        return [([*map(_normalize_tensor, a)], [*map(_normalize_tensor, b)]) for a, b in sets]
    found = []
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        pair = []
        for word, values in (("input", model.graph.input), ("output", model.graph.output)):
            count = len(list(folder.glob(f"{word}_*.pb")))
            pair.append([_stored(folder / f"{word}_{k}.pb", values[k].type) for k in range(count)])
        found.append((pair[0], pair[1]))
    return found


def _stored(path: Any, kind: Any) -> Any:
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(data)
        return onnx.numpy_helper.to_list(sequence)
    if kind.HasField("optional_type"):
        optional = onnx.OptionalProto()
        optional.ParseFromString(data)
        return onnx.numpy_helper.to_optional(optional)
    tensor = TensorProto()
    tensor.ParseFromString(data)
    return onnx.numpy_helper.to_array(tensor)


def operators_of(graph: Any) -> list[str]:
    """Return the names of a graph's operators, with those of branches and bodies."""
    found: dict[str, None] = {}
    for node in graph.node:
        found[node.op_type] = None
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                found.update(dict.fromkeys(operators_of(inner)))
    return list(found)


def sort_of(model: Any, operators: Sequence[str]) -> str:
    """Return how a case is counted."""
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    sequences = [v for v in values if not v.type.HasField("tensor_type")]
    if sequences or any("Sequence" in name or "Optional" in name for name in operators):
        return SEQUENCES
    if any(v.type.tensor_type.elem_type == TensorProto.STRING for v in values):
        return STRINGS
    if TensorProto.STRING in [t.data_type for t in model.graph.initializer]:
        return STRINGS
    return SIZES if set(operators) & set(DATA_SIZED) else TENSORS


def about(name: str, who: str) -> dict[str, Any]:
    """Return the line of a case without its verdict."""
    model = model_of(cases()[name])
    operators = operators_of(model.graph)
    return {
        "kind": "onnx_case",
        "case": name,
        "who": who,
        "operator": operators[0] if operators else "none",
        "sort": sort_of(model, operators),
    }


def judge(name: str, who: str) -> dict[str, Any]:
    """Return the line of a case: its verdict and why."""
    case = cases()[name]
    model = model_of(case)
    operators, line = operators_of(model.graph), about(name, who)
    try:
        data = data_of(case, model)
        run = RUNNERS[who](model)
        found = [(run(inputs), wanted) for inputs, wanted in data]
    except Exception as error:  # whatever a runtime raises of a model that it does not take
        said = _short(error).removeprefix(f"{model.graph.name}: ")
        named = isinstance(error, WmschedError) and any(
            re.search(rf"\b{re.escape(op)}\b", said) for op in operators
        )
        return line | {"verdict": "refused" if named or who != "ours" else "unnamed", "reason": said}
    try:
        for outputs, wanted in found:
            Runner.assert_similar_outputs(wanted, outputs, rtol=case.rtol, atol=case.atol)
    except Exception as error:  # numpy's, of values, shapes, and types that do not go together
        return line | {"verdict": "wrong", "reason": _short(error)}
    return line | {"verdict": "right", "reason": ""}


def _short(error: Exception) -> str:
    said = " ".join(str(error).split())
    said = said if isinstance(error, WmschedError) else f"{type(error).__name__}: {said}"
    return said if len(said) <= 200 else f"{said[:120]} ... {said[-75:]}"


def _ours(model: Any) -> Callable[[Any], Any]:
    from wmsched.relax.onnx_backend import Backend

    return Backend.prepare(model).run


def _stock(model: Any) -> Callable[[Any], Any]:
    """TVM's importer and default build, as its documentation has it."""
    from tvm import cpu, relax, runtime, target
    from tvm.relax.frontend.onnx import from_onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = relax.transform.DecomposeOpsForInference()(from_onnx(model))
        module = relax.transform.LegalizeOps()(module)
        built = relax.build(module, target=target.Target({"kind": "llvm", "opt-level": 0}))
    main = relax.VirtualMachine(built, cpu())["main"]

    def run(inputs: Any) -> Any:
        found = main(*[runtime.tensor(np.ascontiguousarray(one)) for one in inputs])
        return [found.numpy()] if isinstance(found, runtime.Tensor) else [one.numpy() for one in found]

    return run


def _onnxruntime(model: Any) -> Callable[[Any], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs)))


RUNNERS = {"ours": _ours, "stock": _stock, "onnxruntime": _onnxruntime}
