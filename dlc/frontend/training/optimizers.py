"""Optimizers of a `train` block: which one updates which weights, and the calls of their `update`.

The optimizers themselves (SGD, Adam, Lion ...) are modules of `dlc/frontend/library/optimizers.dlm`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlc.dialects import array, weight
from dlc.errors import Diagnostic, ModelError
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.definitions import ModuleDefinition
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import MISSING, Scope
from dlc.frontend.elaboration.tensors import as_tensor, convert, dtype_of, tensor_type
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Argument, Arguments, Callee, Datum, describe
from dlc.frontend.elaboration.weight import Origin, Weight
from dlc.frontend.modules.instances import Core, Instance
from dlc.frontend.modules.layers import instantiate
from dlc.frontend.sources.files import File
from dlc.frontend.training.parts import parts_of
from dlc.frontend.training.plateau import lower_rates
from dlc.frontend.training.ranges import check_optimizer
from dlc.frontend.weights.symbols import weight_value
from dlc.ir.core import Value
from dlc.ir.types import F32, F64, I32, TensorType
from dlc.runtime.artifact.manifest import NUMBER, RATE, TOTAL
from dlc.text.model import ast

__all__ = ["Group", "Optimizers", "groups_of", "updated"]


@dataclass(frozen=True, slots=True)
class Group:
    """An optimizer and the symbols of the weights that it updates; `written` is its entry."""

    optimizer: Core = field(repr=False)
    symbols: frozenset[str]
    written: ast.Setting = field(repr=False)


def groups_of(
    ev: Evaluator,
    root: Instance,
    library: File,
    entries: Sequence[ast.Setting],
    trained: Mapping[str, Weight],
    *,
    lowered: bool,
) -> tuple[Group, ...]:
    """The optimizers of a block with their weights; `trained` are the weights that are not frozen.

    `lowered` says that a plateau lowers their learning rates.
    `optimizer(PART) = ...` updates a part, `optimizer = ...` all the rest. What is wrong is recorded.
    """
    optimizers = Optimizers(ev, root, library, lowered=lowered)
    groups: list[Group] = []
    taken: dict[str, ast.Setting] = {}
    for entry in sorted(entries, key=lambda entry: not entry.parts):
        symbols = _symbols(ev, root, entry, trained, taken)
        taken.update(dict.fromkeys(symbols, entry))
        core = optimizers.checked(entry, [trained[symbol] for symbol in symbols])
        if core is not None:
            groups.append(Group(core, frozenset(symbols), entry))
    return tuple(groups)


def _symbols(
    ev: Evaluator,
    root: Instance,
    entry: ast.Setting,
    trained: Mapping[str, Weight],
    taken: Mapping[str, ast.Setting],
) -> list[str]:
    """The symbols that an entry updates: those of its parts, or all that no other entry does."""
    if not entry.parts:
        return [symbol for symbol in trained if symbol not in taken]
    found: dict[str, None] = {}
    for part in parts_of(ev, root, entry.parts):
        own = [symbol for symbol in part.symbols if symbol in trained]
        if not own:
            message = "this part has no weights that are trained"
            help = "freeze and optimizer(...) name different parts"
            ev.report(ev.at.fail("D0550", message, part.written.span, help=help))
        twice = next((symbol for symbol in own if symbol in taken), None)
        if twice is not None:
            message = f"two optimizers would update {twice}"
            help = "a weight belongs to one optimizer(...): name parts that do not overlap"
            ev.report(ev.at.fail("D0550", message, part.written.span, help=help))
        found.update(dict.fromkeys(own))
    return list(found)


class Optimizers:
    """Makes the optimizers that the root module, its file and the library know."""

    def __init__(self, ev: Evaluator, root: Instance, library: File, *, lowered: bool) -> None:
        self.ev, self.at, self.root, self.library = ev, ev.at, root, library
        self.lowered = lowered
        home = root.core.definition.home
        assert isinstance(home, File)
        known = list(home.known())
        own = {n: f for n in known if isinstance(f := self._known(n), ModuleDefinition)}
        # What a file calls as the library does is the file's: its function `cosine`, too.
        others = {n: library.find(n) for n in library.known() if n not in known}
        self.visible: dict[str, Datum] = others | own

    def _known(self, name: str) -> Datum:
        """What a name of the file means; none for what is wrong, which is told where it stands."""
        try:
            return self.root.find(name)
        except (ModelError, Poisoned):
            return None

    def checked(self, entry: ast.Setting, weights: Sequence[Weight]) -> Core | None:
        """The optimizer of an entry, tried on each type of these weights; None if it is wrong."""
        try:
            core = self._made(entry)
            for type in dict.fromkeys(w.type for w in weights):
                self._try_update(core, type, entry)
            return core
        except ModelError as error:
            self.ev.report(error)
        except Poisoned:
            pass
        return None

    def _made(self, entry: ast.Setting) -> Core:
        """The instance of the optimizer; its arguments may be schedules, called without the step."""
        call = entry.value
        optimizers = [name for name, each in self.visible.items() if _updates(each)]
        name = _called_name(call)
        definition = self.visible.get(name, MISSING)
        if not isinstance(call, ast.Call) or not isinstance(definition, ModuleDefinition):
            raise self.at.fail(
                "D0535",
                f"{name or 'this'} is not an optimizer",
                call.span,
                help=did_you_mean(name, optimizers) or f"there are {', '.join(optimizers)}",
            )
        core = instantiate(self.ev, definition, self._arguments(call)).core
        core.path = "optimizer"
        if not _updates(definition):
            raise self.at.fail(
                "D0535",
                f"{name} has no fn update(p, g, step)",
                call.span,
                help="an optimizer gives a weight's next value: fn update(p, g, step) -> f32[..]",
            )
        check_optimizer(self.ev, core, call.span, library=definition.home is self.library)
        if self.lowered:
            lower_rates(self.ev, core)
        return core

    def _arguments(self, call: ast.Call) -> Arguments:
        scope = Scope(self.root)
        functions = {n: f for n, f in self.visible.items() if not isinstance(f, ModuleDefinition)}
        scope.names.update(functions)
        positional: list[Argument] = []
        named: dict[str, Argument] = {}
        for item in call.arguments:
            argument = Argument(self.ev.layer(item.value, scope), item.value.span)
            if item.name is None:
                positional.append(argument)
            elif item.name in named:
                message = f"{item.name} is given twice in the call of {_called_name(call)}"
                raise self.at.fail("D0208", message, item.span, help="leave one of them out")
            else:
                named[item.name] = argument
        return Arguments(tuple(positional), named, self.root.source, call.span)

    def _try_update(self, core: Core, type: TensorType, entry: ast.Setting) -> None:
        """Elaborate the update of a weight of one type and throw it away."""
        at = self.at
        outer, at.training = at.training, True
        try:
            with at.scratch():
                at.stand(entry.value.span)
                at.total_steps = at.top.add_argument(TensorType(I32), TOTAL)
                at.rate = at.top.add_argument(TensorType(F32), RATE)
                inputs = ((type, "p"), (type, "g"), (TensorType(I32), NUMBER))
                p, g, step = [at.top.add_argument(t, n) for t, n in inputs]
                self._try_schedule(core, step)
                updated(self.ev, core, p, g, step)
        finally:
            at.training, at.total_steps, at.rate = outer, None, None
            at.source = self.root.source

    def _try_schedule(self, core: Core, step: Value) -> None:
        """Refuse a schedule of anything but one f32; an optimizer of the user's own may take others."""
        lr = core.arguments.get("lr")
        if not isinstance(lr, Callee) or core.definition.home is not self.library:
            return
        rate = self.ev.apply(lr, (step,))
        if as_tensor(self.at, rate, F32).type is not TensorType(F32):
            message = (
                f"a schedule gives the learning rate, one f32; this one gives {describe(rate)}"
            )
            raise self.at.fail("D0535", message, help="write fn schedule(step: i32) -> f32 = ...")


