"""Random modules of all operations known, for properties that must hold of every module.

Operations are made without knowing them: their classes say what parts they have, and what `infer`
refuses is tried again with other parts.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import random
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from dlc import dialects
from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.dialects.measured import Measuring
from dlc.errors import ModelError
from dlc.ir.attributes import (
    Attribute,
    Dense,
    DialectAttribute,
    Symbol,
    encode,
    make_dialect_attribute,
)
from dlc.ir.core import OPS, Block, Builder, Op, Value
from dlc.ir.define import fields_of
from dlc.ir.dims import MAX_FACTOR, Dim, Shape, Size
from dlc.ir.location import FileLocation, FusedLocation, Location, UnknownLocation
from dlc.ir.signature import WRONG_PARTS, signature_of
from dlc.ir.types import (
    INDEX,
    LANGUAGE_DTYPES,
    DType,
    FunctionType,
    SimpleType,
    TensorType,
    Type,
    VectorType,
    ViewType,
)
from dlc.text.sizes import parse_size

Item = TypeVar("Item")

for _module in pkgutil.walk_packages(dialects.__path__, f"{dialects.__name__}."):
    importlib.import_module(_module.name)  # makes its operations known

NAMES = ("x", "y", "h", "h_1", "0", "a b", "blocks[0].w", "é", "_", "$", "a-b", "x.y")
TEXTS = (
    "",
    "a",
    "two words",
    'quote " backslash \\',
    "line\nbreak\ttab\r\0\x7f",
    "é 漢 🙂",
    "\ud800",
)
INTEGERS = (0, 1, -1, 7, 2**31, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**64, -(10**40))
FLOATS = (0.0, -0.0, 1.0, 0.1, 1e300, -1e-300, 5e-324, 1 / 3, math.inf, -math.inf, math.nan, 1e16)
SIZES = (0, 1, 2, 3, 4)
DIMS = tuple(
    size
    for text in ("B", "T", "B + 1", "2*B*T - 3", "(B + 1)//2", "max(B, T) + B*B", "3*(B//T)")
    if isinstance(size := parse_size(text), Dim)
)
TRIES = 12
NOT_MADE = ("builtin.", "func.", "weight.", "comm.start_all_reduce", "comm.test", "comm.wait")
"""Operations that stand in a module, not in a function, and those that are right only together."""


@cache
def _hints(kind: type[Op]) -> dict[str, object]:
    return get_type_hints(kind)


class RandomModule:
    """Makes one module; the same seed makes the same."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        kinds = [kind for name, kind in OPS.items() if not name.startswith(NOT_MADE)]
        # Symbols stand in modules, not in functions.
        self._kinds = [kind for kind in kinds if "sym_name" not in signature_of(kind).attributes]
        self._ends = [kind for kind in self._kinds if kind.terminator]
        self.made: set[str] = set()
        self._counted = 0

    def module(self, functions: int = 2, operations: int = 40) -> Module:
        """A module of so many functions with at most so many operations each."""
        module = Module.empty(self.location())
        for number in range(functions):
            self._function(Builder(module.body, self.location()), f"f{number}", operations)
        return module

    def _function(self, emit: Builder, name: str, operations: int) -> None:
        types = [self.type() for _ in range(self._random.randrange(6, 14))]
        body = Block(types, [self._name() for _ in types])
        self._fill(body, list(body.arguments), operations)
        values = [value for op in body for value in op.results] + body.arguments
        returned = tuple(self._some(values, 3))
        Builder(body, self.location()).place(func.Return(returned))
        function = func.Func(body, name, func.signature(body, returned))
        function.attributes["dlc.dims"] = ("B = 1..64", "T = 1..")
        if self._random.random() < 0.5:
            function.attributes["dlc.anything"] = self.attribute()
        emit.place(function)

    def _fill(self, block: Block, visible: list[Value], operations: int, depth: int = 0) -> None:
        for _ in range(operations):
            kind = self._random.choice(self._kinds)
            if kind.terminator:
                continue
            for _ in range(2 if signature_of(kind).regions else TRIES):
                op = self._operation(kind, visible, depth)
                if op is not None:
                    block.append(op)
                    visible.extend(op.results)
                    self.made.add(kind.name)
                    break

    def _operation(self, kind: type[Op], visible: list[Value], depth: int) -> Op | None:
        """An operation of this kind with random parts, if they make one."""
        signature = signature_of(kind)
        operands = self._operands(signature.operands, visible)
        segments = [self._random.randrange(3) for _ in range(signature.groups)]
        operands += self._operands(sum(segments), visible)
        attributes = self._attributes(kind)
        if len(segments) > 1:
            attributes["segments"] = tuple(segments)
        if issubclass(kind, Measuring):
            self._counted += 1
            attributes["dim"] = f"n{self._counted}"
        if signature.regions and depth > 1:
            return None
        inner = [] if kind.isolated else visible
        regions = tuple([self._region(inner, depth) for _ in range(signature.regions)])
        op = object.__new__(kind)
        try:
            if not kind.isolated and any(map(_counts, regions)):
                raise ValueError("a formula counts no size")
            if signature.misfits(len(operands), len(regions), signature.ordered(attributes)):
                raise ValueError("the parts are not what the class declares")
            Op.__init__(
                op, tuple(operands), signature.ordered(attributes), regions, self.location()
            )
        except (ModelError, *WRONG_PARTS):
            for region in regions:
                region.clear()
            return None
        for result in op.results:
            result.name = self._name()
        return op

    def _region(self, visible: list[Value], depth: int) -> Block:
        types = [self.type() for _ in range(self._random.randrange(3))]
        block = Block(types, [self._name() for _ in types])
        inner = [*visible, *block.arguments]
        self._fill(block, inner, 3, depth + 1)
        for _ in range(TRIES):
            end = self._operation(self._random.choice(self._ends), inner, depth)
            if end is not None:
                block.append(end)
                break
        return block

    def _operands(self, count: int, visible: list[Value]) -> list[Value]:
        """Operands that are often of one type, as most operations want."""
        if not visible or not count:
            return []
        first = self._random.choice(visible)
        alike = [value for value in visible if value.type is first.type]
        more = [
            self._random.choice(alike if self._random.random() < 0.7 else visible)
            for _ in range(count - 1)
        ]
        return [first, *more]

    def _attributes(self, kind: type[Op]) -> dict[str, Attribute]:
        hints = _hints(kind)
        found: dict[str, Attribute] = {}
        for field in fields_of(kind):
            if field.kind == "attribute" and (field.is_required or self._random.random() < 0.5):
                found[field.name] = self.value(hints[field.name])
        if self._random.random() < 0.1:
            found["test.extra"] = self.attribute()
        return found

    # Values of attributes.

    def attribute(self, depth: int = 0) -> Attribute:
        """An attribute of any kind."""
        kinds: list[object] = [bool, int, float, str, Dim, Type, Symbol, Dense, Shape]
        if depth < 3 and self._random.random() < 0.4:
            return listed([self.attribute(depth + 1) for _ in range(self._random.randrange(4))])
        return self.value(self._random.choice(kinds))

    def value(self, hint: object) -> Attribute:
        """An attribute of a declared type."""
        arguments = get_args(hint)
        pick = self._random.choice
        if get_origin(hint) in (Union, UnionType):
            return self.value(pick([choice for choice in arguments if choice is not NoneType]))
        if get_origin(hint) is Literal:
            return pick(arguments)
        if get_origin(hint) is tuple:
            if arguments[1:] == (Ellipsis,):
                return listed([self.value(arguments[0]) for _ in range(self._random.randrange(4))])
            return tuple([self.value(argument) for argument in arguments])
        if hint is bool:
            return self._random.random() < 0.5
        if hint is int:
            return pick(INTEGERS) if self._random.random() < 0.3 else pick(SIZES)
        if hint is float:
            return pick(FLOATS)
        if hint is str:
            return pick(TEXTS)
        if hint is Dim:
            return self.dim()
        if hint is Symbol:
            return Symbol(pick(("f0", "f1")))
        if hint is Dense:
            return self.dense()
        assert isinstance(hint, type)
        if issubclass(hint, DialectAttribute):
            kinds = [field.type for field in fields(hint)] if is_dataclass(hint) else []
            sizes = [self.dim() if kind == "Size" and pick((0, 1)) else 16 for kind in kinds]
            return make_dialect_attribute(hint.name, sizes)
        assert issubclass(hint, Type), hint
        return self._type_of(hint)

    def dim(self) -> Dim:
        """A symbolic size."""
        return self._random.choice(DIMS)

    def size(self) -> Size:
        """A size, mostly a number."""
        return self.dim() if self._random.random() < 0.2 else self._random.choice(SIZES)

    def shape(self) -> Shape:
        """The shape of a small array."""
        return tuple([self.size() for _ in range(self._random.randrange(4))])

    def dense(self) -> Dense:
        """A small constant of any bits."""
        sizes = tuple([self._random.randrange(4) for _ in range(self._random.randrange(4))])
        dtype = self._random.choice((*LANGUAGE_DTYPES, INDEX))
        count = math.prod(sizes) * dtype.bytes
        if self._random.random() < 0.3:
            return Dense.splat(self._random.choice((0, 1)), TensorType(dtype, sizes))
        if dtype.kind == "bool":
            data = bytes(self._random.choices((0, 1), k=count))
        elif self._random.random() < 0.5 and dtype.is_float:
            numbers = [self._random.uniform(-2, 2) for _ in range(math.prod(sizes))]
            data = encode(np.array(numbers, np.float64), dtype).tobytes()
        else:
            data = self._random.randbytes(count)
        return Dense(TensorType(dtype, sizes), data)

    # Types, names, locations.

    def type(self) -> Type:
        """Any type a value may have, mostly a tensor."""
        kinds = (
            TensorType,
            TensorType,
            TensorType,
            DType,
            VectorType,
            ViewType,
            SimpleType,
            FunctionType,
        )
        return self._type_of(self._random.choice(kinds))

    def _type_of(self, kind: type[Type]) -> Type:
        dtype = self._random.choice((*LANGUAGE_DTYPES, INDEX))
        if kind is Type:
            return self.type()
        if kind is DType:
            return dtype
        if kind is VectorType:
            return VectorType(dtype, self._random.choice((1, 4, 8)))
        if kind is ViewType:
            shape = self.shape()
            strides = None if self._random.random() < 0.5 else tuple([self.size() for _ in shape])
            return ViewType(dtype, shape, strides)
        if kind is SimpleType:
            return self._random.choice(list(SimpleType.known.values()))
        if kind is FunctionType:
            inputs = tuple([self.type() for _ in range(self._random.randrange(3))])
            return FunctionType(
                inputs, tuple([self.type() for _ in range(self._random.randrange(3))])
            )
        return TensorType(dtype, self.shape())

    def _name(self) -> str | None:
        return self._random.choice(NAMES) if self._random.random() < 0.6 else None

    def _some(self, items: list[Item], most: int) -> list[Item]:
        return self._random.sample(items, min(len(items), self._random.randrange(most + 1)))

    def location(self) -> Location:
        """A location of any kind."""
        line, column = self._random.randrange(1, 100), self._random.randrange(1, 80)
        one = FileLocation("a.dlm", line, column, self._random.choice((0, column + 3)))
        if self._random.random() < 0.7:
            return one
        other = FileLocation('odd "name"\n.dlm', column, line)
        more = (other, FusedLocation((one, other)), FusedLocation((one,)))
        return self._random.choice((*more, UnknownLocation(), UnknownLocation('a "test"')))


def listed(items: list[Attribute]) -> tuple[Attribute, ...]:
    """The items; a list with a symbolic size in it is one of sizes, and those end at 2**62."""
    if not any(isinstance(item, Dim) for item in items):
        return tuple(items)
    return tuple(
        [7 if isinstance(item, int) and abs(item) > MAX_FACTOR else item for item in items]
    )


def _counts(block: Block) -> bool:
    return any(isinstance(op, Measuring) for outer in block for op in outer.walk())
