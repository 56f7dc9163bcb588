"""Random bits as kernels: the rounds of Philox as scalar integer code."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, rng, scalar
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.ir.dims import ceil_divide, product
from dlc.ir.types import INDEX, U32, U64
from dlc.lowering.array_to_kernel import lowers
from dlc.lowering.formula import convert, generic, number, size, times
from dlc.lowering.nn_to_kernel import stage

WORDS = 4
"""Words of a block."""


def philox(emit: Builder, counter: Sequence[Value], key: Sequence[Value]) -> list[Value]:
    """The four u32 of a block, from four counter words and the two words of a key."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(rng.ROUNDS):
        high0, low0 = _product(emit, x0, int(rng.MULTIPLIERS[0]))
        high1, low1 = _product(emit, x2, int(rng.MULTIPLIERS[1]))
        x0 = emit(scalar.Xor(emit(scalar.Xor(high1, x1)), k0))
        x2 = emit(scalar.Xor(emit(scalar.Xor(high0, x3)), k1))
        x1, x3 = low1, low0
        k0, k1 = (
            emit(scalar.Add(word, number(emit, step, U32)))
            for word, step in zip((k0, k1), rng.WEYL, strict=True)
        )
    return [x0, x1, x2, x3]


def _product(emit: Builder, word: Value, by: int) -> tuple[Value, Value]:
    """The high and the low word of a product of two words."""
    wide = emit(scalar.Multiply(emit(scalar.Cast(word, U64)), number(emit, by, U64)))
    return _halves(emit, wide)


def _halves(emit: Builder, wide: Value) -> tuple[Value, Value]:
    """The high and the low word of a u64."""
    high = emit(scalar.RawShiftRight(wide, number(emit, 32, U64)))
    return emit(scalar.Cast(high, U32)), emit(scalar.Cast(wide, U32))


def _key_words(emit: Builder, key: Value) -> list[Value]:
    return [emit(kernel.Load(key, [emit(scalar.Constant(k, INDEX))])) for k in (0, 1)]


def _choose(emit: Builder, words: Sequence[Value], which: Value) -> Value:
    """The word that an index names."""
    chosen = words[0]
    for k, word in enumerate(words[1:], 1):
        mine = emit(scalar.Compare(which, emit(scalar.Constant(k, INDEX)), "eq"))
        chosen = emit(scalar.Select(mine, word, chosen))
    return chosen


@lowers(rng.Fold)
def _fold(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, rng.Fold)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        key, data = arrays
        high, low = _halves(inner, convert(inner, inner(kernel.Load(data, [])), U64))
        counter = [low, high, number(inner, 0, U32), number(inner, rng.FOLD_TAG, U32)]
        return _choose(inner, philox(inner, counter, _key_words(inner, key))[:2], indices[0])

    return (generic(emit, op.operands, (2,), formula),)


@lowers(rng.Bits)
def _bits(op: Op, emit: Builder) -> Sequence[Value]:
    """Blocks as rows of four words, each block computed once; then the words by their number."""
    assert isinstance(op, rng.Bits)
    shape = tensor_type(op.result).shape

    def block(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        high, low = _halves(inner, convert(inner, indices[0], U64))
        zero = number(inner, 0, U32)
        words = philox(inner, [low, high, zero, zero], _key_words(inner, arrays[0]))
        return stage(inner, (WORDS,), lambda deep, at: _choose(deep, words, at[0]))

    def word(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        place: Value = size(inner, 0)
        for index, extent in zip(indices, shape, strict=True):
            place = inner(scalar.Add(times(inner, place, extent), index))
        row = inner(scalar.RawDivide(place, size(inner, WORDS)))
        rest = inner(scalar.Subtract(place, times(inner, row, WORDS)))
        return inner(kernel.Load(arrays[0], [row, rest]))

    blocks = generic(emit, op.operands, (ceil_divide(product(shape), WORDS),), block)
    return (generic(emit, (blocks,), shape, word),)
