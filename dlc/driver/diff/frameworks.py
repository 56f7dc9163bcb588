"""The inner values of a network as another framework computes them, where that is installed."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np

from dlc.driver.diff.case import Case
from dlc.errors import UsageError
from dlc.ir.core import Array


def values_of_onnx(path: str, case: Case) -> dict[str, Array]:
    """Every tensor of an ONNX graph, as ONNX Runtime computes it from the inputs of a call.

    Raises UsageError (D0921) where ONNX Runtime or onnx is not installed.
    """
    onnx: Any = _needed("onnx", path)
    runtime: Any = _needed("onnxruntime", path)
    model: Any = onnx.load(path)
    known = {output.name for output in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session: Any = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = {
        item.name: array for item, array in zip(session.get_inputs(), case.inputs, strict=False)
    }
    names = [name for node in model.graph.node for name in node.output if name]
    results: list[Any] = session.run(names, given)
    return {
        name: np.asarray(array)
        for name, array in zip(names, results, strict=True)
        if array is not None
    }


def values_of_pt2(path: str, case: Case) -> dict[str, Array]:
    """The values of an exported program of PyTorch, by the path of the module that computes each last.

    Raises UsageError (D0921) where PyTorch is not installed.
    """
    torch: Any = _needed("torch", path)
    program: Any = torch.export.load(path)
    module: Any = program.module()
    values: dict[str, Array] = {}

    recorder: Any = _recorder(torch, values)
    with torch.no_grad():
        recorder(module).run(*[torch.from_numpy(np.array(array)) for array in case.inputs])
    return values


def _recorder(torch: Any, values: dict[str, Array]) -> Any:  # noqa: ANN401
    """An interpreter of graphs of PyTorch that keeps every tensor that is computed."""
    base: Any = torch.fx.Interpreter

    def run_node(self: Any, node: Any) -> Any:  # noqa: ANN401
        result: Any = base.run_node(self, node)
        if node.op == "call_function" and isinstance(result, torch.Tensor):
            values[_path(node) or node.name] = np.array(result.detach().numpy())
        return result

    return type("Recorder", (base,), {"run_node": run_node})


def _path(node: Any) -> str:  # noqa: ANN401 - a node of a graph of PyTorch
    """The path of the innermost module that a node belongs to, and its name."""
    stack: dict[str, tuple[str, object]] = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if path]
    return f"{paths[-1]}.{node.name}" if paths else ""


def _needed(name: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(
            f"comparing with {path} needs {name}, which is not installed",
            code="D0921",
            help=f"pip install {name}, or record its values in an .npz",
        ) from None
