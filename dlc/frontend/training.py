"""The `train` block: what it says, checked.

The loss is elaborated once with `training` true and thrown away, every metric with it false, the
optimizer once for each type of weight. `train_step` makes the functions that train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dlc.errors import ModelError
from dlc.frontend.definitions import ModuleDefinition
from dlc.frontend.evaluator import Evaluator
from dlc.frontend.files import File
from dlc.frontend.initialisers import beside
from dlc.frontend.instances import Core, Instance
from dlc.frontend.layers import instantiate
from dlc.frontend.problems import Poisoned
from dlc.frontend.scope import MISSING, Scope
from dlc.frontend.state_updates import lift_sets
from dlc.frontend.tensors import as_tensor, dtype_of, tensor_type
from dlc.frontend.trace import Frame
from dlc.frontend.types import declared_type
from dlc.frontend.values import UNKNOWN, Argument, Arguments, Callee, Datum, describe
from dlc.frontend.weights import Weight
from dlc.ir.core import Value
from dlc.ir.dims import symbol
from dlc.ir.types import F32, I32, TensorType
from dlc.text import ast
from dlc.text.suggest import suggest

__all__ = [
    "Data",
    "Training",
    "check_training",
    "declared_input",
    "one_number",
    "scope_of",
    "updated",
]

Setting = bool | int | float | str | None

ENTRIES: Final = ("data", "loss", "metric", "optimizer", "batch", "epochs", "seed", "checkpoint")
SOURCES: Final = ("npz", "csv", "text", "pictures")
OPTIONS: Final = ("test", "shuffle", "limit", "header", "separator", "size")
"""Arguments of a data source that are no names of what it gives."""
GIVEN: Final = {"pictures": ("image", "label")}
"""What a source gives that does not say it."""


@dataclass(frozen=True, slots=True)
class Data:
    """Where the examples come from: for each input of the loss how the source calls it."""

    kind: str
    path: str
    fields: Mapping[str, str]
    options: Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Training:
    """A checked `train` block. `clip_norm` and the like are among the settings of the optimizer.

    `loss`, `measured` (the metrics) and `optimizer` are what the functions that train are made of.
    """

    module: str
    inputs: tuple[tuple[str, TensorType], ...]
    metrics: tuple[str, ...]
    data: Data
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
        loss = self._loss()
        data = self._data(loss)
        optimizer = self._optimizer(weights)
        numbers = {
            name: self._whole(name, default)
            for name, default in (("batch", 32), ("epochs", 1), ("seed", 0))
        }
        checkpoint = self._checkpoint()
        if loss is None or data is None or optimizer is None:
            return None
        return Training(
            self.node.name,
            tuple(loss.items()),
            tuple([metric.name for metric in self.metrics]),
            data,
            numbers["batch"],
            numbers["epochs"],
            numbers["seed"],
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
                near = suggest(entry.name, ENTRIES)
                help = f"did you mean {near}?" if near else f"there are {', '.join(ENTRIES)}"
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

    # Functions ------------------------------------------------------------------------------------

    def _loss(self) -> dict[str, TensorType] | None:
        """The types of what the loss takes, once it and the metrics are checked."""
        if not self.losses:
            return None
        (loss, *_) = self.losses
        inputs = self._function(loss.name, loss.parameters, loss.body, loss, training=True)
        for metric in self.metrics:
            seen = loss.parameters if metric.parameters is None else metric.parameters
            self._function(metric.name, seen, metric.body, None, training=False)
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

    def _called(self, entry: ast.Setting, known: Sequence[str]) -> tuple[str, ast.Call] | None:
        """The name of the function that an entry calls, one of those known."""
        call = entry.value
        if isinstance(call, ast.Call) and isinstance(call.function, ast.Name):
            if call.function.name in known:
                return call.function.name, call
            near = suggest(call.function.name, known)
        else:
            near = None
        self._report(
            "D0530",
            f"{entry.name} is none of {', '.join(known)}",
            call.span,
            f"did you mean {near}?" if near else None,
        )
        return None

    def _data(self, inputs: Mapping[str, TensorType] | None) -> Data | None:
        entry = self.settings.get("data")
        found = None if entry is None else self._called(entry, SOURCES)
        if found is None:
            return None
        kind, call = found
        path: str | None = None
        fields: dict[str, str] = {}
        options: dict[str, Setting] = {}
        for item in call.arguments:
            if item.name is None and path is None and isinstance(item.value, ast.String):
                path = beside(self.scope, item.value.value)
            elif item.name in OPTIONS:
                options[item.name] = self._constant(item.value)
            elif item.name is not None:
                fields[item.name] = self._field(kind, item.value)
            else:
                self._report("D0533", f"{kind} takes one path", item.span)
        if path is None:
            self._report("D0533", f"{kind} needs the path of its data", call.span)
            return None
        given = [*fields, *GIVEN.get(kind, ())]
        for name in inputs or ():
            if name not in given:
                near = suggest(name, given)
                self._report(
                    "D0533",
                    f"the loss takes {name}, which the data does not give",
                    call.span,
                    f"did you mean {near}?" if near else f'name it: {kind}(..., {name}="...")',
                )
        return Data(kind, path, fields, options)

    def _field(self, kind: str, node: ast.Expr) -> str:
        """How a source calls a value: a name, `columns(0, 30)`, `window(65)`; kept as text."""
        if isinstance(node, ast.String):
            return node.value
        source = self.root.source
        text = source.text[node.span.start : node.span.end]
        shapes = {"csv": "columns", "text": "window"}
        wanted = shapes.get(kind)
        fits = (
            wanted is not None
            and isinstance(node, ast.Call)
            and isinstance(node.function, ast.Name)
            and node.function.name == wanted
            and all(isinstance(item.value, ast.Number) for item in node.arguments)
        )
        if not fits:
            forms = "a name in quotes" + (f", or {wanted}(...)" if wanted else "")
            self._report("D0533", f"this part of the data is no {forms}", node.span)
        return text

    def _constant(self, node: ast.Expr) -> Setting:
        try:
            value = self.ev.eval(node, Scope(self.root))
        except ModelError as error:
            self.ev.report(error)
            return None
        if not isinstance(value, bool | int | float | str):
            self._report(
                "D0534", f"expected a number or a text, found {describe(value)}", node.span
            )
            return None
        return value

    def _whole(self, name: str, default: int) -> int:
        entry = self.settings.get(name)
        if entry is None:
            return default
        value = self._constant(entry.value)
        least = 0 if name == "seed" else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self._report(
                "D0534",
                f"{name} is a whole number from {least} on, found {value}",
                entry.value.span,
            )
            return default
        return value

    def _checkpoint(self) -> tuple[str, int] | None:
        entry = self.settings.get("checkpoint")
        found = None if entry is None else self._called(entry, ("file",))
        if found is None:
            return None
        _, call = found
        named = {item.name: item.value for item in call.arguments if item.name is not None}
        positional = [item.value for item in call.arguments if item.name is None]
        every = self._constant(named.pop("every")) if "every" in named else 1
        wrong = named or len(positional) != 1 or not isinstance(positional[0], ast.String)
        if wrong or not isinstance(every, int) or every < 1:
            self._report(
                "D0534",
                "a checkpoint is a file, and perhaps how many epochs lie between two",
                call.span,
                'write checkpoint = file("model.safetensors", every=1)',
            )
            return None
        (path,) = positional
        assert isinstance(path, ast.String)
        return beside(self.scope, path.value), every

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
        known = {n: self.library.find(n) for n in self.library.known()} | own
        optimizers = [n for n, f in known.items() if isinstance(f, ModuleDefinition)]
        name = _called_name(call)
        definition = known.get(name, MISSING)
        if not isinstance(call, ast.Call) or not isinstance(definition, ModuleDefinition):
            near = suggest(name, optimizers)
            raise self.at.fail(
                "D0535",
                f"{name or 'this'} is no optimizer",
                call.span,
                help=f"did you mean {near}?" if near else f"there are {', '.join(optimizers)}",
            )
        scope = Scope(self.root)
        scope.names.update({n: f for n, f in known.items() if not isinstance(f, ModuleDefinition)})
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
                inputs = ((type, "p"), (type, "g"), (TensorType(I32), "step"))
                updated(self.ev, core, *[at.top.add_argument(t, n) for t, n in inputs])
        finally:
            at.training = outer
            at.source = self.root.source


def updated(ev: Evaluator, core: Core, p: Value, g: Value, step: Value) -> Value:
    """What an optimizer makes of a weight; its states, in `core.weights` then, have the weight's shape.

    Raises ModelError, at the place reached, if that is of another type.
    """
    at, span, source = ev.at, ev.at.span, ev.at.source
    core.like = tensor_type(p)
    core.weights.clear()
    found = ev.apply(Instance(core).member(core.definition.members["update"]), (p, g, step))
    at.source = source
    at.stand(span)
    value = as_tensor(at, found)
    if value.type is not p.type:
        raise at.fail(
            "D0535",
            f"update of {core.definition.name} makes {describe(found)} of a weight {core.like.text}",
        )
    return value


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
    """What the loss or a metric gives, which is one number."""
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
