"""From functions about integers that are written as Python to LLVM text.

This is all that is accepted; the rest is refused with `OutsideSubset`, which quotes it:

- Parameters, positional and without defaults: an `int`, of 64 bits; a table of such, `Sequence[int]` to
  read or `MutableSequence[int]` to write; a record: a dataclass whose fields are all `array[int]`. The
  result is an integer, a truth value or nothing.
- Statements: an assignment of one value to a name or an element, `+=` and its like, `if`, `while`,
  `for NAME in range(END)` or `range(BEGIN, END)`, `break`, `continue`, `return`, a call, docstrings.
- Values: integers, `True`, `False`; variables; `table[i]`, `record.field[i]` and `len(record.field)`;
  `+ - * //` and the sign; `min(a, b)`, `max(a, b)`; `a if test else b`; a comparison, `not`, and what
  `and` and `or` make of these; a call of a function of the same module, which passes records and tables
  on by name. An integer of the module is read by its name, one of an `IntEnum` as `StepWord.A`.
- Tests: one comparison of two values; `not`, `and`, `or` of tests; a value that is not 0.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import IntEnum
from types import FunctionType

__all__ = ["OutsideSubset", "fields_of", "llvm_text", "sources_of"]


class OutsideSubset(TypeError):
    """A function says something that the subset does not have; the message names the line."""


def llvm_text(functions: Sequence[FunctionType], *, entry: bool) -> str:
    """Functions of one module, for others to call where they are an entry, and all that they call."""
    module = _Module(functions[0])
    names = [function.__name__ for function in functions]
    parts = ["!0 = !{}"] if entry else []
    for name in names:  # which grows by what they call
        function = module.function(name)
        assert function is not None, f"{name} is not of the module of the others"
        writer = _Writer(function, module)
        parts.append(writer.text(is_entry=entry and name == names[0]))
        names += [callee for callee in dict.fromkeys(writer.called) if callee not in names]
    return "\n\n".join(parts) + "\n"


def sources_of(function: FunctionType, record: type[object]) -> str:
    """All that the text of a function is made from: changes with it, and needs no parsing."""
    known = function.__globals__.items()
    numbers = {name: value for name, value in known if isinstance(value, int)}
    numbers |= {f"{n}.{m.name}": m.value for n, kind in known for m in _enumeration(kind)}
    own = inspect.getsource(sys.modules[__name__])
    return "\0".join([function.__name__, *fields_of(record), str(numbers), _source(function), own])


def _source(function: FunctionType) -> str:
    """The text of the module that a function is from."""
    return inspect.getsource(sys.modules[function.__module__])


def fields_of(record: type[object]) -> list[str]:
    """The names of a record's arrays, in the order in which machine code takes them."""
    return list(inspect.get_annotations(record))


# What a function is, before its body is read.

_INT, _TABLE, _OUTPUT = "int", "Sequence[int]", "MutableSequence[int]"
"""Types of parameters; any other is the name of a record."""


@dataclass(frozen=True, slots=True)
class _Function:
    """A function, and the type of each of its parameters as it is written."""

    tree: ast.FunctionDef
    types: Mapping[str, str]
    globals: Mapping[str, object]

    @property
    def parameters(self) -> str:
        """The parameters in LLVM's text."""
        return ", ".join(f"{_llvm_type(type)} %given.{name}" for name, type in self.types.items())

    def outside(self, node: ast.AST, why: str = "") -> OutsideSubset:
        """The error for a part of the function, to be raised."""
        line = getattr(node, "lineno", self.tree.lineno)
        return OutsideSubset(
            f"{self.tree.name}, line {line}: no machine code for {ast.unparse(node)}{why and f': {why}'}"
        )

    def constant(self, node: ast.expr) -> int | None:
        """The integer that the module, or an enumeration it knows, has under this name."""
        match node:
            case ast.Name(name):
                value = self.globals.get(name)
            case ast.Attribute(ast.Name(name), member):
                members = {each.name: each for each in _enumeration(self.globals.get(name))}
                value = members.get(member)
            case _:
                value = None
        return int(value) if isinstance(value, int) else None

    def record_fields(self, name: str) -> list[str]:
        """The arrays of the record that a parameter is; none where it is not a record."""
        record = self.globals.get(self.types.get(name, ""))
        return fields_of(record) if isinstance(record, type) else []


