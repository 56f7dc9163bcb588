"""Inlining of formulas: the producer's into its consumer's, and the consumer's behind its producer's."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel
from dlc.dialects.kernel.products import Product
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Value


def inline_formula(
    producer: kernel.Generic,
    consumer: kernel.Generic,
    loads: Sequence[kernel.Load],
    argument: Value,
    is_only_reader: bool,
) -> None:
    """Replace each load by the producer's formula, which is moved if the consumer is its only reader."""
    arrays = [consumer.argument_for(read) for read in producer.inputs]
    for load in loads:
        (element,) = (_moved_formula if is_only_reader else _cloned_formula)(
            producer.body, load, arrays
        )
        load.result.replace_by(element)
        load.erase()
    consumer.remove_input(argument)


def loads_own_element(
    producer: kernel.Generic, consumer: kernel.Generic, load: kernel.Load
) -> bool:
    """Whether a load reads the element that the consumer computes."""
    return (
        producer.domain == consumer.domain
        and load.parent is consumer.body
        and list(load.indices) == consumer.indices
    )


def inline_large_producer(
    producer: kernel.Generic, consumer: kernel.Generic, load: kernel.Load, argument: Value
) -> None:
    """The same as `inline_formula` for a large producer: the consumer's operations move to its block.

    Only the consumer's operations are moved, so fusing a chain of kernels takes linear time.
    """
    merge_equal_inputs(producer)
    consumer_body, producer_body = consumer.body, producer.body
    (element,) = producer_body.terminator.operands
    producer_body.terminator.erase()
    position = producer_body.first
    for op in list(consumer_body):
        if op is load:
            position = None
        else:
            producer_body.move(op, position)
    load.result.replace_by(element)
    load.erase()
    producer_arguments = {value: new for new, value in input_pairs(producer)}
    for new in producer_arguments.values():
        new.name = None
    reads: dict[Value, Value] = {}
    for argument_of_consumer, value in input_pairs(consumer):
        if argument_of_consumer is not argument:
            reads[value] = producer_arguments.get(value) or producer_body.add_argument(value.type)
            _rename_argument(reads[value], argument_of_consumer)
    reads = reads | producer_arguments
    for new, argument_of_consumer in zip(producer.indices, consumer.indices, strict=True):
        _rename_argument(new, argument_of_consumer)
    producer_body.set_arguments([*producer.indices, *reads.values()])
    consumer.attributes["segments"] = (len(reads), 0)
    consumer.set_operands(list(reads))
    producer.swap_regions(consumer)


def _rename_argument(new: Value, old: Value) -> None:
    """Replace an argument of the consumer's block by one of the producer's."""
    new.name = old.name
    old.replace_by(new)


def _cloned_formula(formula: Block, load: kernel.Load, arrays: Sequence[Value]) -> Sequence[Value]:
    """The element that a formula yields at the indices of a load, computed before it."""
    return clone_into(formula, Builder.before_op(load), [*load.indices, *arrays])


def _moved_formula(formula: Block, load: kernel.Load, arrays: Sequence[Value]) -> Sequence[Value]:
    """The same, with the operations of the formula itself instead of copies."""
    assert load.parent is not None
    for argument, value in zip(formula.arguments, [*load.indices, *arrays], strict=True):
        argument.replace_by(value)
    for op in list(formula)[:-1]:
        formula.unlink(op)
        load.parent.insert(op, load)
    return formula.terminator.operands


def append_formula(
    producer: Product | kernel.Generic, consumer: kernel.Generic, argument: Value
) -> None:
    """Append the consumer's formula to the producer's."""
    formula = producer.formula
    (element,) = formula.terminator.operands
    indices = formula.arguments[: len(producer.domain)]
    arrays = [
        argument if other is argument else producer.argument_for(read)
        for other, read in input_pairs(consumer)
    ]
    stand_in = consumer.body.add_argument(element.type)
    for load in [use for use in argument.uses if isinstance(use, kernel.Load)]:
        load.result.replace_by(stand_in)
        load.erase()
    emit = Builder.before_op(formula.terminator, consumer.location)
    (final,) = clone_into(consumer.body, emit, [*indices, *arrays, element])
    formula.terminator.set_operands([final])
    consumer.body.arguments.pop()


def merge_equal_inputs(op: kernel.Generic) -> None:
    """Read an array that is passed several times through its first argument only."""
    arguments: dict[Value, Value] = {}
    for argument, value in input_pairs(op):
        first_argument = arguments.setdefault(value, argument)
        if first_argument is not argument:
            argument.replace_by(first_argument)
            op.remove_input(argument)


def input_pairs(op: kernel.Generic) -> list[tuple[Value, Value]]:
    """The argument and the array of each input of a kernel."""
    return list(zip(op.arrays, op.inputs, strict=True))
