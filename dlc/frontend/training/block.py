"""The `train` block: what it says, checked.

The loss is elaborated once with `training` true and thrown away, every metric with it false, the
optimizer once for each type of weight. `train_step` makes the functions that train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from dlc.dialects import array, weight
from dlc.errors import ModelError
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.definitions import ModuleDefinition
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.keys import SEED_NAME
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import MISSING, Scope
from dlc.frontend.elaboration.tensors import as_tensor, convert, dtype_of, tensor_type
from dlc.frontend.elaboration.trace import Frame, Trace
from dlc.frontend.elaboration.types import declared_type
from dlc.frontend.elaboration.values import UNKNOWN, Argument, Arguments, Callee, Datum, describe
from dlc.frontend.elaboration.weight import Origin, Weight
from dlc.frontend.modules.instances import Core, Instance
from dlc.frontend.modules.layers import instantiate
from dlc.frontend.sources.files import File
from dlc.frontend.training.data import data_source
from dlc.frontend.training.entries import checkpoint, whole
from dlc.frontend.training.state_updates import lift_sets
from dlc.frontend.weights.symbols import weight_value
from dlc.ir.core import Value
from dlc.ir.dims import symbol
from dlc.ir.types import F32, F64, I32, TensorType
from dlc.runtime.artifact.manifest import NUMBER, TOTAL, DataSource
from dlc.text.model import ast

__all__ = [
    "Training",
    "check_training",
    "declared_input",
    "one_number",
    "scope_of",
    "updated",
]

ENTRIES: Final = ("data", "loss", "metric", "optimizer", "batch", "epochs", "seed", "checkpoint")


@dataclass(frozen=True, slots=True)
class Training:
    """A checked `train` block. `clip_norm` and the like are among the settings of the optimizer.

    `loss`, `measured` (the metrics) and `optimizer` are what the functions that train are made of.
    """

    module: str
    inputs: tuple[tuple[str, TensorType], ...]
    metrics: tuple[str, ...]
    data: DataSource
    batch: int
    epochs: int
    seed: int
    checkpoint: tuple[str, int] | None
    loss: ast.Loss = field(repr=False)
    measured: tuple[ast.Metric, ...] = field(repr=False)
    optimizer: Core = field(repr=False)
    root: Instance = field(repr=False)


def check_training(
    ev: Evaluator,
    node: ast.Train,
    root: Instance,
    library: File,
    weights: Sequence[Weight],
) -> Training | None:
    """The block if nothing in it is wrong; what is wrong is recorded."""
    before = len(ev.at.problems.errors)
    checked = _Check(ev, node, root, library).run(weights)
    return checked if len(ev.at.problems.errors) == before else None


class _Check:
    def __init__(self, ev: Evaluator, node: ast.Train, root: Instance, library: File) -> None:
        self.ev, self.at = ev, ev.at
        self.node = node
        self.root = root
        self.library = library
        self.settings = {e.name: e for e in node.entries if isinstance(e, ast.Setting)}
        self.losses = [e for e in node.entries if isinstance(e, ast.Loss)]
        self.metrics = [e for e in node.entries if isinstance(e, ast.Metric)]
        self.at.source = root.source
        self.scope = Scope(root)

    def run(self, weights: Sequence[Weight]) -> Training | None:
        """Check every entry; an error in one leaves the others."""
        self._entries()
        inputs = self._inputs()
        self._names(weights)
        data = self._data(inputs)
        optimizer = self._optimizer(weights)
        batch, epochs = self._whole("batch", 32, 1), self._whole("epochs", 1, 1)
        seed, checkpoint = self._whole("seed", 0, 0), self._checkpoint()
        if inputs is None or data is None or optimizer is None:
            return None
        return Training(
            self.node.name,
            tuple(inputs.items()),
            tuple([metric.name for metric in self.metrics]),
            data,
            batch,
            epochs,
            seed,
            checkpoint,
            self.losses[0],
            tuple(self.metrics),
            optimizer,
            self.root,
        )

    def _report(self, code: str, message: str, span: ast.Span, help: str | None = None) -> None:
        self.ev.report(self.at.fail(code, message, span, help=help))

    def _entries(self) -> None:
        """Every entry is known and stands once; those that must be there are."""
        for entry in self.settings.values():
            if entry.name not in ENTRIES:
                help = did_you_mean(entry.name, ENTRIES) or f"there are {', '.join(ENTRIES)}"
                self._report("D0530", f"train has no {entry.name}", entry.name_span, help)
        names = [(e.name, e.name_span) for e in self.node.entries]
        seen: set[str] = set()
        for name, span in names:
            if name in seen:
                self._report("D0530", f"{name} stands twice in this train block", span)
            seen.add(name)
        for needed, how in (
            ("loss", "loss(x: f32[B, 4], y: i32[B]) = ..."),
            ("data", 'data = npz("data.npz", x="x", y="y")'),
            ("optimizer", "optimizer = adam(lr=1e-3)"),
        ):
            if needed not in seen:
                self._report(
                    "D0531",
                    f"train {self.node.name} says no {needed}",
                    self.node.name_span,
                    f"write {how}",
                )

    def _names(self, weights: Sequence[Weight]) -> None:
        """No input of the step has the name of another: batch, weights, and what each step is told."""
        own = {weight.symbol: weight.place for weight in weights}
        for name in (NUMBER, TOTAL, SEED_NAME):
            if name in own:
                message = (
                    f"a training step has an input {name} of its own, and a weight is called so"
                )
                help = (
                    f"call the weight otherwise, or put it into a module of its own: layer.{name}"
                )
                self.ev.report(self.at.fail("D0537", message, place=own[name], help=help))
        functions = [loss.parameters for loss in self.losses]
        functions += [metric.parameters or () for metric in self.metrics]
        for parameter in dict.fromkeys(chain(*functions)):
            name = parameter.name
            if name in own or name in (NUMBER, TOTAL):
                whose = "a weight is" if name in own else "an input of every training step is"
                message = f"{name} is an input, and {whose} called so"
                self._report("D0537", message, parameter.span, "call the input otherwise")

    # Functions ------------------------------------------------------------------------------------

    def _inputs(self) -> dict[str, TensorType] | None:
        """The types of what the loss and the metrics take, once these are checked."""
        if not self.losses:
            return None
        (loss, *_) = self.losses
        inputs = self._function(loss.name, loss.parameters, loss.body, loss, training=True)
        for metric in self.metrics:
            seen = loss.parameters if metric.parameters is None else metric.parameters
            metric_inputs = self._function(metric.name, seen, metric.body, None, training=False)
            if inputs is not None:
                inputs = None if metric_inputs is None else {**metric_inputs, **inputs}
        return inputs

    def _function(
        self,
        name: str,
        parameters: Sequence[ast.Parameter],
        body: ast.Expr,
        loss: ast.Loss | None,
        *,
        training: bool,
    ) -> dict[str, TensorType] | None:
        """Elaborate a function of the block and throw it away; gives the types of its parameters."""
        at, ev = self.at, self.ev
        inputs: dict[str, TensorType] = {}
        outer_training, at.training = at.training, training
        frame, at.frame = at.frame, Frame(name, "", self.root.source)
        try:
            with at.scratch():
                scope = scope_of(self.root)
                for parameter in parameters:
                    inputs[parameter.name] = declared_input(ev, parameter, scope)
                if loss is None:
                    scope.names["loss"] = at.top.add_argument(TensorType(F32), "loss")
                one_number(ev, name, ev.eval(body, scope), body, floats=loss is not None)
                lift_sets(at.block)
                return inputs
        except ModelError as error:
            ev.report(error)
        except Poisoned:
            pass
        finally:
            at.training, at.frame = outer_training, frame
            at.source = self.root.source
        return None

    # Settings -------------------------------------------------------------------------------------

    def _data(self, inputs: Mapping[str, TensorType] | None) -> DataSource | None:
        entry = self.settings.get("data")
        return None if entry is None else data_source(self.ev, self.root, entry, inputs or ())

    def _whole(self, name: str, default: int, least: int) -> int:
        entry = self.settings.get(name)
        return default if entry is None else whole(self.ev, self.root, entry, least)

    def _checkpoint(self) -> tuple[str, int] | None:
        entry = self.settings.get("checkpoint")
        return None if entry is None else checkpoint(self.ev, self.root, entry)

    # Optimizers -----------------------------------------------------------------------------------

    def _optimizer(self, weights: Sequence[Weight]) -> Core | None:
        entry = self.settings.get("optimizer")
        if entry is None:
            return None
        try:
            core = self._made(entry)
            for type in dict.fromkeys(w.type for w in weights if w.trained):
                self._update(core, type, entry)
            return core
        except ModelError as error:
            self.ev.report(error)
        except Poisoned:
            pass
        return None

    def _made(self, entry: ast.Setting) -> Core:
        """The instance of the optimizer; its arguments may be schedules, called without the step."""
        call = entry.value
        own = {
            n: f for n in self._modules() if isinstance(f := self.root.find(n), ModuleDefinition)
        }
        visible = {n: self.library.find(n) for n in self.library.known()} | own
        optimizers = [n for n, f in visible.items() if isinstance(f, ModuleDefinition)]
        name = _called_name(call)
        definition = visible.get(name, MISSING)
        if not isinstance(call, ast.Call) or not isinstance(definition, ModuleDefinition):
            raise self.at.fail(
                "D0535",
                f"{name or 'this'} is not an optimizer",
                call.span,
                help=did_you_mean(name, optimizers) or f"there are {', '.join(optimizers)}",
            )
        scope = Scope(self.root)
        scope.names.update(
            {n: f for n, f in visible.items() if not isinstance(f, ModuleDefinition)}
        )
        positional: list[Argument] = []
        named: dict[str, Argument] = {}
        for item in call.arguments:
            argument = Argument(self.ev.layer(item.value, scope), item.value.span)
            if item.name is None:
                positional.append(argument)
            else:
                named[item.name] = argument
        given = Arguments(tuple(positional), named, self.root.source, call.span)
        core = instantiate(self.ev, definition, given).core
        core.path = "optimizer"
        if not isinstance(definition.members.get("update"), ast.Fn):
            raise self.at.fail(
                "D0535",
                f"{name} has no fn update(p, g, step)",
                call.span,
                help="an optimizer gives a weight's next value: fn update(p, g, step) -> f32[..]",
            )
        return core

    def _modules(self) -> list[str]:
        home = self.root.core.definition.home
        assert isinstance(home, File)
        return list(home.known())

    def _update(self, core: Core, type: TensorType, entry: ast.Setting) -> None:
        """Elaborate the update of a weight of one type and throw it away."""
        at = self.at
        outer, at.training = at.training, True
        try:
            with at.scratch():
                at.stand(entry.value.span)
                at.total_steps = at.top.add_argument(TensorType(I32), TOTAL)
                inputs = ((type, "p"), (type, "g"), (TensorType(I32), NUMBER))
                updated(self.ev, core, *[at.top.add_argument(t, n) for t, n in inputs])
        finally:
            at.training, at.total_steps = outer, None
            at.source = self.root.source


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
        raise at.fail("D0535", message)
    rounded = convert(at, value, dtype)
    if rest is not None:
        at.place(weight.Set(rest, at(array.Subtract(value, convert(at, rounded, F32)))))
    return rounded


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


def scope_of(root: Instance) -> Scope:
    """A scope in which the sizes that the file declares are symbols."""
    scope = Scope(root)
    home = root.core.definition.home
    assert isinstance(home, File)
    scope.names.update({n: symbol(n) for n in home.dims() if root.is_dim(n)})
    return scope


def declared_input(ev: Evaluator, parameter: ast.Parameter, scope: Scope) -> TensorType:
    """The type of a parameter of the loss or a metric, which becomes an argument of the top block."""
    if not isinstance(parameter.type, ast.TensorType):
        raise ev.at.fail(
            "D0334",
            f"{parameter.name} has no type",
            parameter.span,
            help=f"write its type: {parameter.name}: f32[B, 10]",
        )
    type = declared_type(ev, parameter.type, scope)
    scope.names[parameter.name] = ev.at.top.add_argument(type, parameter.name)
    return type


def one_number(ev: Evaluator, name: str, value: Datum, body: ast.Expr, *, floats: bool) -> Value:
    """The value of the loss or a metric, which is one number."""
    at = ev.at
    at.stand(body.span)
    if value is UNKNOWN:
        raise Poisoned
    number = as_tensor(at, value) if not isinstance(value, Callee) else None
    if number is None or tensor_type(number).rank or (floats and not dtype_of(number).is_float):
        raise at.fail(
            "D0532",
            f"{name} is one number, found {describe(value)}",
            body.span,
            help="take the mean: mean(...)",
        )
    return number


def _called_name(node: ast.Expr) -> str:
    """The name of the function that is called; "" for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.function, ast.Name):
        return node.function.name
    return ""