def _function(tree: ast.FunctionDef, known: Mapping[str, object]) -> _Function:
    """The function of a text with its types; raises `OutsideSubset` for parameters of other kinds."""
    types = {each.arg: ast.unparse(each.annotation or tree) for each in tree.args.args}
    function = _Function(tree, types, known)
    plain = ", ".join(f"{name}: {type}" for name, type in types.items())
    if tree.decorator_list or ast.unparse(tree.args) != plain:
        raise function.outside(tree.args, "parameters have a type each, and nothing else")
    for each in tree.args.args:
        type = types[each.arg]
        if type not in (_INT, _TABLE, _OUTPUT) and not is_dataclass(known.get(type)):
            raise function.outside(each, f"it is no {_INT}, {_TABLE}, {_OUTPUT} or dataclass")
    return function


def _llvm_type(type: str) -> str:
    return "i64" if type == _INT else "ptr"


def _enumeration(value: object) -> list[IntEnum]:
    """The members of an enumeration of integers; none of anything else."""
    return list(value) if isinstance(value, type) and issubclass(value, IntEnum) else []


class _Module:
    """The functions of one module, each looked at when it is first asked for."""

    def __init__(self, function: FunctionType) -> None:
        nodes = ast.parse(_source(function)).body
        self._trees = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
        self._globals = function.__globals__

    def function(self, name: str) -> _Function | None:
        """The function of this name, if the module has one; raises `OutsideSubset` for its parameters."""
        return _function(self._trees[name], self._globals) if name in self._trees else None


# The text.

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
_WORD = range(-(1 << 63), 1 << 63)


