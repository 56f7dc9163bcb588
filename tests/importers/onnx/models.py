"""Models made for tests, what onnxruntime makes of them, and what our import of them means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

from dlc.dialects import func, weight
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.source_model import SourceModel
from dlc.export.model_text import Written, write_model
from dlc.frontend.elaborate import elaborate
from dlc.importers.onnx import OnnxModel, import_graph
from dlc.importers.onnx.reading import graph_of
from dlc.ir.core import Evaluation
from dlc.ir.passes import Context
from dlc.ir.verify import verify
from dlc.runtime.cpu.features import host_features
from dlc.runtime.model import Model

Array = NDArray[Any]

SATURATES = not host_features() & {"avx512vnni", "avxvnni"}
"""Whether onnxruntime saturates sums of two products of bytes to 16 bits, as it does without VNNI.

Weights of 7 bits keep within that range; its own tool has `reduce_range` for it.
"""


def node(kind: str, given: str, *made: str, **attributes: Any) -> NodeProto:  # noqa: ANN401 - any of ONNX
    """A node that makes these values of the values whose names stand in `given`."""
    return helper.make_node(kind, given.split(), list(made), **attributes)


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    tensors: Mapping[str, Array] | None = None,
    *,
    opset: int = 18,
    domains: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
) -> ModelProto:
    """A model of these nodes; `shapes` declares other shapes than the inputs have.

    `domains` are the versions of other operators than those of ONNX itself.
    """
    declared = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            (shapes or {}).get(name, array.shape),
        )
        for name, array in inputs.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    held = [numpy_helper.from_array(array, name) for name, array in (tensors or {}).items()]
    graph = helper.make_graph(list(nodes), "test", declared, results, held)
    versions = {"": opset, **(domains or {})}
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def imported(model: ModelProto, folder: Path = Path()) -> OnnxModel:
    """Our import of a model, verified."""
    made = import_graph(graph_of(model, "test.onnx", folder))
    verify(made.module)
    return made


def expected(model: ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """The results of onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # its threads would spin beside the other tests
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(found) for found in session.run(None, dict(inputs))]


def evaluated(
    made: OnnxModel, inputs: Mapping[str, Array], dims: Mapping[str, int] | None = None
) -> list[Array]:
    """What the imported graph means for these inputs."""
    functions = [op for op in made.module.body if isinstance(op, func.Func)]
    run = Evaluation(dims, made.arrays)
    return list(run.run(functions[0].body, list(inputs.values())))


def compiled(model: ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """What our code for a model computes."""
    return results(machine_code(model), list(inputs.values()))


def machine_code(model: ModelProto) -> Model:
    """Our code for a model."""
    made = imported(model)
    texts = {"test.onnx": made.listing}
    opened = SourceModel(made.module, Context(), "test", texts, Path(), arrays=made.arrays)
    return Model(compile_model(opened, Settings()))


def results(model: Model, inputs: Sequence[Array]) -> list[Array]:
    """What a model's only entry point gives."""
    (entry,) = model.entry_points.values()
    found = entry(*inputs)
    if isinstance(found, tuple):
        return [np.asarray(result) for result in cast("tuple[Array, ...]", found)]
    return [np.asarray(found)]


def written(made: OnnxModel) -> Written:
    """An imported model as text."""
    return write_model(made, "net", "net.safetensors", "A test.")


def meant(
    text: Written, inputs: Mapping[str, Array], dims: dict[str, int] | None = None
) -> list[Array]:
    """What a text means for these inputs."""
    module = elaborate(Path("net.dlm"), text=text.text).module
    sources = [op for op in module.body if isinstance(op, weight.Source)]
    arrays = {op.sym_name: text.weights[op.sym_name].array for op in sources}
    (entry,) = [op for op in module.body if isinstance(op, func.Func)]
    return list(Evaluation(dims, arrays).run(entry.body, list(inputs.values())))
