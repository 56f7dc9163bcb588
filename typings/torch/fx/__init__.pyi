from collections.abc import Mapping, Sequence

class Node:
    name: str
    op: str
    target: object
    args: Sequence[object]
    kwargs: Mapping[str, object]
    meta: Mapping[str, object]
    users: Mapping[Node, None]
    all_input_nodes: Sequence[Node]

class Graph:
    @property
    def nodes(self) -> Sequence[Node]: ...

class GraphModule:
    graph: Graph

class Interpreter:
    def __init__(self, module: GraphModule) -> None: ...
    def run(self, *given: object) -> object: ...
    def call_function(
        self, target: object, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object: ...
