"""LLVM text: types, names, the text of a function, and the table of writers of operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from dlc.dialects.scalar import element
from dlc.ir.core import Op, Value
from dlc.ir.types import BOOL, POINTER, DType, Type, VectorType

LLVM_TYPES = {
    "f64": "double",
    "f32": "float",
    "f16": "i16",
    "bf16": "i16",
    "index": "i64",
    "bool": "i1",
}
"""LLVM's types of dtypes that are not integers of the same number of bits.

16-bit floats are integers, except in the instruction that converts them: LLVM may move values of type
`half` or `bfloat` by converting them back and forth, with calls of library functions that do not exist.
"""


def llvm_type(type: Type) -> str:
    """A type in LLVM's syntax."""
    match type:
        case VectorType(dtype, lanes):
            return f"<{lanes} x {llvm_type(dtype)}>"
        case DType(name):
            return LLVM_TYPES.get(name, f"i{type.bits}")
        case _ if type is POINTER:
            return "ptr"
        case _:
            raise AssertionError(f"{type} has no LLVM type")


def memory_type(type: Type) -> str:
    """The type of the same value in memory: bools are bytes."""
    if element(type) is not BOOL:
        return llvm_type(type)
    return f"<{type.lanes} x i8>" if isinstance(type, VectorType) else "i8"


def suffix(type: Type) -> str:
    """The type in the name of an overloaded intrinsic: `v8f32`."""
    dtype = element(type)
    name = {"index": "i64", "bool": "i1"}.get(dtype.name, dtype.name.replace("u", "i"))
    return f"v{type.lanes}{name}" if isinstance(type, VectorType) else name


class FunctionText:
    """The text of a function under construction: its lines, declared intrinsics and stack variables."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.declarations: dict[str, None] = {}
        self.names: dict[Value, str] = {}
        self.label = "entry"
        self._count = 0

    def fresh(self) -> str:
        """A new local name."""
        self._count += 1
        return f"%v{self._count}"

    def fresh_label(self) -> str:
        """A new block label."""
        self._count += 1
        return f"b{self._count}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def assign(self, text: str) -> str:
        """Write an instruction and return the name of its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def intrinsic(
        self, result: str, name: str, *arguments: tuple[str, str], flags: str = ""
    ) -> str:
        """Call an LLVM intrinsic with (type, value) arguments and return the name of the result."""
        return self.assign(self._call(result, name, arguments, flags))

    def call(self, name: str, *arguments: tuple[str, str]) -> None:
        """Call a function without a result."""
        self.line(self._call("void", name, arguments))

    def _call(
        self, result: str, name: str, arguments: Sequence[tuple[str, str]], flags: str = ""
    ) -> str:
        types = ", ".join(type for type, _ in arguments)
        self.declarations[f"declare {result} @{name}({types})"] = None
        given = ", ".join(f"{type} {value}" for type, value in arguments)
        return f"call {flags}{result} @{name}({given})"

    def name(self, value: Value) -> str:
        return self.names[value]


OpT = TypeVar("OpT", bound=Op)
Write: TypeAlias = "Callable[[OpT, FunctionText], tuple[str, ...]]"
WRITERS: dict[type[Op], Write[Any]] = {}
"""The writer of each class of operations, which returns the names of the results."""


def writes(*classes: type[OpT]) -> Callable[[Write[OpT]], Write[OpT]]:
    """Register a writer for operations of these classes."""

    def apply(write: Write[OpT]) -> Write[OpT]:
        WRITERS.update(dict.fromkeys(classes, write))
        return write

    return apply
