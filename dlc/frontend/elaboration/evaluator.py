"""The heart of elaboration: which handler gives the value of a node, and which one makes a call.

Handlers are in the files named after what they handle and enter themselves in the tables here, so each
of them may use all the others through the evaluator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from dlc.errors import Diagnostic, Label, ModelError
from dlc.frontend.elaboration.problems import Poisoned, Settled, add_labels, at_place, with_help
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import mixture_help
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import (
    PLACEHOLDER,
    UNKNOWN,
    Argument,
    Arguments,
    Callee,
    Datum,
    Hole,
    Items,
    describe,
    is_number,
)
from dlc.ir.core import OPS, Value
from dlc.ir.dims import MAX_FACTOR, Dim, Size
from dlc.runtime.system.stack import is_deep, with_room
from dlc.text.model import ast
from dlc.text.source import Source, Span

__all__ = ["Evaluator", "Special", "attributes_of", "calls", "evaluates", "makes"]

MAX_DEPTH: Final = 250
"""Of definitions that are evaluated because another one needs them."""

N = TypeVar("N", bound=ast.Node)
C = TypeVar("C")

Handler: TypeAlias = "Callable[[Evaluator, N, Scope], Datum]"
Caller: TypeAlias = "Callable[[Evaluator, C, Arguments], Datum]"
Getter: TypeAlias = "Callable[[Evaluator, C, ast.Attribute], Datum]"

_HANDLERS: dict[type[ast.Node], Callable[..., Datum]] = {}
_MAKERS: dict[type[ast.Node], Callable[..., Datum]] = {}
_CALLERS: dict[type, Callable[..., Datum]] = {}
_GETTERS: dict[type, Callable[..., Datum]] = {}


def evaluates(kind: type[N]) -> Callable[[Handler[N]], Handler[N]]:
    """Enter the handler for one kind of expression."""

    def enter(handler: Handler[N]) -> Handler[N]:
        assert kind not in _HANDLERS, kind
        _HANDLERS[kind] = handler
        return handler

    return enter


def makes(kind: type[N]) -> Callable[[Handler[N]], Handler[N]]:
    """Enter the handler for one kind of expression where a layer is wanted, as after `use`."""

    def enter(handler: Handler[N]) -> Handler[N]:
        assert kind not in _MAKERS, kind
        _MAKERS[kind] = handler
        return handler

    return enter


def calls(kind: type[C]) -> Callable[[Caller[C]], Caller[C]]:
    """Enter what happens when a value of this class is called."""

    def enter(caller: Caller[C]) -> Caller[C]:
        assert kind not in _CALLERS, kind
        _CALLERS[kind] = caller
        return caller

    return enter


def attributes_of(kind: type[C]) -> Callable[[Getter[C]], Getter[C]]:
    """Enter how `value.name` is found for values of this class."""

    def enter(getter: Getter[C]) -> Getter[C]:
        assert kind not in _GETTERS, kind
        _GETTERS[kind] = getter
        return getter

    return enter


_OPERATION = re.compile(r"\b[a-z]+\.[a-z]\w*")


def _in_words(diagnostic: Diagnostic, written: str) -> Diagnostic:
    """The error, worded about the text instead of an operation."""
    message = _OPERATION.sub(
        lambda name: written if name[0] in OPS else name[0],
        diagnostic.message,
    )
    return replace(diagnostic, message=message)


class Evaluator:
    """Gives expressions their values and puts the operations they need into the trace `at`."""

    __slots__ = ("at", "depth")

    def __init__(self, at: Trace) -> None:
        self.at = at
        self.depth = 0
        """How many definitions have led here, each needed by the one before."""

    def eval(self, node: ast.Expr, scope: Scope) -> Datum:
        """The value of an expression.

        Expressions nest 64 deep, calls 100 and definitions 250, which is more than a thread has room for.
        """
        kind = type(node)
        handler = _HANDLERS[kind]
        if kind is not ast.Name and is_deep():  # what a name leads to asks for itself
            return with_room(lambda: handler(self, node, scope))
        return handler(self, node, scope)

    def layer(self, node: ast.Expr, scope: Scope) -> Datum:
        """The submodule that an expression makes; calls of modules make instances."""
        return _MAKERS.get(type(node), _HANDLERS[type(node)])(self, node, scope)

    def elsewhere(self, source: Source) -> _Elsewhere:
        """Evaluate something that is in another place, perhaps of another text, in a `with` block."""
        if self.depth >= MAX_DEPTH:
            raise self.at.stop(
                "D0215",
                f"more than {MAX_DEPTH} definitions lead from one to the next",
                help="define first what others use: the text is read from its beginning",
            )
        return _Elsewhere(self, source)

    def call(self, callee: Datum, arguments: Arguments) -> Datum:
        """The value of a call."""
        caller = _CALLERS.get(type(callee))
        if caller is None:
            raise self._not_callable(callee, arguments)
        return caller(self, callee, arguments)

    def apply(self, callee: Datum, values: tuple[Datum, ...]) -> Datum:
        """The value of a call that stands nowhere in the text, with the place reached."""
        span = self.at.span
        arguments = tuple([Argument(value, span) for value in values])
        return self.call(callee, Arguments(arguments, {}, self.at.source, span))

    def attribute(self, value: Datum, node: ast.Attribute) -> Datum:
        """The value of `value.name`."""
        getter = _GETTERS.get(type(value))
        if getter is None:
            if value is UNKNOWN:
                raise Poisoned
            raise self.at.fail("D0206", f"{describe(value)} has no `.{node.name}`", node.name_span)
        return getter(self, value, node)

    def _not_callable(self, callee: Datum, arguments: Arguments) -> Exception:
        if callee is UNKNOWN:
            return Poisoned()
        return self.at.fail(
            "D0209",
            f"{describe(callee)} cannot be called",
            arguments.span,
            help="a product is written a * b" if is_number(callee) else None,
        )

    # Values that must be known when compiling ------------------------------------------------------

    def size(self, node: ast.Expr, scope: Scope) -> Size:
        """The size that an expression is; raises D0327 for anything else."""
        return self.as_size(self.eval(node, scope), node.span)

    def as_size(self, value: Datum, span: Span) -> Size:
        """A value as a size."""
        if isinstance(value, int) and value > MAX_FACTOR:
            raise self.at.fail("D0329", f"the size {value} is beyond 2**62", span)
        if isinstance(value, Dim) or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, Hole):
            raise self.unknown_size(value, span)
        if isinstance(value, float) and value.is_integer():
            help = f"write // to divide sizes: {value:g} has become a float"
            raise self.at.fail("D0327", f"{value} is not a size", span, help=help)
        raise self.not_known(value, "a size", span)

    def integer(self, node: ast.Expr, scope: Scope) -> int:
        """The integer that an expression is."""
        value = self.eval(node, scope)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise self.not_known(value, "an integer", node.span)

    def unknown_size(self, hole: Hole, span: Span) -> ModelError:
        """The error for a `_` whose size no use has told yet."""
        return self.at.fail(
            "D0213",
            f"the size of {hole.what} is not known here: nothing has been put in yet",
            span,
            help="write the size in place of `_`",
        )

    def not_known(self, value: Datum, expected: str, span: Span) -> Exception:
        """The error for a value that is not what must be known when compiling."""
        if value is UNKNOWN:
            return Poisoned()
        if isinstance(value, Hole):
            return self.unknown_size(value, span)
        help = None
        if isinstance(value, Value):
            help = "a tensor has its value only when the model runs"
        elif value is PLACEHOLDER:
            help = "write the number"
        return self.at.fail(
            "D0327", f"expected {expected}, found {describe(value)}", span, help=help
        )

    # Errors ---------------------------------------------------------------------------------------

    def labelled(
        self, error: ModelError, operands: Sequence[tuple[Span, Datum]], written: str = ""
    ) -> ModelError:
        """The error at the place reached, with the types of the operands under them.

        An operation that it names becomes what is `written` in the text: a function or an operator.
        """
        if written:
            error = ModelError([_in_words(diagnostic, written) for diagnostic in error.diagnostics])
        source = self.at.source
        labels = [
            Label(source.place(span), self.type_label(value))
            for span, value in operands
            if isinstance(value, Value | Dim | Callee | Items)
        ]
        error = add_labels(at_place(error, self.at.here()), labels)
        return with_help(error, mixture_help([value for _, value in operands]))

    def type_label(self, value: Datum) -> str:
        """The label of a value: its type, and where a weight was declared."""
        text = describe(value)
        declared = self.at.declared.get(value) if isinstance(value, Value) else None
        return text if declared is None else f"{text}, declared at {declared}"

    def settled(self, error: ModelError) -> Settled:
        """The error with its place, and from where the function at hand was called."""
        if isinstance(error, Settled):
            return error
        place, calls = self.at.here(), self.at.calls()
        return Settled(
            [
                replace(d, place=d.place or place, labels=(*d.labels, *calls))
                for d in error.diagnostics
            ]
        )

    def report(self, error: ModelError) -> None:
        """Record the error and go on."""
        self.at.problems.report(self.settled(error).diagnostics)


class _Elsewhere:
    """What `Evaluator.elsewhere` gives: a class, as each weight and layer enters several."""

    __slots__ = ("_ev", "_outer", "_source", "_span")

    def __init__(self, ev: Evaluator, source: Source) -> None:
        self._ev = ev
        self._source = source

    def __enter__(self) -> None:
        at = self._ev.at
        self._ev.depth += 1
        self._outer, self._span, at.source = at.source, at.span, self._source

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        at = self._ev.at
        here = at.here() if isinstance(error, ModelError) else None
        self._ev.depth -= 1
        at.source = self._outer
        at.stand(self._span)
        if here is not None and isinstance(error, ModelError):
            raise at_place(error, here) from None


@dataclass(frozen=True, slots=True, eq=False)
class Special(Callee):
    """A function that looks at its arguments as they are written."""

    name: str
    run: Callable[[Evaluator, ast.Call, Scope], Datum]
    signature: str
    doc: str
    example: str
    result: str
    group: str

    @property
    def called(self) -> str:
        return self.name
