from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

class Node:
    name: str
    op: str
    target: object
    args: Sequence[object]
    kwargs: Mapping[str, object]
    meta: Mapping[str, object]
    users: Mapping[Node, None]
    def replace_all_uses_with(self, other: Node, where: Callable[[Node], object]) -> object: ...

class Graph:
    @property
    def nodes(self) -> Sequence[Node]: ...
    def inserting_after(self, node: Node) -> AbstractContextManager[None]: ...
    def call_function(self, function: object, args: tuple[object, ...]) -> Node: ...

class GraphModule:
    graph: Graph
    def recompile(self) -> object: ...
