"""Instances of modules: their members, made when they are first needed, and calls of them.

What all views of an instance share is its `Core`. A view of stacked blocks also says which of them it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from dlc.errors import Diagnostic, Label, ModelError, SourceLocation
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.calls import Function, call_function
from dlc.frontend.elaboration.definitions import MemberNode, ModuleDefinition
from dlc.frontend.elaboration.evaluator import Evaluator, attributes_of, calls
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.requirements import require
from dlc.frontend.elaboration.scope import MISSING, Home, Scope
from dlc.frontend.elaboration.types import Expectation, Matcher
from dlc.frontend.elaboration.values import (
    UNKNOWN,
    Arguments,
    Callee,
    Datum,
    Hole,
    Items,
    Partial,
    Record,
    Stored,
    Thing,
    describe,
)
from dlc.frontend.elaboration.weight import Weight
from dlc.frontend.modules.chains import Chain
from dlc.frontend.sources.files import EVALUATING, is_fixed
from dlc.frontend.weights.declared import Start, declared_weight
from dlc.frontend.weights.initialisers import beside
from dlc.frontend.weights.stored_tensors import stored_constant, stored_value
from dlc.frontend.weights.symbols import Pick, weight_value
from dlc.ir.core import Value
from dlc.ir.types import DType, TensorType
from dlc.text.model import ast
from dlc.text.source import Span, in_library

__all__ = ["Core", "Instance", "Stack", "adopt", "cores_in", "with_picks"]

MAX_NESTING: Final = 100
"""The deepest nesting of instances of modules."""


@dataclass(slots=True, eq=False)
class Core:
    """One instance: its parameters, its place in the model, and what is made of its members."""

    ev: Evaluator
    definition: ModuleDefinition
    arguments: dict[str, Datum]
    making: Arguments
    """The arguments of the call which made it."""
    explicit: tuple[str, ...]
    """The parameters that the call which made it sets."""
    path: str | None = None
    parent: Core | None = None
    """The instance that it is a member of."""
    stack: tuple[int, ...] = ()
    device: str | None = None
    """The device of its functions, if it was placed."""
    start: Start | None = None
    """The file that a `from` names, here or further out."""
    values: dict[str, Datum] = field(default_factory=dict[str, Datum])
    weights: dict[str, Weight] = field(default_factory=dict[str, Weight])
    declaring: set[str] = field(default_factory=set[str])
    """The weights whose declarations are being read."""
    checked: bool = False
    like: TensorType | None = None
    """The type of the weight that an optimizer updates."""
    trains: bool = True
    """Whether `training` may be true in its functions."""

    @property
    def made_at(self) -> SourceLocation:
        """The place of the call which made it."""
        return self.making.source.place(self.making.span)

    def below(self, name: str) -> str:
        """The path of a member."""
        return f"{self.path}.{name}" if self.path else name

    def holes(self) -> list[Hole]:
        """The sizes that are not known yet."""
        return [h for h in self.arguments.values() if isinstance(h, Hole) and h.size is None]

    def check(self) -> None:
        """Refuse the instance if a `require` of its module does not hold; not before all is known."""
        if self.checked or self.holes():
            return
        self.checked = True
        scope = Scope(Instance(self))
        with self.ev.elsewhere(scope.home.source):
            for requirement in self.definition.requirements:
                try:
                    require(self.ev, requirement, scope)
                except ModelError as error:
                    label = Label(self.made_at, f"{self.definition.name} is made here")
                    raise ModelError(
                        [_with_label(diagnostic, label) for diagnostic in error.diagnostics]
                    ) from None

    def weight(self, node: ast.Param | ast.State) -> Weight:
        """The weight that a `param` or `state` declares."""
        weight = self.weights.get(node.name)
        if weight is not None:
            return weight
        if node.name in self.declaring:
            raise self._circle(node)
        self.declaring.add(node.name)
        try:
            weight = self.weights[node.name] = self._weight(node)
        except ModelError as error:
            raise self._told_outside(error) from None
        finally:
            self.declaring.remove(node.name)
        return weight

    def _weight(self, node: ast.Param | ast.State) -> Weight:
        self.check()
        scope = Scope(Instance(self))
        with self.ev.elsewhere(scope.home.source):
            symbol = self.below(node.name)
            return declared_weight(
                self.ev, node, scope, symbol, stack=self.stack, like=self.like, start=self.start
            )

    def _told_outside(self, error: ModelError) -> ModelError:
        """The error of a module of the library, reported where the user's text makes this instance."""
        return ModelError([self._outside(diagnostic) for diagnostic in error.diagnostics])

    def _outside(self, diagnostic: Diagnostic) -> Diagnostic:
        place, core = diagnostic.place, self
        while core.parent is not None and in_library(core.made_at):
            core = core.parent
        if place is None or not in_library(place) or in_library(core.made_at):
            return diagnostic
        label = Label(place, "found here")
        return replace(diagnostic, place=core.made_at, labels=(*diagnostic.labels, label))

    def submodule(self, node: ast.Use) -> Datum:
        """The instance of a `use`, made once."""
        return self._once(node, lambda scope: self._used(node, scope))

    def _used(self, node: ast.Use, scope: Scope) -> Datum:
        around = list(self._around())
        if len(around) > MAX_NESTING:
            raise self._endless(node, around)
        value = self.ev.layer(node.value, scope)
        if not isinstance(value, Thing | Items):
            raise self.ev.at.fail(
                "D0218",
                f"`use` takes a module or a function, found {describe(value)}",
                node.value.span,
                help="a number is named with const",
            )
        path, places = self.below(node.name), self.ev.at.places
        adopt(value, path, self)
        device = places.pop(path, None if node.device is None else node.device.called)
        if device is not None:
            value = _put_on(value, device)
        for core in cores_in(value):
            core.device = places.pop(core.path or "", core.device)
        return value

    def _around(self) -> Iterator[Core]:
        """This instance, the one that it is a member of, and so on up to the root."""
        core: Core | None = self
        while core is not None:
            yield core
            core = core.parent

    def _endless(self, node: ast.Use, around: list[Core]) -> Exception:
        name = self.definition.name
        if any(core.definition is self.definition for core in around[1:]):
            what, help = f"{name} contains itself without end", "let a parameter end it: "
            help += f"if n > 0 then {name}(n - 1) else identity"
        else:
            what, help = "instances of modules nest too deeply", "repeat a block: L * Block(...)"
        return self.ev.at.stop(
            "D0215",
            f"{what}: modules nest at most {MAX_NESTING} deep",
            place=self.definition.home.source.place(node.span),
            help=help,
        )

    def constant(self, node: ast.Const) -> Datum:
        """The value of a `const`, found once."""
        return self._once(node, lambda scope: self._constant(node, scope))

    def _constant(self, node: ast.Const, scope: Scope) -> Datum:
        stored = stored_constant(self.ev, self.below(node.name), node, scope)
        if stored is not None:
            return stored
        value = self.ev.eval(node.value, scope)
        if node.type is not None:
            matcher = Matcher(self.ev, scope)
            why = Expectation("found", scope.home.source, node.value.span)
            value = matcher.value(node.type, value, why)
            matcher.finish()
        if not is_fixed(value):
            raise self.ev.at.fail(
                "D0327",
                f"the constant {node.name} is not known when compiling",
                node.value.span,
                help="compute it in a function",
            )
        return value

    def _once(self, node: ast.Use | ast.Const, make: Callable[[Scope], Datum]) -> Datum:
        """The value of a member; after an error, which is recorded, it is unknown."""
        cached = self.values.get(node.name, MISSING)
        if cached is EVALUATING:
            raise self._circle(node)
        if cached is not MISSING:
            return cached
        self.check()
        scope = Scope(Instance(self))
        self.values[node.name] = EVALUATING
        value: Datum = UNKNOWN
        try:
            with self.ev.elsewhere(scope.home.source):
                value = make(scope)
        except ModelError as error:
            self.ev.report(self._told_outside(error))
        except Poisoned:
            pass
        finally:
            self.values[node.name] = value
        return value

    def _circle(self, node: ast.Param | ast.State | ast.Use | ast.Const) -> ModelError:
        return self.ev.at.fail(
            "D0214",
            f"{node.name} is defined by itself",
            place=self.definition.home.source.place(node.span),
            help="break the circle: one of the members must not depend on the others",
        )

    def force(self) -> None:
        """Make all members, whether a function uses them or not."""
        for node in self.definition.members.values():
            try:
                match node:
                    case ast.Param() | ast.State():
                        self.weight(node)
                    case ast.Use():
                        self.submodule(node)
                    case ast.Const():
                        self.constant(node)
                    case ast.Fn():
                        pass
            except ModelError as error:
                self.ev.report(error)
            except Poisoned:
                pass

    @property
    def written(self) -> str:
        """The call that made it, with its arguments as values."""
        names = [name for name in self.definition.parameter_names if name in self.explicit]
        texts = [f"{name}={_short(self.arguments[name])}" for name in names]
        return f"{self.definition.name}({', '.join(texts)})"

    def parameters(self) -> int:
        """The number of its own trained parameters."""
        own = [item.type.size for item in self.weights.values() if item.trained]
        return sum([size for size in own if isinstance(size, int)])