class _Writer:
    """Writes one function. A variable is a word on the stack, which LLVM makes a register."""

    def __init__(self, function: _Function, module: _Module) -> None:
        self.function = function
        self.module = module
        tables = [name for name, type in function.types.items() if type != _INT]
        numbers = [name for name, type in function.types.items() if type == _INT]
        names = dict.fromkeys([*numbers, *_assigned(function.tree)])
        self.variables = [name for name in names if name not in tables]
        self.called: list[str] = []
        self.lines: list[str] = []
        self.count = 0
        self.loops: list[tuple[str, str]] = []
        """Where `continue` and `break` go."""

    def text(self, *, is_entry: bool) -> str:
        function = self.function
        linkage, attributes = ("", "") if is_entry else ("internal ", " alwaysinline")
        self._body(function.tree.body)
        self._emit("ret i64 0")
        head = [f"%var.{name} = alloca i64" for name in self.variables]
        for name, type in function.types.items():
            head += [f"store i64 %given.{name}, ptr %var.{name}"] if type == _INT else []
        lines = "\n".join(f"  {line}" for line in [*head, *self.lines])
        signature = f"i64 @{function.tree.name}({function.parameters})"
        return f"define {linkage}{signature}{attributes} {{\nentry:\n{lines}\n}}"

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
            case ast.Expr(ast.Call() as call):
                self._value(call)
            case ast.Assign([target], value):
                result = self._value(value)
                self._emit(f"store i64 {result}, ptr {self._place(target)}")
            case ast.AugAssign(target, operator, value) if type(operator) in _ARITHMETIC:
                place = self._place(target)
                before = self._new(f"load i64, ptr {place}")
                result = self._arithmetic(operator, before, self._value(value))
                self._emit(f"store i64 {result}, ptr {place}")
            case ast.If(test, body, orelse):
                self._if(test, body, orelse)
            case ast.While(test, body, []):
                self._while(test, body)
            case ast.For(
                ast.Name() as target, ast.Call(ast.Name("range"), bounds, []), body, []
            ) if len(bounds) in (1, 2):
                self._for(self._place(target), [self._value(bound) for bound in bounds], body)
            case ast.Continue():
                self._jump(self.loops[-1][0])
            case ast.Break():
                self._jump(self.loops[-1][1])
            case ast.Return(value):
                self._emit(f"ret i64 {0 if value is None else self._value(value)}")
                self._emit(f"{self._label('unreached')}:")
            case _:
                raise self.function.outside(statement)

    def _place(self, target: ast.expr) -> str:
        """The address of what is assigned to."""
        match target:
            case ast.Name(name) if name in self.variables:
                return f"%var.{name}"
            case ast.Subscript(ast.Name(table)) if self.function.types.get(table) == _TABLE:
                raise self.function.outside(target, f"{table} is only read: it is a {_TABLE}")
            case ast.Subscript():
                return self._element(target)
            case _:
                raise self.function.outside(target)

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

    def _for(self, place: str, bounds: list[str], body: list[ast.stmt]) -> None:
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
        self._emit(f"store i64 {counter}, ptr {place}")
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
            case ast.Constant(int(number)) if number in _WORD:
                return str(int(number))
            case ast.Name(name) if name in self.variables:
                return self._new(f"load i64, ptr %var.{name}")
            case ast.Name() | ast.Attribute():
                number = self.function.constant(node)
                if number is None or number not in _WORD:
                    raise self.function.outside(
                        node, "it is not an integer of 64 bits, nor assigned to"
                    )
                return str(number)
            case ast.Subscript():
                return self._new(f"load i64, ptr {self._element(node)}")
            case ast.UnaryOp(ast.USub(), operand):
                return self._new(f"sub i64 0, {self._value(operand)}")
            case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
                return self._arithmetic(operator, self._value(left), self._value(right))
            case ast.IfExp(test, body, orelse):
                return self._choice(test, lambda: self._value(body), lambda: self._value(orelse))
            case ast.Call(ast.Name(name), arguments, []):
                return self._call(node, name, arguments)
            case _ if _is_test(node):
                return self._new(f"zext i1 {self._test(node)} to i64")
            case _:
                raise self.function.outside(node)

    def _arithmetic(self, operator: ast.operator, left: str, right: str) -> str:
        return self._new(f"{_ARITHMETIC[type(operator)]} i64 {left}, {right}")

    def _call(self, node: ast.expr, name: str, arguments: list[ast.expr]) -> str:
        match name, arguments:
            case "len", [ast.Attribute() as array]:
                return self._of_record(array, "i64", 1)
            case "min" | "max", [left, right]:
                values = self._value(left), self._value(right)
                is_left = self._new(f"icmp {_CHOICES[name]} i64 {values[0]}, {values[1]}")
                return self._new(f"select i1 {is_left}, i64 {values[0]}, i64 {values[1]}")
            case _:
                callee = self.module.function(name)
                if callee is None or len(callee.types) != len(arguments):
                    raise self.function.outside(node)
        types = callee.types.values()
        values = [self._argument(each, type) for each, type in zip(arguments, types, strict=True)]
        self.called.append(name)
        return self._new(f"call i64 @{name}({', '.join(values)})")

    def _argument(self, node: ast.expr, type: str) -> str:
        """What a call passes for a parameter of this type."""
        if type == _INT:
            return f"i64 {self._value(node)}"
        own = self.function.types.get(node.id, "") if isinstance(node, ast.Name) else ""
        if own != type and (own, type) != (_OUTPUT, _TABLE):
            raise self.function.outside(node, f"the call takes a {type}")
        return f"ptr %given.{ast.unparse(node)}"

    def _element(self, node: ast.Subscript) -> str:
        """The address of an element of a table, or of an array of a record."""
        match node.value:
            case ast.Name(name) if self.function.types.get(name) in (_TABLE, _OUTPUT):
                pointer = f"%given.{name}"
            case ast.Attribute() as array:
                pointer = self._of_record(array, "ptr", 0)
            case _:
                raise self.function.outside(node)
        return self._new(f"getelementptr i64, ptr {pointer}, i64 {self._value(node.slice)}")

    def _of_record(self, node: ast.Attribute, type: str, word: int) -> str:
        """The address (0) or the length (1) of an array: nothing changes either during a call."""
        match node:
            case ast.Attribute(ast.Name(record), name) if name in (
                fields := self.function.record_fields(record)
            ):
                at = 2 * fields.index(name) + word
                place = self._new(f"getelementptr i64, ptr %given.{record}, i64 {at}")
                return self._new(f"load {type}, ptr {place}, !invariant.load !0")
            case _:
                raise self.function.outside(node)

    def _test(self, node: ast.expr) -> str:
        match node:
            case ast.Compare(left, [operator], [right]) if type(operator) in _COMPARISONS:
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


def _is_test(node: ast.expr) -> bool:
    """Whether an expression is True or False whatever the numbers are."""
    match node:
        case ast.Compare(_, [operator], [_]):
            return type(operator) in _COMPARISONS
        case ast.BoolOp(_, values):
            return all(_is_test(value) for value in values)
        case _:
            return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _assigned(tree: ast.AST) -> Iterator[str]:
    """The names that a function assigns to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
