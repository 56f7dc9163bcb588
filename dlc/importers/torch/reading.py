"""Graphs of torch.fx as facts: the only place of the importer that knows PyTorch's own classes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dlc.errors import Unsupported
from dlc.importers.torch.facts import (
    Argument,
    Array,
    Graph,
    Input,
    Module,
    Node,
    Opaque,
    Ref,
    Result,
    Weight,
)
from dlc.importers.torch.sizes import number_of, size_of
from dlc.ir.dims import Bounds, Size
from dlc.ir.types import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
    TensorType,
)

if TYPE_CHECKING:
    import torch
    import torch.fx

DTYPES: dict[str, DType] = {
    "torch.float64": F64, "torch.float32": F32, "torch.float16": F16, "torch.bfloat16": BF16,
    "torch.int64": I64, "torch.int32": I32, "torch.int16": I16, "torch.int8": I8,
    "torch.uint64": U64, "torch.uint32": U32, "torch.uint16": U16, "torch.uint8": U8,
    "torch.bool": BOOL,
}  # fmt: skip
"""The element types of PyTorch that dlc has, by their names there."""

CHECKS = frozenset({
    "aten._assert_async.msg", "aten._assert_scalar.default", "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range_for_size.default", "aten.sym_constrain_range.default",
})  # fmt: skip
"""Operators that make nothing: they check what the compiler proves or each call checks."""


def dtype_of(dtype: object) -> DType:
    """The dtype of PyTorch as ours. Raises Unsupported (D0710) for one that dlc lacks."""
    found = DTYPES.get(str(dtype))
    if found is None:
        raise Unsupported(f"the element type {dtype} is not imported", code="D0710")
    return found


class Reader:
    """Reads the nodes of one graph; `names` are those of its symbolic sizes, `bounds` are theirs.

    `lines` is how many lines of the listing stand before the first node.
    """

    def __init__(
        self, names: Mapping[str, str], file: str, bounds: Bounds | None = None, lines: int = 0
    ) -> None:
        self._names = names
        self._bounds: Bounds = bounds or {}
        self._file = file
        self._parts: dict[tuple[str, int], str] = {}
        self._lines = lines

    def size(self, value: object) -> Size:
        """A size: a number, or PyTorch's symbolic integer."""
        if isinstance(value, int):
            return int(value)
        inner = getattr(value, "node", None)
        expression = None if inner is None else inner.expr
        if expression is None:
            raise Unsupported(f"{value} is not a size", code="D0711")
        return size_of(expression, self._names, self._bounds)

    def type(self, value: object) -> TensorType | None:
        """The type of a tensor without data; None for what is not a tensor."""
        shape = getattr(value, "shape", None)
        if shape is None:
            return None
        tensor = cast("torch.Tensor", value)
        return TensorType(dtype_of(tensor.dtype), tuple([self.size(size) for size in tensor.shape]))

    def held_type(self, value: object) -> TensorType | None:
        """The type of a tensor that the program holds; complex numbers are pairs."""
        return self._pairs(cast("torch.Tensor", value)) if _is_complex(value) else self.type(value)

    def _pairs(self, tensor: torch.Tensor) -> TensorType:
        """The type of complex numbers inside of a graph: their parts along a last axis of size 2."""
        dtype = F64 if str(tensor.dtype) == "torch.complex128" else F32
        return TensorType(dtype, (*[self.size(size) for size in tensor.shape], 2))

    def nodes(self, module: torch.fx.GraphModule, skip: Iterable[str] = ()) -> tuple[Node, ...]:
        """The operators of a graph, without those that compute sizes or check something."""
        left = {*skip}
        found: list[Node] = []
        for node in module.graph.nodes:
            if node.op == "call_function" and node.name not in left:
                read = self._node(node, module)
                if read is not None:
                    found.append(read)
        return tuple(found)

    def _node(self, node: torch.fx.Node, module: torch.fx.GraphModule) -> Node | None:
        made = node.meta.get("val")
        if node.target is operator.getitem:
            return self._part(node)
        if _is_size(made) or str(node.target) in CHECKS:
            return None
        _check_strided(node)
        self._lines += 1
        return Node(
            node.name,
            _kind_of_node(node),
            self._arguments(node, module),
            self._types(node, made),
            self._lines,
            modules_of(node),
        )

    def _part(self, node: torch.fx.Node) -> Node | None:
        """One of several results, as an operator of its own."""
        source, index = node.args[0], node.args[1]
        if _is_size(node.meta.get("val")):
            return None
        self._lines += 1
        arguments: dict[str, Argument] = {
            "self": self.argument(source),
            "index": int(cast("int", index)),
        }
        types = self._types(node, node.meta.get("val"))
        return Node(node.name, "getitem", arguments, types, self._lines, modules_of(node))

    def _types(self, node: torch.fx.Node, made: object) -> tuple[TensorType | None, ...]:
        """The types of the results; None for those that nobody reads."""
        if _is_complex(made):
            return (self._pairs(cast("torch.Tensor", made)),)
        if not isinstance(made, tuple | list):
            return (self.type(made),)
        used = {user.args[1] for user in node.users if user.target is operator.getitem}
        whole = any(user.target is not operator.getitem for user in node.users)
        return tuple(
            [
                self.type(part) if whole or index in used else None
                for index, part in enumerate(cast("Sequence[object]", made))
            ]
        )

    def _arguments(self, node: torch.fx.Node, module: torch.fx.GraphModule) -> dict[str, Argument]:
        """All arguments by their names in the schema; an operator without one has them by number."""
        schema = getattr(node.target, "_schema", None)
        if schema is None or not hasattr(node.target, "overloadpacket"):
            return {
                str(number): self.argument(value, module) for number, value in enumerate(node.args)
            }
        found: dict[str, Argument] = {}
        pairs: list[str] = []
        for number, declared in enumerate(schema.arguments):
            if number < len(node.args):
                value: object = node.args[number]
            elif declared.name in node.kwargs:
                value = node.kwargs[declared.name]
            else:
                value = declared.default_value if declared.has_default_value() else None
            found[declared.name] = self.argument(value, module)
            if _is_complex(getattr(value, "meta", {}).get("val")):
                pairs.append(declared.name)
        return {**found, "complex": tuple(pairs)} if pairs else found

    def argument(self, value: object, module: torch.fx.GraphModule | None = None) -> Argument:
        """An argument of a node as a fact."""
        if value is None or isinstance(value, int | float | str):
            return value
        if isinstance(value, tuple | list):
            return tuple([self.argument(part, module) for part in cast("Sequence[object]", value)])
        if hasattr(value, "meta") and hasattr(value, "op"):
            return self._reference(cast("torch.fx.Node", value), module)
        if str(value) in DTYPES:
            return DTYPES[str(value)]
        if hasattr(value, "node") and _is_size(value):
            return self.size(value)
        return Opaque(str(value))

    def _reference(self, node: torch.fx.Node, module: torch.fx.GraphModule | None) -> Argument:
        """What another node made: a tensor by its name, a size as it is, a graph as its facts."""
        if node.op == "get_attr" and module is not None:
            inner = getattr(module, str(node.target), None)
            if hasattr(inner, "graph"):
                return self.inner(cast("torch.fx.GraphModule", inner), str(node.target))
        made = node.meta.get("val")
        if _is_size(made):
            return self._number(made)
        return Ref(node.name)

    def _number(self, made: object) -> Argument:
        """A number that is computed from sizes."""
        if isinstance(made, int | float):
            return made
        try:
            if type(made).__name__ == "SymFloat":
                return self._calculated(made)
            return self.size(made)
        except (Unsupported, ValueError, TypeError):
            return Opaque(str(made))

    def _calculated(self, value: object) -> Argument:
        """A float that is calculated from sizes."""
        expression = getattr(value, "node").expr  # noqa: B009
        return number_of(expression, self._names, self._bounds)

    def inner(self, module: torch.fx.GraphModule, name: str) -> Graph:
        """A graph inside a node."""
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        declared: list[Input] = []
        for node in inputs:
            type = self.type(node.meta.get("val"))
            if type is None:
                raise Unsupported(f"{name} takes {node.name}, which is not a tensor", code="D0710")
            declared.append(Input(node.name, node.name, type, tuple(range(type.rank))))
        results = [
            Result(self.argument(each), f"y{k}") for k, each in enumerate(outputs_of(module))
        ]
        return Graph(name, self._file, tuple(declared), (), self.nodes(module), tuple(results))


