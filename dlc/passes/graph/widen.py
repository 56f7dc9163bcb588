"""Every float of a function as f64: the reference with which derivatives are compared.

Random generators and bit casts keep their dtypes; their results are converted afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dlc.dialects import array, func
from dlc.ir.attributes import Attribute, Dense, decode, encode
from dlc.ir.core import Block, Builder, Op
from dlc.ir.types import F64, DType, FunctionType, TensorType, Type

__all__ = ["widen"]


Narrow: TypeAlias = Mapping[Op, Sequence[Type]]
"""The operations on bits, with the types that their operands had."""


def widen(function: func.Func) -> None:
    """Give every float in a function, its arguments and results included, the dtype f64."""
    narrow = {op: [v.type for v in op.operands] for op in function.walk() if _looks_at_bits(op)}
    _block(function.body, narrow)
    function.retype()


def _block(block: Block, narrow: Narrow) -> None:
    for argument in block.arguments:
        argument.type = _wide(argument.type)
    for op in list(block):
        for region in op.regions:
            _block(region, narrow)
        if op in narrow:
            _convert_around(op, narrow[op])
            continue
        for name, value in op.attributes.items():
            op.attributes[name] = _attribute(value)
        types = op.infer()
        for result, type in zip(
            op.results, types if isinstance(types, tuple) else (types,), strict=True
        ):
            result.type = type


def _looks_at_bits(op: Op) -> bool:
    return op.name.startswith("rng.") or isinstance(op, array.Bitcast)


def _convert_around(op: Op, types: Sequence[Type]) -> None:
    """Keep the dtypes of an operation: cast its operands back to these types, and its results to f64."""
    cast_before, cast_after = Builder.before_op(op), Builder(_parent(op), op.location, op.next)
    for operand, type in dict(zip(op.operands, types, strict=True)).items():
        if operand.type is not type:
            assert isinstance(type, TensorType)
            op.replace_operand(operand, cast_before(array.Cast(operand, type.dtype)))
    for result in op.results:
        type = result.type
        if type is not _wide(type):
            users = list(result.uses)
            wide = cast_after(array.Cast(result, F64))
            for user in users:
                user.replace_operand(result, wide)


def _parent(op: Op) -> Block:
    assert op.parent is not None
    return op.parent


def _wide(type: Type) -> Type:
    match type:
        case TensorType(dtype) if dtype.is_float:
            return type.with_dtype(F64)
        case DType() if type.is_float:
            return F64
        case FunctionType():
            inputs, results = (tuple(map(_wide, group)) for group in (type.inputs, type.results))
            return FunctionType(inputs, results)
        case _:
            return type


def _attribute(value: Attribute) -> Attribute:
    match value:
        case tuple():
            return tuple([_attribute(item) for item in value])
        case Dense(type=type) if type.dtype.is_float:
            return Dense.of(encode(decode(value.array, type.dtype), F64), F64)
        case Type():
            return _wide(value)
        case _:
            return value