def _updates(datum: Datum) -> bool:
    """Whether something is a module with the function that makes it an optimizer."""
    return isinstance(datum, ModuleDefinition) and isinstance(datum.members.get("update"), ast.Fn)


def _called_name(node: ast.Expr) -> str:
    """The name of the function that is called; "" for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.function, ast.Name):
        return node.function.name
    return ""


# Updates ------------------------------------------------------------------------------------------


def updated(ev: Evaluator, core: Core, p: Value, g: Value, step: Value) -> Value:
    """The updated weight; the optimizer's states, then in `core.weights`, have its shape.

    An update with a fourth parameter, `stacked`, gets the number of leading axes that count blocks.
    Where its update takes f32, as those of the library do, weights of fewer bits are widened for it and
    the result is rounded. What rounding takes off is one more state, which the next update adds again: so a
    weight goes as it would in f32, however small its steps. Raises ModelError, at the place reached, if
    the result is of another type.
    """
    at, span, source = ev.at, ev.at.span, ev.at.source
    dtype, name = dtype_of(p), core.definition.name
    core.like = tensor_type(p)
    core.weights.clear()
    stacked = (_stacked(at, p),)
    rest: Value | None = None
    if _takes_f32(core) and dtype is not F32:
        if dtype is F64:
            raise at.fail(
                "D0535",
                f"{name} updates weights of f32, and there is one of f64",
                help="train in f32, or write an optimizer with fn update(p: f64[..], g: f64[..], step)",
            )
        rest = _rest(at, core)
        p, g = at(array.Add(convert(at, p, F32), rest)), convert(at, g, F32)
    member = core.definition.members["update"]
    assert isinstance(member, ast.Fn)
    given = (p, g, step, *stacked[: len(member.parameters) - 3])
    updated = ev.apply(Instance(core).member(member), given)
    at.source = source
    at.stand(span)
    value = as_tensor(at, updated)
    if value.type is not p.type:
        message = f"update of {name} makes {describe(updated)} of a weight {core.like.text}"
        help = f"give the next value of the weight: fn update(p, g, step) -> {core.like.text}"
        raise at.fail("D0535", message, help=help)
    if value is p:
        _warn(at, f"update of {name} gives each weight as it is, so nothing is trained")
    elif not g.uses:
        _warn(at, f"update of {name} does not use the gradient, so the loss trains nothing")
    rounded = convert(at, value, dtype)
    if rest is not None:
        at.place(weight.Set(rest, at(array.Subtract(value, convert(at, rounded, F32)))))
    return rounded


def _warn(at: Trace, message: str) -> None:
    help = (
        "compute the next value of the weight, the first parameter, from the gradient, the second"
    )
    place = at.source.place(at.span)
    at.problems.report([Diagnostic("D0535", message, place, help=help, severity="warning")])


def _rest(at: Trace, core: Core) -> Value:
    """The rounding error of a weight's last update: a state whose name no text can use."""
    assert core.like is not None
    wide = core.like.with_dtype(F32)
    place = at.source.place(at.span)
    item = Weight(core.below("$rest"), wide, Origin("zeros()"), False, 0, place)
    core.weights["$rest"] = item
    return weight_value(at, item, ())


def _stacked(at: Trace, p: Value) -> int:
    """How many leading axes of a weight count the blocks of stacks."""
    return at.stacked.get(p.op.symbol.name, 0) if isinstance(p.op, weight.Get) else 0


def _takes_f32(core: Core) -> bool:
    update = core.definition.members["update"]
    assert isinstance(update, ast.Fn)
    types = [parameter.type for parameter in update.parameters[:1]]
    return any(isinstance(type, ast.TensorType) and type.dtype == F32.name for type in types)