def outputs_of(module: torch.fx.GraphModule) -> Sequence[object]:
    """What a graph returns."""
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    returned = output.args[0]
    return cast("Sequence[object]", returned) if isinstance(returned, tuple | list) else (returned,)


def constants_of(module: torch.fx.GraphModule, reader: Reader) -> tuple[Weight, ...]:
    """Tensors that the graph holds itself."""
    found: dict[str, Weight] = {}
    for node in module.graph.nodes:
        tensor = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        type = reader.held_type(tensor)
        if type is not None:
            array = array_of(cast("torch.Tensor", tensor))
            found[node.name] = Weight(node.name, str(node.target), type, array, False, True)
    return tuple(found.values())


def _check_strided(node: torch.fx.Node) -> None:
    """Refuse a view by strides of a tensor with gaps: facts do not tell where its elements lie."""
    if not str(node.target).startswith("aten.as_strided"):
        return
    source = node.args[0]
    tensor = cast("torch.fx.Node", source).meta.get("val")
    contiguous = getattr(tensor, "is_contiguous", None)
    if contiguous is not None and not contiguous():
        raise Unsupported(
            f"{node.name} is a view by strides of a tensor with gaps, which is not imported",
            code="D0710",
        )


def kind_of(target: object) -> str:
    """The name of an operator with its overload, such as `aten.add.Tensor`."""
    name = str(target)
    return str(getattr(target, "__name__", name)) if name.startswith("<") else name


