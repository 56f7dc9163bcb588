"""Trained tensors. Their numbers are never in the IR: a symbol says where they come from.

A *source* is a tensor of a weight file or an initialiser; a *derived* symbol is computed from other
symbols by a region, once, when the weights are loaded (`prepare`): folding a batch norm, transposing and
packing only ever make derived symbols.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.ir.attributes import Symbol
from dlc.ir.core import Array, Block, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand, operands, region
from dlc.ir.dims import product
from dlc.ir.types import TensorType, Type
from dlc.runtime.artifact.manifest import file_shape, is_portion

OPTIMIZER = "$optimizer."
"""Stands before the weight's name in the names of what an optimizer keeps for it: no module is called so.
A `train` block with a name has that in between, `$optimizer.generate:head.w.m`.

These states are `constant`: they begin as the optimizer says, whatever weights the model is given.
"""
AVERAGE = "$average."
"""Stands before the weight's name in the names of averages of weights, as `OPTIMIZER` does."""
SCALE = "$scale."
"""Stands before the names of what a dynamic loss scale keeps: `$scale.value`, `$scale.generate:value`."""


@op("weight.source")
class Source(Op):
    """A tensor read from a weight file under `key`, or made by the initialiser `init`.

    `parts` are the names of its copies where the file has one array for each. Under `key` and `parts`
    the last two axes may be `transposed`, and an array may hold several weights side by side. Of such an
    array this is the `portion` (first, last, whole, axis): from `first` to `last` of `whole` equal parts
    of the axis. Without the axis it is the one that the array has longer than the weight.
    """

    sym_name: str = attribute()
    type: TensorType = attribute()
    key: str = attribute()
    file: str | None = attribute(default=None)
    init: str | None = attribute(default=None, doc="initialiser as text, such as `normal(0.02)`")
    trained: bool = attribute(default=True, doc="false for a `state`")
    stacked: int = attribute(
        default=0, doc="leading axes that count copies: each is initialised alone"
    )
    parts: tuple[str, ...] = attribute(default=(), doc="names of the copies in weight files")
    transposed: bool = attribute(default=False, doc="as files have it")
    portion: tuple[int, ...] = attribute(default=(), doc="of an array that holds several weights")
    constant: bool = attribute(default=False, doc="never replaced by other weights")
    sha256: str | None = attribute(default=None, doc="of the bytes, once they are known")
    splits: tuple[str, ...] | None = attribute(
        default=None,
        doc="for ranks: axes of the mesh, each with the axis that it splits, `model 1`",
    )
    whole: TensorType | None = attribute(
        default=None, doc="as files have it, where each rank of a mesh has a part of this `type`"
    )

    pure = False

    def infer(self) -> tuple[Type, ...]:
        type = self.type
        if not type.is_static:
            raise self.fail(f"weight {self.sym_name} has the symbolic type {type.text}")
        if not 0 <= self.stacked <= type.rank:
            raise self.fail(
                f"weight {self.sym_name} has {self.stacked} leading axes of {type.text}"
            )
        if self.parts and product(type.shape[: self.stacked]) != len(self.parts):
            raise self.fail(f"weight {self.sym_name} has {len(self.parts)} parts for {type.text}")
        for text in self.splits or ():
            name, _, axis = text.partition(" ")
            if not (name.isidentifier() and axis.isdecimal() and int(axis) < type.rank):
                raise self.fail(f"weight {self.sym_name} of {type.text} has the split {text!r}")
        if self.transposed and len(type.shape) - self.stacked < 2:
            raise self.fail(f"weight {self.sym_name} is {type.text}, which has no transpose")
        sizes = tuple([size for size in (self.whole or type).shape if isinstance(size, int)])
        shape = file_shape(sizes, self.stacked, self.parts, self.transposed)
        if self.portion and not is_portion(self.portion, shape):
            raise self.fail(f"weight {self.sym_name} of {type.text} has the portion {self.portion}")
        return ()


@op("weight.yield")
class Yield(Op):
    """End the region of a derived weight with its value."""

    value: Sequence[Value] = operands()

    pure = False
    terminator = True

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("weight.derived")
class Derived(Op):
    """A tensor computed from the weights `sources`, which are the arguments of the region."""

    body: Block = region()
    sym_name: str = attribute()
    type: TensorType = attribute()
    sources: tuple[Symbol, ...] = attribute()

    pure = False
    isolated = True

    def infer(self) -> tuple[Type, ...]:
        (value,) = self.body.terminator.operands
        if value.type is not self.type:
            raise self.fail(f"derived weight {self.sym_name} is {self.type}, computed {value.type}")
        return ()


@op("weight.get")
class Get(Op):
    """The value of a weight symbol."""

    symbol: Symbol = attribute()
    type: TensorType = attribute()

    def infer(self) -> TensorType:
        return self.type

    def check_reference(self, target: Op) -> None:
        if not isinstance(target, Source | Derived) or target.type is not self.type:
            raise self.fail(f"{self.symbol} is read as {self.type.text}, which it is not")

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return at.weights[self.symbol.name]


def check_weights(module: Op) -> None:
    """Raises ModelError where a weight is derived from later ones, or from others than it takes."""
    known: dict[str, TensorType] = {}
    for symbol in module.regions[0]:
        match symbol:
            case Source(sym_name=name, type=type):
                known[name] = type
            case Derived(sym_name=name, type=type, sources=sources):
                found = [known.get(source.name) for source in sources]
                if found != [argument.type for argument in symbol.body.arguments]:
                    raise symbol.fail(
                        f"@{name} takes other types than its sources have that stand before it"
                    )
                known[name] = type
            case _:
                pass


@op("weight.set")
class Set(Op):
    """What a state becomes at the end of the training step.

    It stands where the text sets the state, in loops and branches too. The frontend lifts it out before
    the function is finished, so no pass meets it.
    """

    state: Value = operand()
    value: Value = operand()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        if self.state.type is not self.value.type:
            raise self.fail(f"a state {self.state.type} cannot become {self.value.type}")
        return ()