def _with_label(diagnostic: Diagnostic, label: Label) -> Diagnostic:
    return Diagnostic(
        diagnostic.code, diagnostic.message, diagnostic.place, (label,), diagnostic.help
    )


def _short(value: Datum) -> str:
    match value:
        case Instance(core=core):
            return core.definition.name
        case Function():
            return value.declaration.name
        case Callee():
            return value.called
        case DType():
            return value.name
        case Items(items) | Record(items):
            return f"[{', '.join([_short(item) for item in items])}]"
        case str():
            return f'"{value}"'
        case bool():
            return "true" if value else "false"
        case Hole():
            return str(value.size or "_")
        case _:
            return str(value)


class Instance(Callee, Home):
    """A view of an instance; `picks` say which of stacked blocks it is, one for each leading axis."""

    def __init__(self, core: Core, picks: tuple[Pick, ...] = ()) -> None:
        self.core = core
        self.picks = picks
        self.source = core.definition.home.source

    @property
    def called(self) -> str:
        return f"{self.core.path or 'the root'} of {self.core.definition.called}"

    @property
    def trains(self) -> bool:
        return self.core.trains

    @property
    def parameter_names(self) -> tuple[str, ...]:
        call = self.core.definition.members.get("call")
        return Function(call, self).parameter_names if isinstance(call, ast.Fn) else ()

    def find(self, name: str) -> Datum:
        value = self.core.arguments.get(name, MISSING)
        if value is not MISSING:
            return value
        definition = self.core.definition
        if name in definition.unread:
            return UNKNOWN
        node = definition.members.get(name)
        return definition.home.find(name) if node is None else self.member(node)

    def declared_at(self, name: str) -> Span | None:
        node = self.core.definition.members.get(name)
        if isinstance(node, ast.Use | ast.Fn):
            return node.name_span
        return self.core.definition.home.declared_at(name) if node is None else None

    def member(self, node: MemberNode) -> Datum:
        """The value of a member."""
        core = self.core
        match node:
            case ast.Param() | ast.State():
                return weight_value(core.ev.at, core.weight(node), self.picks)
            case ast.Use():
                return with_picks(core.submodule(node), self.picks)
            case ast.Const():
                return core.constant(node)
            case ast.Fn():
                own = core.path or ""
                inner = own if node.name == "call" or node.exported else core.below(node.name)
                return Function(node, self, inner)

    def is_dim(self, name: str) -> bool:
        is_member = name in self.core.arguments or name in self.core.definition.members
        return not is_member and self.core.definition.home.is_dim(name)

    def known(self) -> Iterator[str]:
        yield from self.core.arguments
        yield from self.core.definition.members
        yield from self.core.definition.home.known()

    def weights(self) -> Iterator[tuple[str, TensorType]]:
        for node in self.core.definition.members.values():
            if isinstance(node, ast.Param) and not self.core.holes():
                type = self.core.weight(node).type
                yield node.name, type.with_shape(type.shape[len(self.picks) :])


