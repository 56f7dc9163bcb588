"""Random bits as kernels: Philox-4x32 (Salmon et al., "Parallel random numbers", 2011) as integer code."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import rng
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.expr import Expr, constant, index, select
from dlc.dialects.formulas import Array, generic, size, stage
from dlc.ir.core import Builder, Value
from dlc.ir.dims import ceil_divide, product
from dlc.ir.types import U32, U64
from dlc.lowering.graph_to_kernel.arrays import lowers

WORDS = 4
"""Words of a block."""


def philox(counter: Sequence[Expr], key: Sequence[Expr]) -> list[Expr]:
    """The four u32 of a block, from four counter words and the two words of a key."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(rng.ROUNDS):
        high0, low0 = _halves(x0.cast(U64) * int(rng.MULTIPLIERS[0]))
        high1, low1 = _halves(x2.cast(U64) * int(rng.MULTIPLIERS[1]))
        x0, x2 = high1 ^ x1 ^ k0, high0 ^ x3 ^ k1
        x1, x3 = low1, low0
        k0, k1 = k0 + int(rng.WEYL[0]), k1 + int(rng.WEYL[1])
    return [x0, x1, x2, x3]


def _halves(wide: Expr) -> tuple[Expr, Expr]:
    """The high and the low word of a u64."""
    return (wide >> 32).cast(U32), wide.cast(U32)


def _key_words(key: Array) -> list[Expr]:
    return [key[[index(key.emit, k)]] for k in (0, 1)]


def _choose(words: Sequence[Expr], which: Expr) -> Expr:
    """The word that an index names."""
    chosen = words[0]
    for k, word in enumerate(words[1:], 1):
        chosen = select(which.equals(k), word, chosen)
    return chosen


@lowers(rng.Fold)
def _fold(op: rng.Fold, emit: Builder) -> Sequence[Value]:
    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        key, data = arrays
        high, low = _halves(data[[]].cast(U64))
        tag = [constant(key.emit, word, U32) for word in (0, rng.FOLD_TAG)]
        return _choose(philox([low, high, *tag], _key_words(key))[:2], indices[0])

    return (generic(emit, op.operands, (2,), formula),)


@lowers(rng.Bits)
def _bits(op: rng.Bits, emit: Builder) -> Sequence[Value]:
    """Blocks as rows of four words, each block computed once; then the words by their number."""
    shape = tensor_type(op.result).shape

    def block(indices: list[Expr], arrays: list[Array]) -> Array:
        (key,) = arrays
        high, low = _halves(indices[0].cast(U64))
        zero = constant(key.emit, 0, U32)
        words = philox([low, high, zero, zero], _key_words(key))
        return stage(key.emit, (WORDS,), lambda at: _choose(words, at[0]))

    def word(indices: list[Expr], arrays: list[Array]) -> Expr:
        (blocks,) = arrays
        place = size(blocks.emit, 0)
        for position, extent in zip(indices, shape, strict=True):
            place = place * extent + position
        row = place // WORDS
        return blocks[[row, place - row * WORDS]]

    blocks = generic(emit, op.operands, (ceil_divide(product(shape), WORDS),), block)
    return (generic(emit, (blocks,), shape, word),)
