"""The `train` block: what it says, checked.

The loss is elaborated once with `training` true and thrown away, every metric with it false, each
optimizer once for each type of weight. `step` makes the functions that train.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from dlc.errors import ModelError, SourceLocation
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.calls import check_result
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.keys import SEED_NAME
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.trace import Frame
from dlc.frontend.elaboration.weight import Weight
from dlc.frontend.modules.instances import Instance
from dlc.frontend.sources.files import File
from dlc.frontend.training.data import data_source
from dlc.frontend.training.entries import average, checkpoint, watched, whole
from dlc.frontend.training.functions import (
    declared_input,
    loss_values,
    one_number,
    part_names,
    scope_of,
)
from dlc.frontend.training.optimizers import Group, groups_of
from dlc.frontend.training.parts import Part, in_eval_mode, parts_of
from dlc.frontend.training.plateau import plateau
from dlc.frontend.training.scaling import LossScale, loss_scale, precision
from dlc.frontend.training.state_updates import lift_sets
from dlc.ir.types import F32, DType, TensorType
from dlc.runtime.artifact.manifest import NUMBER, TOTAL, DataSource, Plateau, Watched
from dlc.runtime.data.source import LATER
from dlc.runtime.training.epoch_sums import WEIGHT
from dlc.runtime.training.history import TEST
from dlc.text.model import ast

__all__ = [
    "Training",
    "check_training",
]

ENTRIES: Final = (
    "data", "loss", "metric", "optimizer", "freeze", "eval", "batch", "accumulate", "average", "epochs",
    "seed", "checkpoint", "stop", "keep", "precision", "loss_scale",
    "rate",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Training:
    """A checked `train` block. `clip_norm` and the like are among the settings of an optimizer.

    `block` is its name, or "". `frozen` are the symbols of the weights that it leaves as they are, `eval`
    the parts whose functions see `training` false. `loss`, `measured` (the metrics) and `groups` (the
    optimizers) are what the functions that train are made of.
    """

    module: str
    block: str
    inputs: tuple[tuple[str, TensorType], ...]
    metrics: tuple[str, ...]
    data: DataSource
    batch: int
    epochs: int
    seed: int
    checkpoint: tuple[str, int] | None
    parts: tuple[str, ...]
    """The names of further numbers that the loss gives, which are recorded."""
    accumulate: int
    """The number of microbatches in a step."""
    average: float | None
    """The decay of the averages of weights, if there are any."""
    stop: Watched | None
    keep: Watched | None
    rate: Plateau | None
    """What lowers the learning rates."""
    precision: DType | None
    """In what the products of the loss are computed, unless that is f32."""
    scale: LossScale | None
    loss: ast.Loss = field(repr=False)
    measured: tuple[ast.Metric, ...] = field(repr=False)
    groups: tuple[Group, ...] = field(repr=False)
    frozen: frozenset[str] = field(repr=False)
    eval: tuple[Part, ...] = field(repr=False)
    root: Instance = field(repr=False)
    places: Mapping[str, SourceLocation] = field(repr=False)
    """Where the text says what, by the names of the entries; "" for the block itself."""


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
        settings = [e for e in node.entries if isinstance(e, ast.Setting)]
        self.settings = {e.name: e for e in settings if not e.parts}
        self.optimizers = [e for e in settings if e.name == "optimizer"]
        self.losses = [e for e in node.entries if isinstance(e, ast.Loss)]
        self.metrics = [e for e in node.entries if isinstance(e, ast.Metric)]
        self.at.source = root.source
        self.scope = Scope(root)
        self.parts: tuple[str, ...] = ()

    def run(self, weights: Sequence[Weight]) -> Training | None:
        """Check every entry; an error in one leaves the others."""
        self._entries()
        self.eval = self._eval()
        inputs = self._inputs()
        self._names(weights)
        data = self._data(inputs)
        frozen = self._frozen(weights)
        groups = self._groups(weights, frozen)
        batch, epochs = self._whole("batch", 32, 1), self._whole("epochs", 1, 1)
        seed, checkpoint = self._whole("seed", 0, 0), self._checkpoint()
        if checkpoint and data and checkpoint[0] in (data.path, data.test_path):
            span = self.settings["checkpoint"].value.span
            message = f"the checkpoint {checkpoint[0]} would replace the examples"
            self._report("D0534", message, span, "give it another name")
        if inputs is None or data is None or not groups:
            return None
        return Training(
            self.node.name,
            self.node.block,
            tuple(inputs.items()),
            tuple([metric.name for metric in self.metrics]),
            data,
            batch,
            epochs,
            seed,
            checkpoint,
            self.parts,
            self._accumulate(inputs),
            self._average(),
            self._watched("stop", "early", data),
            self._watched("keep", "best", data),
            self._rate(data),
            *self._precision(),
            self.losses[0],
            tuple(self.metrics),
            groups,
            frozen,
            self.eval,
            self.root,
            self._places(),
        )

    def _places(self) -> dict[str, SourceLocation]:
        place = self.root.source.place
        return {
            "": place(self.node.block_span),
            **{name: place(entry.value.span) for name, entry in self.settings.items()},
        }

    def _report(self, code: str, message: str, span: ast.Span, help: str | None = None) -> None:
        self.ev.report(self.at.fail(code, message, span, help=help))

    def _entries(self) -> None:
        """Every entry is known and given once; those that must be there are."""
        for entry in self.settings.values():
            if entry.name not in ENTRIES:
                help = did_you_mean(entry.name, ENTRIES) or f"there are {', '.join(ENTRIES)}"
                self._report("D0530", f"train has no {entry.name}", entry.name_span, help)
        grouped = {id(e) for e in self.optimizers if e.parts}
        names = [(e.name, e.name_span) for e in self.node.entries if id(e) not in grouped]
        seen: set[str] = set()
        for name, span in names:
            if name in seen:
                message = f"{name} is given twice in this train block"
                self._report("D0530", message, span, "keep one of them")
            seen.add(name)
        seen.update([entry.name for entry in self.optimizers])
        for needed, how in (
            ("loss", "loss(x: f32[B, 4], y: i32[B]) = ..."),
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
            if name in own or name in (NUMBER, TOTAL, SEED_NAME, "loss"):
                whose = "a weight is" if name in own else "something in every training step is"
                message = f"{name} is an input, and {whose} called so"
                self._report("D0537", message, parameter.span, "call the input otherwise")
        inputs = {parameter.name for parameter in chain(*functions)}
        for metric in self.metrics:
            if metric.name in (SEED_NAME, *own, *inputs):
                whose = "a weight" if metric.name in own else "an input"
                message = f"{metric.name} is a metric, and {whose} is called so"
                self._report("D0537", message, metric.name_span, "call the metric otherwise")
        self._part_names({"loss", "epoch", NUMBER, TOTAL, SEED_NAME, *own, *inputs})

    def _part_names(self, taken: Collection[str]) -> None:
        """Each part of the loss is reported, and given beside the weights, under a name of its own."""
        for number, name in enumerate(self.parts):
            if name in self.parts[:number]:
                message = f"two parts of the loss are called {name}"
            elif name in taken or name.startswith(TEST):
                message = (
                    f"{name} is a part of the loss, and something else in training is called so"
                )
            else:
                continue
            self._report("D0537", message, self.losses[0].body.span, "call the part otherwise")

    # Functions ------------------------------------------------------------------------------------

    def _inputs(self) -> dict[str, TensorType] | None:
        """The types of what the loss and the metrics take, once these are checked."""
        if not self.losses:
            return None
        (loss, *_) = self.losses
        inputs = self._function(loss.name, loss.parameters, loss.body, loss, training=True)
        for metric in self.metrics:
            if metric.name in self.parts:
                message = f"{metric.name} is a metric and a part of the loss"
                self._report("D0530", message, metric.name_span, "call one of them otherwise")
            seen = loss.parameters if metric.parameters is None else metric.parameters
            metric_inputs = self._function(metric.name, seen, metric.body, None, training=False)
            if inputs is not None and metric_inputs is not None:
                self._same_types(metric, inputs, metric_inputs)
            if inputs is not None:
                inputs = None if metric_inputs is None else {**metric_inputs, **inputs}
        return inputs

    def _same_types(
        self, metric: ast.Metric, known: Mapping[str, TensorType], own: Mapping[str, TensorType]
    ) -> None:
        """An input is read from the data once, so all functions that take it declare the same type."""
        for parameter in metric.parameters or ():
            name = parameter.name
            if name in known and own[name] is not known[name]:
                message = (
                    f"metric {metric.name} takes {name}: {own[name].text}, "
                    f"and it is {known[name].text} in the loss or another metric"
                )
                help = f"declare it as {known[name].text}, or give the data two names for it"
                self._report("D0554", message, parameter.span, help)

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
            with at.scratch(), in_eval_mode(self.eval):
                scope = scope_of(self.root)
                for parameter in parameters:
                    inputs[parameter.name] = declared_input(ev, parameter, scope)
                if loss is None:
                    scope.names["loss"] = at.top.add_argument(TensorType(F32), "loss")
                value = ev.eval(body, scope)
                if loss is None:
                    one_number(ev, name, value, body, floats=False)
                else:
                    loss_values(ev, value, body)
                    check_result(ev, loss, value, scope)
                    self.parts = part_names(value)
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

    # Parts ----------------------------------------------------------------------------------------

    def _parts(self, name: str) -> list[Part]:
        """The parts that an entry names."""
        entry = self.settings.get(name)
        return [] if entry is None else parts_of(self.ev, self.root, [entry.value])

    def _frozen(self, weights: Sequence[Weight]) -> frozenset[str]:
        """The symbols of the frozen weights; every part that is frozen has some."""
        trained = {w.symbol for w in weights if w.trained}
        frozen: set[str] = set()
        for part in self._parts("freeze"):
            if trained.isdisjoint(part.symbols):
                help = "a state is not trained; eval = PART keeps those of a normalisation"
                self._report("D0550", "nothing in this part is trained", part.written.span, help)
            frozen.update(part.symbols)
        return frozenset(frozen)

    def _eval(self) -> tuple[Part, ...]:
        """The parts in eval mode, which are modules."""
        parts = self._parts("eval")
        for part in parts:
            if not part.cores:
                help = "name the module that it is in"
                self._report(
                    "D0550", "a weight has no functions to evaluate", part.written.span, help
                )
        return tuple(parts)

    def _groups(self, weights: Sequence[Weight], frozen: frozenset[str]) -> tuple[Group, ...]:
        """The optimizers, of which each weight that is trained has one."""
        trained = {w.symbol: w for w in weights if w.trained and w.symbol not in frozen}
        if frozen and not trained:
            span = self.settings["freeze"].value.span
            help = "leave a part out of freeze: it is trained"
            self._report("D0550", f"no weight of {self.node.name} is left to train", span, help)
            return ()
        groups = groups_of(
            self.ev,
            self.root,
            self.library,
            self.optimizers,
            trained,
            lowered="rate" in self.settings,
        )
        grouped = {symbol for group in groups for symbol in group.symbols}
        left = [symbol for symbol in trained if symbol not in grouped]
        if left and groups and all(entry.parts for entry in self.optimizers):
            self._report(
                "D0531",
                f"no optimizer updates {left[0]}",
                self.node.name_span,
                "write optimizer = ... for the rest, or freeze it",
            )
        return groups

    # Settings -------------------------------------------------------------------------------------

    def _data(self, inputs: Mapping[str, TensorType] | None) -> DataSource | None:
        entry = self.settings.get("data")
        return LATER if entry is None else data_source(self.ev, self.root, entry, inputs)

    def _whole(self, name: str, default: int, least: int) -> int:
        entry = self.settings.get(name)
        given = None if entry is None else whole(self.ev, self.root, entry, least)
        return default if given is None else given

    def _accumulate(self, inputs: Mapping[str, TensorType]) -> int:
        """The number of microbatches in a step; their inputs have one number of examples."""
        count = self._whole("accumulate", 1, 1)
        declared = {p.name for loss in self.losses for p in loss.parameters}
        firsts = {t.shape[0] if t.shape else 1 for name, t in inputs.items() if name in declared}
        if count > 1 and len(firsts) > 1:
            self._report(
                "D0534",
                "the inputs of the loss have several first axes, so a batch has no equal parts",
                self.settings["accumulate"].value.span,
                "leave accumulate out: let trainer.step take smaller batches",
            )
        return count

    def _average(self) -> float | None:
        entry = self.settings.get("average")
        return None if entry is None else average(self.ev, self.root, entry)

    def _precision(self) -> tuple[DType | None, LossScale | None]:
        """The dtype of products, and the scale of the loss."""
        entry = self.settings.get("precision")
        dtype = None if entry is None else precision(self.ev, entry)
        return dtype, loss_scale(self.ev, self.root, self.settings.get("loss_scale"), dtype)

    def _watched(self, name: str, function: str, data: DataSource) -> Watched | None:
        """What `stop = early(...)` or `keep = best(...)` watches."""
        entry = self.settings.get(name)
        if entry is None:
            return None
        found = watched(self.ev, self.root, entry, function, self._known())
        span = entry.value.span
        if found is not None:
            self._is_measured(found.metric, data, span)
        if name == "keep" and "checkpoint" not in self.settings:
            help = 'write checkpoint = file("model.safetensors")'
            self._report("D0531", "the best checkpoint is kept beside the last one", span, help)
        return found

    def _rate(self, data: DataSource) -> Plateau | None:
        """What `rate = plateau(...)` says."""
        entry = self.settings.get("rate")
        if entry is None:
            return None
        found = plateau(self.ev, self.root, entry, self._known())
        if found is not None:
            self._is_measured(found.metric, data, entry.value.span)
        return found

    def _known(self) -> tuple[str, ...]:
        """What is measured after each epoch; of the parts, the weight is not."""
        parts = [name for name in self.parts if name != WEIGHT]
        return ("loss", *parts, *[metric.name for metric in self.metrics])

    def _is_measured(self, name: str, data: DataSource, span: ast.Span) -> None:
        """Refuse to watch a metric where there are no examples for the test."""
        is_metric = any(metric.name == name for metric in self.metrics)
        if is_metric and not (data.test_part or data.test_path):
            message = f"{name} is measured on the examples for the test, and there are none"
            self._report("D0549", message, span, "keep some: data = npz(..., test=0.2)")

    def _checkpoint(self) -> tuple[str, int] | None:
        entry = self.settings.get("checkpoint")
        return None if entry is None else checkpoint(self.ev, self.root, entry)
