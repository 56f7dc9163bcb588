"""Name resolution: every function, called or not, is searched for unknown and unused names.

What is named and never used is a warning. Elaboration would find the same unknown names, but only in what
the entry points reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc.errors import Diagnostic, Label
from dlc.errors.suggest import did_you_mean
from dlc.frontend.builtins.registry import BUILTINS
from dlc.frontend.elaboration.other_languages import name_help
from dlc.frontend.elaboration.problems import MAX_PROBLEMS, Problems
from dlc.frontend.elaboration.types import other_dtype
from dlc.frontend.expressions.basic import unknown_name
from dlc.frontend.sources.bindings import Binding, Names, given, given_by_file
from dlc.frontend.sources.files import File
from dlc.frontend.sources.imports import library_names
from dlc.text.model import ast
from dlc.text.model.tree import children, walk
from dlc.text.source import Span

__all__ = ["resolve"]

UNEVALUATED: dict[str, str] = dict.fromkeys(("grad", "vjp", "value_and_grad"), "wrt")
"""Functions one of whose arguments is not evaluated."""


def resolve(file: File, problems: Problems) -> list[Binding]:
    """Report the unknown and the unused names of a text; gives all that it names, with their uses."""
    resolver = _Resolver(file)
    # A train block sees the members of its module, wherever it stands.
    for item in sorted(file.tree.items, key=lambda item: isinstance(item, ast.Train)):
        resolver.item(item)
    problems.report(resolver.found)
    return resolver.bindings


class _Resolver:
    def __init__(self, file: File) -> None:
        self.file = file
        self.source = file.source
        self.bindings: list[Binding] = []
        self.top = Names(self.bindings, file.tree.span)
        for name, span, node in given_by_file(file.tree):
            self.top.bind(name, span, node)
        self.members: dict[str, ast.Named] = {}
        self.updated: list[str] = []
        """The `inout` parameters of the function around."""
        self.found: list[Diagnostic] = []
        self.unknown = 0
        """The number of unknown names; after `MAX_PROBLEMS` the search ends."""

    # Declarations ---------------------------------------------------------------------------------

    def item(self, item: ast.Item) -> None:
        """One item of the file."""
        match item:
            case ast.Fn():
                self._fn(item, self.top)
            case ast.Module():
                self._module(item)
            case ast.Const() | ast.Let():
                self._type(item.type, self.top)
                self.expression(item.value, self.top)
            case ast.Dims(entries=entries):
                for entry in entries:
                    self._optional((entry.low, entry.high), self.top)
            case ast.Mesh(axes=axes):
                self._optional([axis.ranks for axis in axes], self.top)
            case ast.Train():
                self._train(item)
            case _:
                pass

    def _optional(self, nodes: Iterable[ast.Expr | None], names: Names) -> None:
        for node in nodes:
            if node is not None:
                self.expression(node, names)

    def _module(self, module: ast.Module) -> None:
        self._once([(p.name, p.name_span) for p in module.parameters], "parameter")
        self._refuse_inout(module.parameters)
        named = [m for m in module.members if isinstance(m, ast.Named)]
        self._once([(m.name, m.name_span) for m in named], "member")
        self.members = {member.name: member for member in named}
        names = self.top.inner(module.span)
        names.bind_named(module.parameters)
        for parameter in module.parameters:
            self._optional((parameter.default,), names)
            self._type(parameter.type, names)
        names = names.inner(module.span)
        names.bind_named(self.members.values())
        for member in module.members:
            self._member(member, names)
        self.members = {}

    def _member(self, member: ast.Member, names: Names) -> None:
        match member:
            case ast.Param() | ast.State():
                self._type(member.type, names)
                self._optional((member.init,), names)
            case ast.Const():
                self._type(member.type, names)
                self.expression(member.value, names)
            case ast.Use():
                self.expression(member.value, names)
            case ast.Fn():
                self._fn(member, names)
            case ast.Require():
                self._optional((member.condition, member.message), names)
            case ast.Names(entries=entries):
                for entry in entries:
                    for node in walk(entry.target):
                        if isinstance(node, ast.Name):
                            names.use(node.name, node.span)

    def _once(self, declarations: Iterable[tuple[str, Span]], what: str) -> None:
        """Report what is declared twice."""
        first: dict[str, Span] = {}
        for name, span in declarations:
            if name in first:
                place = self.source.place(span)
                label = Label(self.source.place(first[name]), f"{name} is declared here first")
                message = f"the {what} {name} is declared twice"
                self.found.append(
                    Diagnostic("D0202", message, place, (label,), "rename one of the two")
                )
            first.setdefault(name, span)

    def _fn(self, fn: ast.Fn, outer: Names) -> None:
        self._once([(p.name, p.name_span) for p in fn.parameters], "parameter")
        names = outer.inner(fn.span)
        names.open = not fn.exported
        self._parameters(fn.parameters, names)
        if not fn.exported:
            self._refuse_inout(fn.parameters)
        self._type(fn.result, names)
        self.updated = [p.name for p in fn.parameters if p.inout]
        self.expression(fn.body, names)
        self.updated = []
        if fn.vjp is not None:
            rule = names.inner(fn.vjp.span)
            rule.open = True
            self._parameters(fn.vjp.parameters, rule)
            self._refuse_inout(fn.vjp.parameters)
            self.expression(fn.vjp.body, rule)

    def _parameters(self, parameters: Iterable[ast.Parameter], names: Names) -> None:
        for parameter in parameters:
            self._type(parameter.type, names)
            self._optional((parameter.default,), names)
            names.bind(parameter.name, parameter.name_span, parameter)

    def _refuse_inout(self, parameters: Iterable[ast.Parameter]) -> None:
        """Report `inout` parameters of what is not an entry point."""
        for parameter in parameters:
            if parameter.inout:
                self.found.append(
                    Diagnostic(
                        "D0227",
                        f"{parameter.name} is inout, and only entry points change arrays",
                        self.source.place(parameter.span),
                        help="return the new value, and let an export fn set it",
                    )
                )

    def _train(self, train: ast.Train) -> None:
        """The functions of a `train` block see the members of its module."""
        definition = self.file.declared.get(train.name)
        outer = self.top.inner(train.span)
        if isinstance(definition, ast.Module):
            outer.share(definition.parameters, definition.members)
        seen = outer.inner(train.span)
        seen.bind_named([entry for entry in train.entries if isinstance(entry, ast.Loss)])
        seen.known_too("loss")
        seen.open = True
        for entry in train.entries:
            if isinstance(entry, ast.Loss):
                self._inputs(entry.parameters)
                self._parameters(entry.parameters, seen)
                self._type(entry.result, seen)
                self.expression(entry.body, seen)
        for entry in train.entries:
            if isinstance(entry, ast.Metric):
                names = (seen if entry.parameters is None else outer).inner(entry.span)
                names.known_too("loss")
                names.open = True
                self._inputs(entry.parameters or ())
                self._parameters(entry.parameters or (), names)
                self.expression(entry.body, names)

    def _inputs(self, parameters: Sequence[ast.Parameter]) -> None:
        """Check the parameters of a loss or a metric, each of which is what data gives."""
        self._once([(p.name, p.name_span) for p in parameters], "parameter")
        self._refuse_inout(parameters)
        for parameter in parameters:
            if parameter.default is not None:
                self.found.append(
                    Diagnostic(
                        "D0533",
                        f"{parameter.name} has a default, and training takes it from the data alone",
                        self.source.place(parameter.span),
                        help="leave the default out, or write a const",
                    )
                )

    # Types ----------------------------------------------------------------------------------------

    def _type(self, type: ast.Type | None, names: Names) -> None:
        match type:
            case ast.TensorType(dtype=dtype, dims=dims):
                span = Span(type.span.start, type.span.start + len(dtype))
                if not names.use(dtype, span):
                    problem = f"no dtype is called {dtype}"
                    place, help = self.source.place(span), other_dtype(dtype)
                    self.found.append(Diagnostic("D0201", problem, place, help=help))
                for dim in dims:
                    self._dim(dim, names)
            case ast.TupleType(fields=fields):
                for field in fields:
                    self._type(field.type, names)
            case _:
                pass

    def _dim(self, dim: ast.Expr, names: Names) -> None:
        """A size in a signature: a name that means nothing is a variable of the call."""
        if isinstance(dim, ast.Dots):
            return
        home = _function_level(names)
        for node in _names_in(dim):
            if not names.knows(node.name):
                if home is not None:
                    home.bind(node.name, node.span, node)
                else:
                    self._undeclared(node)
                    return
        self.expression(dim, names)

    def _undeclared(self, node: ast.Name) -> None:
        """A size of an entry point or a weight that nothing declares."""
        if self._is_enough():
            return
        problem = unknown_name(self.source, node.name, node.span, [*self.top.known()])
        help = problem.help or f"declare the size: dim {node.name} = 1..1024"
        self.found.append(Diagnostic(problem.code, problem.message, problem.place, (), help))

    # Expressions ----------------------------------------------------------------------------------

    def expression(self, node: ast.Expr, names: Names) -> None:
        """Resolve the names in an expression."""
        match node:
            case ast.Name(name=name):
                if not names.use(name, node.span):
                    self._unknown(node, names)
            case ast.Attribute():
                self._attribute(node, names)
            case ast.Call():
                self._call(node, names)
            case ast.Pipe(first=first, stages=stages):
                self.expression(first, names)
                for stage in stages:
                    if isinstance(stage.function, ast.Name):
                        self._hidden(stage.function)
                    self.expression(stage.function, names)
            case ast.Block(statements=statements):
                self._block(statements, names.inner(node.span))
            case ast.Scan():
                self._scan(node, names)
            case ast.While():
                for carry in node.carries:
                    self.expression(carry.value, names)
                inner = names.inner(node.span)
                inner.bind_named(node.carries)
                self.expression(node.condition, inner)
                self._optional((node.limit,), names)
                self._block(node.body.statements, inner)
            case ast.Comprehension(pattern=pattern, source=source, body=body):
                self.expression(source, names)
                inner = names.inner(node.span)
                inner.bind_all(given(pattern))
                self.expression(body, inner)
            case _:
                self._children(node, names)

    def _is_enough(self) -> bool:
        """Whether more errors would not be told; each takes a search among all names."""
        self.unknown += 1
        return self.unknown > MAX_PROBLEMS

    def _attribute(self, node: ast.Attribute, names: Names) -> None:
        """`a.b.c`: other languages put the name of a library before what needs none here."""
        first = node.value
        while isinstance(first, ast.Attribute):
            first = first.value
        if not isinstance(first, ast.Name):
            self.expression(first, names)
        elif not names.use(first.name, first.span):
            self._unknown(first, names, node.name)

    def _unknown(self, node: ast.Name, names: Names, member: str | None = None) -> None:
        """A name that means nothing; `member` is what is read of it."""
        if self._is_enough():
            return
        found = unknown_name(self.source, node.name, node.span, names.known())
        help = found.help
        if node.name in library_names():
            help = f"import it: import nn ({node.name})"
        elif member is not None and names.knows(member):
            help = f"write {member} alone, without {node.name}"
        elif member in library_names():
            help = f"import it: import nn ({member}), and write {member}"
        elif member is not None:
            help = name_help(member) or help
        self.found.append(Diagnostic(found.code, found.message, found.place, (), help))

    def _children(self, node: ast.Node, names: Names) -> None:
        for child in children(node):
            if isinstance(child, Expression):
                self.expression(child, names)
            elif not isinstance(child, ast.Device | ast.NewAxis):
                self._children(child, names)

    def _call(self, node: ast.Call, names: Names) -> None:
        function = node.function
        skipped = None
        if isinstance(function, ast.Name):
            skipped = UNEVALUATED.get(function.name)
            self._hidden(function)
        self.expression(function, names)
        for argument in node.arguments:
            if argument.name is None or argument.name != skipped:
                self.expression(argument.value, names)

    def _hidden(self, function: ast.Name) -> None:
        """Refuse a value with the name of a builtin which is called in its module.

        A submodule or a function of that name is what is called.
        """
        member = self.members.get(function.name)
        if member is None or isinstance(member, ast.Use | ast.Fn):
            return
        if function.name not in BUILTINS:
            return
        place = self.source.place(member.name_span)
        label = Label(self.source.place(function.span), f"{function.name} is called here")
        self.found.append(
            Diagnostic(
                "D0212",
                f"the member {function.name} hides the builtin {function.name}",
                place,
                (label,),
                "give the member another name",
            )
        )

    def _scan(self, node: ast.Scan, names: Names) -> None:
        self.expression(node.source, names)
        self._optional((node.along,), names)
        for carry in node.carries:
            self.expression(carry.value, names)
        inner = names.inner(node.span)
        inner.bind_named(node.carries)
        inner.bind_all(given(node.pattern))
        self._block(node.body.statements, inner)

    # Statements -----------------------------------------------------------------------------------

    def _block(self, statements: Iterable[ast.Statement], names: Names) -> None:
        lets: list[tuple[ast.NamePattern, ast.Let, Binding]] = []
        for statement in statements:
            if isinstance(statement, ast.Let):
                self._type(statement.type, names)
                self.expression(statement.value, names)
                for pattern in given(statement.pattern):
                    binding = names.bind(pattern.name, pattern.span, statement)
                    if pattern is statement.pattern:
                        lets.append((pattern, statement, binding))
            else:
                if isinstance(statement, ast.Set):
                    self._set(statement)
                    names.use_of((ast.State,), statement)
                elif isinstance(statement, ast.Next):
                    names.use_of((ast.Carry,), statement)
                self._children(statement, names)
        for pattern, statement, binding in lets:
            if not binding.uses:
                self._unused(pattern, statement.value)

    def _set(self, statement: ast.Set) -> None:
        """Check that `set` names an `inout` parameter or a state of the surrounding module."""
        member = self.members.get(statement.name)
        if isinstance(member, ast.State) or statement.name in self.updated:
            return
        states = [name for name, node in self.members.items() if isinstance(node, ast.State)]
        states += self.updated
        what = "a param, which training changes" if isinstance(member, ast.Param) else "no state"
        self.found.append(
            Diagnostic(
                "D0223",
                f"{statement.name} is {what}",
                self.source.place(statement.name_span),
                help=did_you_mean(statement.name, states)
                or f"declare it: state {statement.name}: f32",
            )
        )

    def _unused(self, pattern: ast.NamePattern, value: ast.Expr) -> None:
        name = pattern.name
        if name.startswith("_"):
            return
        function = _called(value)
        what = f"the {function}'s result" if function else name
        self.found.append(
            Diagnostic(
                "D0217",
                f"{what} is never used",
                self.source.place(pattern.span),
                help=f"use {name}, or leave it out",
                severity="warning",
            )
        )


Expression = (
    ast.Name, ast.Number, ast.String, ast.Bool, ast.Placeholder, ast.Unary, ast.Binary, ast.Compare,
    ast.Pipe, ast.Call, ast.Index, ast.Attribute, ast.List, ast.Comprehension, ast.Tuple, ast.Range,
    ast.If, ast.Scan, ast.While, ast.Block, ast.On, ast.Dots, ast.IndexList,
)  # fmt: skip


def _function_level(names: Names) -> Names | None:
    """The names of the function around, if its signature binds sizes."""
    level: Names | None = names
    while level is not None and not level.open:
        level = level.outer
    return level


def _names_in(node: ast.Expr) -> list[ast.Name]:
    """The names that are in a size, functions that are called excepted."""
    match node:
        case ast.Name():
            return [node]
        case ast.Call(arguments=arguments):
            return [name for argument in arguments for name in _names_in(argument.value)]
        case _:
            inner = [child for child in children(node) if not isinstance(child, ast.Term)]
            inner += [child.operand for child in children(node) if isinstance(child, ast.Term)]
            return [
                name
                for child in inner
                if isinstance(child, Expression)
                for name in _names_in(child)
            ]


def _called(node: ast.Expr) -> str | None:
    """The name of the function whose result an expression is."""
    match node:
        case ast.Call(function=ast.Name(name=name)):
            return name
        case ast.Pipe(stages=stages):
            last = stages[-1].function
            return last.name if isinstance(last, ast.Name) else _called(last)
        case _:
            return None
