"""The functions that train a model: one step, and measuring what was trained so far.

`train_step` takes a batch, the number of the step, a seed if anything is random, and every weight and
state; it gives the loss and what weights and states become. `dlc.updates` names for each result the input
whose place it takes, so that a step changes them in place. `evaluate` takes a batch and the weights and
gives the loss and the metrics, with `training` false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from dlc.dialects import array, flow, func, weight
from dlc.errors import ModelError
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.keys import SEED_NAME
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import broadcast_to, convert, dtype_of, tensor_type
from dlc.frontend.elaboration.trace import Frame, capture
from dlc.frontend.elaboration.weight import Origin, Weight
from dlc.frontend.exports import begin, finish
from dlc.frontend.modules.instances import Core
from dlc.frontend.training.accumulation import Differentiated, accumulated
from dlc.frontend.training.block import Training
from dlc.frontend.training.functions import declared_input, loss_values, one_number, scope_of
from dlc.frontend.training.optimizers import updated
from dlc.frontend.training.parts import in_eval_mode
from dlc.frontend.training.scaling import SKIPPED, DynamicScale, unscaled
from dlc.frontend.training.state_updates import lift_sets
from dlc.frontend.weights.symbols import weight_value
from dlc.ir.core import Block, Builder, Value
from dlc.ir.types import F32, I32, TensorType
from dlc.runtime.artifact.manifest import EVALUATE, NUMBER, RATE, STEP, TOTAL
from dlc.runtime.training.epoch_sums import WEIGHT
from dlc.text.model import ast

__all__ = ["LOSS", "Purpose", "train_functions"]

LOSS = "loss"
"""The name of the function that gives the loss alone."""
Purpose: TypeAlias = Literal["call", "train", "loss"]
"""The purpose of functions: entry points of the text, the two that train, or the loss alone."""

_EPSILON = 1e-12
"""Below any norm of gradients that is not 0: keeps 0 / 0 out of the clipping."""


class _Functions:
    """Makes both functions of a checked `train` block. `states` are the optimizer's, once `step` ran."""

    def __init__(self, ev: Evaluator, training: Training, weights: Sequence[Weight]) -> None:
        self.ev, self.at = ev, ev.at
        self.training = training
        self.weights = {item.symbol: item for item in weights}
        self.groups = {symbol: group for group in training.groups for symbol in group.symbols}
        self.source = training.root.source
        self.states: list[Weight] = []
        self.averages: dict[str, Weight] = {}
        """The averages of weights by the weights' symbols, once `step` ran."""
        self.scale: Value | None = None
        """What the loss is multiplied with in the backward pass, while `step` runs."""

    # One step -------------------------------------------------------------------------------------

    def step(self) -> func.Func:
        """The function of one training step."""
        scope = self._begin(STEP, self.training.loss.parameters)
        at = self.at
        step = at.top.add_argument(TensorType(I32), NUMBER)
        total = at.top.add_argument(TensorType(I32), TOTAL)
        rate = at.top.add_argument(TensorType(F32), RATE) if self.training.rate else None
        at.training, at.total_steps, at.rate = True, total, rate
        try:
            results, following = self._stepped(scope, step)
        finally:
            at.training, at.total_steps, at.rate = False, None, None
        for argument in (rate, total):
            if argument is not None and not argument.uses:
                at.top.remove_argument(argument.index)
        names = {get: symbol for symbol, get in at.gets.items()}
        results += [(names[get], value) for get, value in following.items()]
        return self._finish(STEP, results)

    def _stepped(
        self, scope: Scope, step: Value
    ) -> tuple[list[tuple[str, Value]], dict[Value, Value]]:
        """The numbers that a step gives, and what weights and states become."""
        dynamic = self._scale()
        if dynamic is not None:
            step = dynamic.counted(step)
        losses, gradients, following = self._gradients(scope)
        results = list(zip(("loss", *self.training.parts), losses, strict=True))
        if self.scale is not None:
            gradients = {n: unscaled(self.at, g, self.scale) for n, g in gradients.items()}
        for symbol, gradient in self._clipped(gradients).items():
            following[self.at.gets[symbol]] = self._updated(symbol, gradient, step)
        following.update(lift_sets(self.at.top))
        following.update(self._averages(following, step))
        if dynamic is not None:
            following, skipped = dynamic.kept(following, list(gradients.values()))
            results.append((SKIPPED, skipped))
        return results, following

    def _scale(self) -> DynamicScale | None:
        """Set `scale`, the scale of the loss; one that changes is the result."""
        scale = self.training.scale
        if scale is None:
            return None
        if not scale.is_dynamic:
            self.scale = array.fill(self.at, scale.start, TensorType(F32))
            return None
        place = self.source.place(self.training.loss.span)
        dynamic = DynamicScale(self.at, scale, self._block_prefix, place)
        self.states += dynamic.states
        self.scale = dynamic.value
        return dynamic

    def _gradients(self, scope: Scope) -> Differentiated:
        """The losses of the batch, the gradient for each weight, and what the states become."""
        names = [parameter.name for parameter in self.training.loss.parameters]
        inputs = {name: value for name in names if isinstance(value := scope.names[name], Value)}
        if self.training.accumulate == 1:
            return self._differentiated(scope, inputs)
        names = ("loss", *self.training.parts)
        weight = names.index(WEIGHT) if WEIGHT in names else None
        return accumulated(
            self.at,
            self.training.accumulate,
            inputs,
            lambda rows: self._differentiated(scope, rows),
            weight,
        )

    def _differentiated(self, outer: Scope, inputs: Mapping[str, Value]) -> Differentiated:
        """The losses of these inputs, what each trained weight receives, and what the states become."""
        at, loss = self.at, self.training.loss
        scope = outer.inner()
        scope.names.update(inputs)
        body = Block()
        with at.inside(body), in_eval_mode(self.training.eval):
            value, *parts = loss_values(self.ev, self.ev.eval(loss.body, scope), loss.body)
            states = lift_sets(body)
            kept = [at(flow.StopGradient(new)) for new in (*parts, *states.values())]
            at.place(flow.Yield((value, *kept)))
        captured = capture([body])
        wrt = [k for k, item in enumerate(captured) if self._is_trained(item)]
        if not wrt:
            raise at.fail(
                "D0531",
                f"the loss of {self.training.module} depends on no param",
                loss.body.span,
                help="train a module that has weights, and use them in the loss",
            )
        if not _reached(value).intersection([body.arguments[k] for k in wrt]):
            raise at.fail(
                "D0531",
                f"the loss of {self.training.module} has no gradient for any param",
                loss.body.span,
                help="stop_gradient, argmax, comparisons and conversions to integers have no derivative",
            )
        at.stand(loss.body.span)
        seeds = [self._seed(tensor_type(value))]
        seeds += [array.fill(at, 0, tensor_type(k)) for k in kept if dtype_of(k).is_float]
        results = at.all(
            flow.Vjp(tuple(captured), tuple(seeds), body, tuple(wrt), True, self.training.precision)
        )
        losses, count = 1 + len(parts), 1 + len(kept)
        names = {get: symbol for symbol, get in at.gets.items()}
        gradients = {names[captured[k]]: g for k, g in zip(wrt, results[count:], strict=True)}
        following = dict(zip(states, results[losses:count], strict=True))
        return Differentiated(list(results[:losses]), gradients, following)

    def _seed(self, type: TensorType) -> Value:
        """What the loss receives in the backward pass: its scale, or 1."""
        if self.scale is None:
            return array.fill(self.at, 1, type)
        return convert(self.at, self.scale, type.dtype)

    def _is_trained(self, value: Value) -> bool:
        symbol = next((name for name, get in self.at.gets.items() if get is value), None)
        return symbol in self.groups and dtype_of(value).is_float

    def _clipped(self, gradients: dict[str, Value]) -> dict[str, Value]:
        """The gradients as the optimizer of each weight wants them, those of an optimizer together."""
        clipped: dict[str, Value] = {}
        for group in self.training.groups:
            own = {name: g for name, g in gradients.items() if name in group.symbols}
            clipped |= self._clipped_for(group.optimizer, own)
        return {name: clipped[name] for name in gradients}

    def _clipped_for(self, optimizer: Core, gradients: dict[str, Value]) -> dict[str, Value]:
        """Each element within `clip_value` of 0, then all together no longer than `clip_norm`."""
        settings = optimizer.arguments
        value, norm = settings.get("clip_value"), settings.get("clip_norm")
        if isinstance(value, int | float):
            gradients = {name: self._within(g, value) for name, g in gradients.items()}
        if isinstance(norm, int | float):
            gradients = self._shortened(gradients, norm)
        return gradients

    def _within(self, gradient: Value, limit: float) -> Value:
        at = self.at
        low, high = [array.constant_like(at, sign * limit, gradient) for sign in (-1, 1)]
        return at(array.Minimum(at(array.Maximum(gradient, low)), high))

    def _shortened(self, gradients: Mapping[str, Value], limit: float) -> dict[str, Value]:
        """The gradients times limit / norm, if their common Euclidean norm is larger."""
        at = self.at
        total = array.fill(at, 0, TensorType(F32))
        for gradient in gradients.values():
            wide = convert(at, gradient, F32)
            axes = tuple(range(tensor_type(wide).rank))
            total = at(array.Add(total, at(array.ReduceSum(at(array.Multiply(wide, wide)), axes))))
        norm = at(array.Maximum(at(array.Sqrt(total)), array.constant_like(at, _EPSILON, total)))
        bound = array.constant_like(at, limit, norm)
        one = array.constant_like(at, 1, norm)
        factor = at(array.Minimum(at(array.Divide(bound, norm)), one))
        clipped: dict[str, Value] = {}
        for name, gradient in gradients.items():
            own = convert(at, factor, dtype_of(gradient))
            scale = broadcast_to(at, own, tensor_type(gradient).shape)
            clipped[name] = at(array.Multiply(gradient, scale))
        return clipped

    def _updated(self, symbol: str, gradient: Value, step: Value) -> Value:
        """The updated weight; the states that the optimizer keeps for it are added to `states`."""
        core = self.groups[symbol].optimizer
        core.path = f"{weight.OPTIMIZER}{self._block_prefix}{symbol}"
        value = updated(self.ev, core, self.at.gets[symbol], gradient, step)
        self.states += [replace(state, constant=True) for state in core.weights.values()]
        return value

    def _averages(self, following: Mapping[Value, Value], step: Value) -> dict[Value, Value]:
        """What the averages of the updated weights become.

        At first they follow the weights faster, by the decay min(decay, (1 + step) / (10 + step)) of
        TensorFlow's ExponentialMovingAverage: what the weights began with is soon forgotten.
        """
        decay = self.training.average
        if decay is None:
            return {}
        at = self.at
        behind = at(array.Add(convert(at, step, F32), array.fill(at, 10, TensorType(F32))))
        early = at(array.Divide(array.fill(at, 9, TensorType(F32)), behind))
        rate = at(array.Maximum(early, array.fill(at, 1 - decay, TensorType(F32))))
        averages: dict[Value, Value] = {}
        for symbol, get in list(at.gets.items()):
            if symbol in self.groups and get in following:
                average = weight_value(at, self._average_of(symbol), ())
                new = convert(at, following[get], F32)
                way = at(array.Subtract(new, average))
                part = at(array.Multiply(way, broadcast_to(at, rate, tensor_type(way).shape)))
                averages[average] = at(array.Add(average, part))
        return averages

    def _average_of(self, symbol: str) -> Weight:
        """The state that holds the average of a weight, in f32."""
        item = self.weights[symbol]
        name = f"{weight.AVERAGE}{self._block_prefix}{symbol}"
        average = Weight(
            name, item.type.with_dtype(F32), Origin("zeros()"), False, 0, item.place, constant=True
        )
        self.states.append(average)
        self.averages[symbol] = average
        return average

    @property
    def _block_prefix(self) -> str:
        return f"{self.training.block}:" if self.training.block else ""

    def loss(self) -> func.Func:
        """The loss alone, `training` true, with its weights where they are; what it sets is dropped."""
        loss, at = self.training.loss, self.at
        scope = self._begin(LOSS, loss.parameters)
        at.training = True
        try:
            with in_eval_mode(self.training.eval):
                value, *_ = loss_values(self.ev, self.ev.eval(loss.body, scope), loss.body)
            lift_sets(at.top)
        finally:
            at.training = False
        return finish(self.ev, LOSS, loss.span, [""] * len(loss.parameters), [("loss", value)])

    # Measuring ------------------------------------------------------------------------------------

    def evaluate(self) -> func.Func:
        """The function that gives the loss and every metric of a batch."""
        training, ev = self.training, self.ev
        parameters = {p.name: p for p in training.loss.parameters}
        for metric in training.measured:
            parameters |= {p.name: p for p in metric.parameters or () if p.name not in parameters}
        scope = self._begin(EVALUATE, tuple(parameters.values()))
        body = training.loss.body
        loss, *parts = loss_values(ev, ev.eval(body, scope), body)
        scope.names["loss"] = loss
        results = [("loss", loss), *zip(training.parts, parts, strict=True)]
        for metric in training.measured:
            value = ev.eval(metric.body, scope)
            number = one_number(ev, metric.name, value, metric.body, floats=False)
            results.append((metric.name, convert(self.at, number, F32)))
        return self._finish(EVALUATE, results)

    # Both -----------------------------------------------------------------------------------------

    def _begin(self, name: str, parameters: Sequence[ast.Parameter]) -> Scope:
        training = self.training
        begin(self.ev, Frame(name, "", self.source), training.loss.span)
        scope = scope_of(training.root)
        count = training.accumulate if name == STEP else 1
        for parameter in parameters:
            declared_input(self.ev, parameter, scope, count)
        return scope

    def _finish(self, name: str, results: Sequence[tuple[str, Value]]) -> func.Func:
        """The function, with its weights as arguments."""
        at = self.at
        arguments: dict[Value, Value] = {}
        for symbol, get in at.gets.items():
            arguments[get] = self._argument(symbol, get, averaged=name == EVALUATE)
            get.replace_by(arguments[get])
            assert get.op is not None
            get.op.erase()
        # An optimizer may leave a weight as it is.
        results = [(result, arguments.get(value, value)) for result, value in results]
        # The default of an implicit seed stands behind those of the inputs before it, which have none.
        names = [argument.name for argument in at.top.arguments]
        defaults = [""] * names.index(SEED_NAME) if at.implicit_seed else []
        function = finish(self.ev, name, self.training.loss.span, defaults, results)
        inputs = set(function.input_names)
        function.attributes["dlc.updates"] = tuple([n if n in inputs else "" for n, _ in results])
        return function

    def _argument(self, symbol: str, get: Value, *, averaged: bool) -> Value:
        """The argument that a weight is; its average where it has one and that is wanted."""
        average = self.averages.get(symbol) if averaged else None
        if average is None:
            return self.at.top.add_argument(get.type, symbol)
        assert get.op is not None
        argument = self.at.top.add_argument(average.type, average.symbol)
        if dtype_of(get) is F32:
            return argument
        return Builder.before_op(get.op)(array.Cast(argument, dtype_of(get)))


def train_functions(
    ev: Evaluator, training: Training, weights: Sequence[Weight], purpose: Purpose
) -> tuple[list[func.Func], list[Weight]]:
    """The functions for a purpose, and the states of the optimizer; what is wrong is recorded."""
    maker = _Functions(ev, training, weights)
    functions: list[func.Func] = []
    for make in (maker.loss,) if purpose == "loss" else (maker.step, maker.evaluate):
        try:
            functions.append(make())
        except ModelError as error:
            ev.report(error)
        except Poisoned:
            pass
    return functions, maker.states


def _reached(loss: Value) -> set[Value]:
    """The values that a loss may have a gradient for: those that it follows from by floats."""
    reached: set[Value] = set()
    pending = [loss]
    while pending:
        value = pending.pop()
        if value in reached or not dtype_of(value).is_float:
            continue
        reached.add(value)
        if value.op is not None and not isinstance(value.op, flow.StopGradient):
            pending += value.op.operands
    return reached
