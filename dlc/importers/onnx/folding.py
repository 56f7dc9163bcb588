"""Constant folding: a node whose operands are all known is computed while importing."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dlc.dialects import array, nn
from dlc.importers.onnx.facts import Array
from dlc.importers.onnx.node_context import (
    FOLDED,
    AnyValue,
    Constant,
    Importer,
    NodeContext,
    Operand,
)
from dlc.importers.onnx.operators import sequences
from dlc.ir.core import Block, Builder, Evaluation, Value
from dlc.ir.types import TensorType


def evaluated(importer: Importer, context: NodeContext) -> list[AnyValue] | None:
    """The results of a node on constants; None if one of its values is large."""
    block = Block()
    found = importer(context.emitting(Builder(block, context.emit.location)))
    results: list[AnyValue] = [found] if isinstance(found, AnyValue) else list(found)
    types = [value.type for op in block for value in op.results]
    for type in types:
        if not (isinstance(type, TensorType) and type.is_static and _count(type) <= FOLDED):
            return None
    if any(isinstance(op, array.ReduceWindow | nn.Conv) for op in block):
        return None  # their padding may be any number of elements
    arrays: dict[Value, Array] = {}
    at = Evaluation()
    for op in block:
        values = op.evaluate(at, *[arrays[operand] for operand in op.operands])
        outputs = values if isinstance(values, tuple) else (values,)
        arrays.update(zip(op.results, outputs, strict=True))
    folded = [_folded(tensor, arrays) for tensor in sequences.elements(results)]
    return sequences.rebuilt(sequences.structure(results), folded)


def _folded(tensor: Operand, arrays: Mapping[Value, Array]) -> Constant:
    """A result of a node whose operations were evaluated."""
    if isinstance(tensor, Constant):
        return tensor
    return Constant(np.asarray(arrays[tensor]), array.tensor_type(tensor).dtype)


def _count(type: TensorType) -> int:
    return math.prod(size for size in type.shape if isinstance(size, int))