@calls(Instance)
def _call_instance(ev: Evaluator, instance: Instance, arguments: Arguments) -> Datum:
    call = instance.core.definition.members.get("call")
    if not isinstance(call, ast.Fn):
        raise ev.at.fail(
            "D0209",
            f"{instance.called} cannot be called",
            place=arguments.source.place(arguments.span),
            help="give the module a fn call, or call one of its functions",
        )
    core = instance.core
    function = Function(call, instance, core.path or "", core.device)
    return call_function(ev, function, arguments)


@attributes_of(Instance)
def _member_of(ev: Evaluator, instance: Instance, node: ast.Attribute) -> Datum:
    core = instance.core
    if node.name in core.definition.unread:
        raise Poisoned
    member = core.definition.members.get(node.name)
    value = instance.member(member) if member else core.arguments.get(node.name, MISSING)
    if value is MISSING:
        names = [*core.definition.members, *core.arguments]
        raise ev.at.fail(
            "D0206",
            f"{instance.called} has no member {node.name}",
            node.name_span,
            help=did_you_mean(node.name, names) or f"it has {', '.join(names)}",
        )
    if value is UNKNOWN:
        raise Poisoned
    if isinstance(value, Stored):
        return stored_value(ev.at, value)
    if isinstance(value, Function) and value.home is instance:
        return replace(value, device=core.device)
    return value.size if isinstance(value, Hole) and value.size is not None else value


