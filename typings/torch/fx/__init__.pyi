from collections.abc import Mapping, Sequence

class Node:
    name: str
    op: str
    target: object
    args: Sequence[object]
    kwargs: Mapping[str, object]
    meta: Mapping[str, object]
    users: Mapping[Node, None]

class Graph:
    @property
    def nodes(self) -> Sequence[Node]: ...

class GraphModule:
    graph: Graph