def _kind_of_node(node: torch.fx.Node) -> str:
    """The name of its operator; of one on complex numbers `complex.`, since few treat their parts alike."""
    values = [node.meta.get("val"), *[each.meta.get("val") for each in node.all_input_nodes]]
    kind = kind_of(node.target)
    if not any(map(_is_complex, values)):
        return kind
    return f"complex.{kind.removeprefix('aten.').rpartition('.')[0]}"


def _is_complex(value: object) -> bool:
    """Whether a value is a tensor of complex numbers."""
    return str(getattr(value, "dtype", "")) in ("torch.complex64", "torch.complex128")


def modules_of(node: torch.fx.Node) -> tuple[Module, ...]:
    """The modules that a node was computed in, from the whole to the innermost."""
    stack = cast("Mapping[str, tuple[str, object]]", node.meta.get("nn_module_stack") or {})
    found: list[Module] = []
    for path, kind in stack.values():
        if path == "_empty_nn_module_stack_from_metadata_hook":
            continue
        name = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
        found.append(
            Module(path.replace("L['self'].", "").replace("L['self']", ""), name.rpartition(".")[2])
        )
    return tuple(found)


def order_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The axes in the order in which they lie in memory; as they are where the memory has gaps."""
    plain = tuple(range(tensor.dim()))
    known: Sequence[object] = (*tensor.stride(), *tensor.shape)
    strides = [stride for stride in tensor.stride() if isinstance(stride, int)]
    if any(not isinstance(number, int) for number in known):  # sizes that calls choose
        return plain
    order = tuple(sorted(plain, key=lambda axis: (-strides[axis], axis)))
    expected = 1
    for axis in reversed(order):
        if tensor.shape[axis] != 1 and strides[axis] != expected:
            return plain
        expected *= tensor.shape[axis]
    return order


def array_of(tensor: torch.Tensor) -> Array:
    """The elements of a tensor without a copy, if it is dense; bf16 as its bits in uint16."""
    import torch
    from torch.utils._python_dispatch import (
        _disable_current_modes,  # pyright: ignore[reportPrivateUsage]
    )

    # While TorchDynamo compiles, every operator would make a tensor without data.
    with _disable_current_modes():
        plain = tensor.detach().cpu()
        if plain.is_complex():
            plain = torch.view_as_real(plain.resolve_conj())
        if plain.dtype is torch.bfloat16:
            plain = plain.contiguous().view(torch.uint16)
        return plain.numpy()


def _is_size(value: object) -> bool:
    """Whether a value is a number, perhaps a symbolic one, and no tensor."""
    return isinstance(value, int | float) or type(value).__name__ in (
        "SymInt",
        "SymFloat",
        "SymBool",
    )


MOST = 1 << 48
"""Bounds from here on are none: PyTorch writes so for a size that it knows nothing of."""


def bounds_of_range(found: object) -> tuple[int, int | None]:
    """The lowest and the highest value of a size, from PyTorch's range of it.

    PyTorch assumes 2 where nobody asked for less, and its programs are right for 1 as well.
    """
    low, high = _bound(getattr(found, "lower", None)), _bound(getattr(found, "upper", None))
    return 1 if low is None or low <= 2 else low, high


def _bound(number: object) -> int | None:
    """A number of sympy; None for its infinities."""
    text = str(number)
    return int(text) if text.isdigit() and int(text) < MOST else None
