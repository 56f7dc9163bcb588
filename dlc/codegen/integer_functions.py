"""Machine code for Python functions about integers, written once and readable as what they are.

A function here takes a record of arrays of 64-bit integers (a dataclass) and integers, and gives one.
It may assign, loop with `while` and over `range`, branch, call others of its kind in its module, and
knows `+ - * //`, comparisons, `and`, `or`, `not`, `min`, `max` and `len`; nothing else. Where no number
leaves 64 bits and nothing negative is divided, the machine code gives what Python gives; it does not
check indices, so run the function in Python to test it.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import inspect
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import cast

from dlc.codegen import llvm
from dlc.codegen.image import link
from dlc.codegen.kernels import ObjectCache, cache_key, kept
from dlc.ir.native import Code, Record
from dlc.runtime.code import LoadedImage, load_image

LEVEL = 2
"""How much LLVM does about it."""


def compile_function(
    function: Code[Record], record: type[Record], cache: ObjectCache | None = None
) -> Code[Record]:
    """The function as machine code of this processor; `record` is a dataclass of `array("q")`.

    What the cache has is used as it is, where the texts of the function's module and of this one, and the
    numbers that its module knows, are as they were.
    """
    assert isinstance(function, FunctionType)
    names = list(inspect.get_annotations(record))
    target = llvm.Target.named("host")
    key = cache_key(_sources(function, names), target, LEVEL)
    made = kept(
        cache, key, lambda: llvm.compile_object(_module_text(function, names), target, LEVEL)
    )
    image = link({function.__name__: made})
    loaded = load_image(image.code, hashlib.sha256(image.code).digest(), image.imports)
    return _caller(loaded, image.entries[function.__name__], names)


def _sources(function: FunctionType, names: Sequence[str]) -> str:
    """All that the text of a function is made from: changes with it, and is there in no time."""
    numbers = {
        name: value for name, value in function.__globals__.items() if isinstance(value, int)
    }
    own = inspect.getsource(sys.modules[__name__])
    return "\0".join([function.__name__, *names, str(numbers), _source(function), own])


def _source(function: FunctionType) -> str:
    """The text of the module that a function is from."""
    return inspect.getsource(sys.modules[function.__module__])


def _caller(loaded: LoadedImage, entry: int, names: Sequence[str]) -> Code[object]:
    integer = ctypes.c_int64
    code = ctypes.CFUNCTYPE(integer, ctypes.c_void_p, integer, integer)(loaded.base + entry)

    def call(record: object, first: int, second: int) -> int:
        assert loaded.pages, "the code lives as long as this function"
        arrays = [cast("array[int]", getattr(record, name)) for name in names]
        words = [word for each in arrays for word in each.buffer_info()]
        return code((ctypes.c_int64 * len(words))(*words), first, second)

    return call


# The text.


def _module_text(function: FunctionType, names: Sequence[str]) -> str:
    """The function for others to call, and all that it calls, put into it by LLVM."""
    parts = ["!0 = !{}"]
    trees = {tree.name: tree for tree in _definitions(_source(function))}
    wanted = {function.__name__: function}
    done: set[str] = set()
    while len(done) < len(wanted):
        name = next(name for name in wanted if name not in done)
        assert wanted[name].__module__ == function.__module__, name
        writer = _Writer(trees[name], function.__globals__, names)
        parts.append(writer.text(is_entry=wanted[name] is function))
        wanted |= writer.called
        done.add(name)
    return "\n\n".join(parts) + "\n"


def _definitions(source: str) -> Iterator[ast.FunctionDef]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            yield node


_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "sdiv",
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "slt",
    ast.LtE: "sle",
    ast.Gt: "sgt",
    ast.GtE: "sge",
}
_CHOICES = {"min": "slt", "max": "sgt"}


class _Writer:
    """Writes one function. A variable is a place on the stack, which LLVM makes a register."""

    def __init__(
        self, tree: ast.FunctionDef, known: Mapping[str, object], fields: Sequence[str]
    ) -> None:
        self.fields = fields
        self.globals = known
        self.called: dict[str, FunctionType] = {}
        self.tree = tree
        self.record, *self.numbers = [argument.arg for argument in tree.args.args]
        self.lines: list[str] = []
        self.count = 0
        self.loops: list[tuple[str, str]] = []
        """Where `continue` and `break` go."""

    def text(self, *, is_entry: bool) -> str:
        parameters = ", ".join(["ptr %record", *[f"i64 %given.{name}" for name in self.numbers]])
        linkage, attributes = ("", "") if is_entry else ("internal ", " alwaysinline")
        self._body(self.tree.body)
        self._emit("ret i64 0")
        variables = dict.fromkeys([*self.numbers, *_assigned(self.tree)])
        head = [f"%var.{name} = alloca i64" for name in variables]
        head += [f"store i64 %given.{name}, ptr %var.{name}" for name in self.numbers]
        lines = "\n".join(f"  {line}" for line in [*head, *self.lines])
        return f"define {linkage}i64 @{self.tree.name}({parameters}){attributes} {{\nentry:\n{lines}\n}}"

    # Lines.

    def _emit(self, line: str) -> None:
        self.lines.append(line)

    def _new(self, instruction: str) -> str:
        self.count += 1
        self._emit(f"%v{self.count} = {instruction}")
        return f"%v{self.count}"

    def _label(self, name: str) -> str:
        self.count += 1
        return f"{name}{self.count}"

    def _begin(self, label: str) -> None:
        """What follows is reached from the lines before, and by jumps."""
        self._emit(f"br label %{label}")
        self._emit(f"{label}:")

    def _jump(self, label: str) -> None:
        """Go elsewhere; what follows is not reached."""
        self._emit(f"br label %{label}")
        self._emit(f"{self._label('unreached')}:")

    # Statements.

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Expr(ast.Constant()):
                pass
            case ast.Expr(value):
                self._value(value)
            case ast.Assign([target], value):
                self._store(target, self._value(value))
            case ast.AugAssign(target, operator, value) if type(operator) in _ARITHMETIC:
                result = self._arithmetic(operator, self._value(target), self._value(value))
                self._store(target, result)
            case ast.If(test, body, orelse):
                self._if(test, body, orelse)
            case ast.While(test, body, []):
                self._while(test, body)
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), bounds), body, []):
                self._for(name, [self._value(bound) for bound in bounds], body)
            case ast.Continue():
                self._jump(self.loops[-1][0])
            case ast.Break():
                self._jump(self.loops[-1][1])
            case ast.Return(value):
                self._emit(f"ret i64 {0 if value is None else self._value(value)}")
                self._emit(f"{self._label('unreached')}:")
            case _:
                raise self._unknown(statement)

    def _store(self, target: ast.expr, value: str) -> None:
        place = f"%var.{target.id}" if isinstance(target, ast.Name) else self._element(target)
        self._emit(f"store i64 {value}, ptr {place}")

    def _if(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        yes, no, end = self._label("yes"), self._label("no"), self._label("end")
        self._emit(f"br i1 {self._test(test)}, label %{yes}, label %{no}")
        self._emit(f"{yes}:")
        self._body(body)
        self._emit(f"br label %{end}")
        self._emit(f"{no}:")
        self._body(orelse)
        self._begin(end)

    def _while(self, test: ast.expr, body: list[ast.stmt]) -> None:
        again, inside, end = self._label("again"), self._label("inside"), self._label("end")
        self._begin(again)
        self._emit(f"br i1 {self._test(test)}, label %{inside}, label %{end}")
        self._emit(f"{inside}:")
        self.loops.append((again, end))
        self._body(body)
        self.loops.pop()
        self._emit(f"br label %{again}")
        self._emit(f"{end}:")

    def _for(self, name: str, bounds: list[str], body: list[ast.stmt]) -> None:
        start, stop = bounds if len(bounds) == 2 else ("0", *bounds)
        before = self._label("before")
        again, inside = self._label("again"), self._label("inside")
        step, end = self._label("step"), self._label("end")
        self._begin(before)
        self._begin(again)
        counter = self._new(f"phi i64 [{start}, %{before}], [%next.{step}, %{step}]")
        more = self._new(f"icmp slt i64 {counter}, {stop}")
        self._emit(f"br i1 {more}, label %{inside}, label %{end}")
        self._emit(f"{inside}:")
        self._emit(f"store i64 {counter}, ptr %var.{name}")
        self.loops.append((step, end))
        self._body(body)
        self.loops.pop()
        self._begin(step)
        self._emit(f"%next.{step} = add i64 {counter}, 1")
        self._emit(f"br label %{again}")
        self._emit(f"{end}:")

    # Expressions.

    def _value(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(int(number)):
                return str(int(number))
            case ast.Name(name):
                return self._name(name)
            case ast.Subscript():
                return self._new(f"load i64, ptr {self._element(node)}")
            case ast.UnaryOp(ast.USub(), operand):
                return self._new(f"sub i64 0, {self._value(operand)}")
            case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
                return self._arithmetic(operator, self._value(left), self._value(right))
            case ast.IfExp(test, body, orelse):
                return self._choice(test, lambda: self._value(body), lambda: self._value(orelse))
            case ast.Call(ast.Name(name), arguments, []):
                return self._call(name, arguments)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(ast.Not()):
                return self._new(f"zext i1 {self._test(node)} to i64")
            case _:
                raise self._unknown(node)

    def _name(self, name: str) -> str:
        known = self.globals.get(name)
        return str(known) if isinstance(known, int) else self._new(f"load i64, ptr %var.{name}")

    def _arithmetic(self, operator: ast.operator, left: str, right: str) -> str:
        return self._new(f"{_ARITHMETIC[type(operator)]} i64 {left}, {right}")

    def _call(self, name: str, arguments: list[ast.expr]) -> str:
        if name == "len":
            return self._of_record(arguments[0], "i64", 1)
        if name in _CHOICES:
            left, right = [self._value(argument) for argument in arguments]
            is_left = self._new(f"icmp {_CHOICES[name]} i64 {left}, {right}")
            return self._new(f"select i1 {is_left}, i64 {left}, i64 {right}")
        callee = self.globals[name]
        assert isinstance(callee, FunctionType), name
        self.called[name] = callee
        given = ["ptr %record", *[f"i64 {self._value(argument)}" for argument in arguments[1:]]]
        return self._new(f"call i64 @{name}({', '.join(given)})")

    def _element(self, node: ast.expr) -> str:
        """The address of an element of an array."""
        match node:
            case ast.Subscript(array, index):
                pointer = self._of_record(array, "ptr", 0)
                return self._new(f"getelementptr i64, ptr {pointer}, i64 {self._value(index)}")
            case _:
                raise self._unknown(node)

    def _of_record(self, node: ast.expr, type: str, word: int) -> str:
        """The address (0) or the length (1) of an array: nothing changes either during a call."""
        match node:
            case ast.Attribute(ast.Name(record), name) if record == self.record:
                at = 2 * self.fields.index(name) + word
                place = self._new(f"getelementptr i64, ptr %record, i64 {at}")
                return self._new(f"load {type}, ptr {place}, !invariant.load !0")
            case _:
                raise self._unknown(node)

    def _test(self, node: ast.expr) -> str:
        match node:
            case ast.Compare(left, [operator], [right]):
                values = f"{self._value(left)}, {self._value(right)}"
                return self._new(f"icmp {_COMPARISONS[type(operator)]} i64 {values}")
            case ast.UnaryOp(ast.Not(), operand):
                return self._new(f"xor i1 {self._test(operand)}, true")
            case ast.BoolOp(operator, [first, *rest]):
                test = self._test(first)
                for other in rest:
                    test = self._and_or(isinstance(operator, ast.And), test, other)
                return test
            case _:
                return self._new(f"icmp ne i64 {self._value(node)}, 0")

    def _and_or(self, is_and: bool, test: str, other: ast.expr) -> str:
        """The other operand is looked at only where it matters."""
        before, more, end = self._label("before"), self._label("more"), self._label("end")
        self._begin(before)
        ways = (more, end) if is_and else (end, more)
        self._emit(f"br i1 {test}, label %{ways[0]}, label %{ways[1]}")
        self._emit(f"{more}:")
        second = self._test(other)
        after = self._label("after")
        self._begin(after)
        self._begin(end)
        known = "false" if is_and else "true"
        return self._new(f"phi i1 [{known}, %{before}], [{second}, %{after}]")

    def _choice(self, test: ast.expr, yes: Callable[[], str], no: Callable[[], str]) -> str:
        ways = self._label("yes"), self._label("no")
        ends = self._label("after"), self._label("after")
        end = self._label("end")
        self._emit(f"br i1 {self._test(test)}, label %{ways[0]}, label %{ways[1]}")
        values: list[str] = []
        for way, after, value in zip(ways, ends, (yes, no), strict=True):
            self._emit(f"{way}:")
            values.append(value())
            self._begin(after)
            self._emit(f"br label %{end}")
        self._emit(f"{end}:")
        return self._new(f"phi i64 [{values[0]}, %{ends[0]}], [{values[1]}, %{ends[1]}]")

    def _unknown(self, node: ast.AST) -> AssertionError:
        return AssertionError(f"{self.tree.name}: no machine code for {ast.unparse(node)}")


def _assigned(tree: ast.AST) -> Iterator[str]:
    """The names that a function assigns to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