# Stacks -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Stack(Thing):
    """`L * Block(...)`: L instances with stacked weights; `template` is any one of them."""

    count: int
    template: Datum
    picks: tuple[Pick, ...] = ()

    @property
    def called(self) -> str:
        return f"a stack of {self.count}"

    def block(self, pick: Pick) -> Datum:
        """One of the blocks."""
        return with_picks(self.template, (*self.picks, pick))


@attributes_of(Stack)
def _of_every_block(ev: Evaluator, stack: Stack, node: ast.Attribute) -> Datum:
    """A member of all blocks: the stack of a submodule, or a weight with the axes of the stack in front."""
    value = ev.attribute(stack.template, node)
    if isinstance(value, Value):
        return ev.attribute(with_picks(stack.template, stack.picks), node)
    if isinstance(value, Function):
        raise ev.at.fail(
            "D0206",
            f"{stack.called} has no function {node.name}: each of its blocks has",
            node.name_span,
            help="call that of a block: scan block in blocks with h = x { next h = block(h) }",
        )
    return Stack(stack.count, value, stack.picks) if list(cores_in(value)) else value


def with_picks(value: Datum, picks: tuple[Pick, ...]) -> Datum:
    """The view of a submodule in a view of the module that it is part of."""
    if not picks:
        return value
    match value:
        case Instance():
            return Instance(value.core, picks)
        case Chain(layers):
            return replace(value, layers=tuple([with_picks(layer, picks) for layer in layers]))
        case Stack(count, template):
            return Stack(count, template, picks)
        case Items(items):
            return Items(tuple([with_picks(item, picks) for item in items]))
        case Partial(function, arguments):
            inner = with_picks(function, picks)
            return Partial(inner, arguments) if isinstance(inner, Callee) else value
        case _:
            return value


def _put_on(value: Datum, device: str) -> Datum:
    """A submodule that runs on a device; the parts of it that were placed themselves stay there."""
    match value:
        case Instance(core=core):
            core.device = device
            return value
        case Stack(template=template):
            return replace(value, template=_put_on(template, device))
        case Items(items):
            return Items(tuple([_put_on(item, device) for item in items]))
        case Chain():
            return replace(value, device=device)
        case Callee():
            return Chain((value,), device)
        case _:
            return value


def adopt(value: Datum, path: str, parent: Core | None, stack: tuple[int, ...] = ()) -> None:
    """Give instances their place in the model, unless they have one: an instance used twice shares."""
    outer = stack if stack or parent is None else parent.stack
    for core, own_path, own_stack in _unplaced(value, path, outer):
        core.path, core.parent, core.stack = own_path, parent, own_stack
        source = core.definition.declaration.weights
        if source is not None:
            core.start = Start(beside(Scope(core.definition.home), source.value), own_path)
        elif parent is not None:
            core.start = parent.start


def _unplaced(
    value: Datum, path: str, stack: tuple[int, ...]
) -> Iterator[tuple[Core, str, tuple[int, ...]]]:
    """The instances in a submodule that have no place yet, with the first that they are found at.

    A chain may be in many others, which are in many others: each is looked into once.
    """
    pending, seen = [(value, path, stack)], set[int]()
    while pending:
        value, path, stack = pending.pop()
        match value:
            case Instance(core=core):
                if core.path is None:
                    yield core, path, stack
            case Chain(layers) | Items(layers) if id(value) not in seen:
                seen.add(id(value))
                numbered = [(layer, f"{path}.{k}", stack) for k, layer in enumerate(layers)]
                pending += reversed(numbered)
            case Stack(count, template):
                pending.append((template, path, (*stack, count)))
            case _:
                pass


def cores_in(value: Datum) -> Iterator[Core]:
    """The instances that a submodule is made of; those of an empty stack do not exist.

    What a chain that is in others is made of is told once.
    """
    pending, seen = [value], set[int]()
    while pending:
        value = pending.pop()
        match value:
            case Instance(core=core):
                yield core
            case Chain(layers) | Items(layers) if id(value) not in seen:
                seen.add(id(value))
                pending += reversed(layers)
            case Stack(count, template) if count:
                pending.append(template)
            case _:
                pass
