from collections.abc import Mapping, MutableMapping, Sequence
from os import PathLike
from typing import Any, ClassVar

from torch import Tensor
from torch.fx import Graph, GraphModule
from torch.nn import Module

class Dim:
    AUTO: ClassVar[object]
    DYNAMIC: ClassVar[object]

class _Kind:
    name: str

class _Argument:
    name: str
    value: object

class _Output:
    kind: _Kind
    target: str | None
    arg: _Argument

class _Signature:
    user_inputs: Sequence[object]
    inputs_to_parameters: Mapping[str, str]
    inputs_to_buffers: Mapping[str, str]
    inputs_to_lifted_tensor_constants: Mapping[str, str]
    output_specs: Sequence[_Output]

class _Range:
    lower: object
    upper: object

class _CallSpec:
    in_spec: Any
    out_spec: Any

class ExportedProgram:
    graph: Graph
    graph_module: GraphModule
    graph_signature: _Signature
    state_dict: Mapping[str, Tensor]
    constants: Mapping[str, object]
    range_constraints: Mapping[object, _Range]
    call_spec: _CallSpec
    def module(self, check_guards: int = ...) -> GraphModule: ...
    def run_decompositions(self, table: Mapping[object, object]) -> ExportedProgram: ...

def export(
    module: Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    *,
    dynamic_shapes: object,
    strict: bool,
) -> ExportedProgram: ...
def load(path: str | PathLike[str]) -> ExportedProgram: ...
def default_decompositions() -> MutableMapping[object, object]: ...
