"""Counter-based random numbers: each number is a function of the key and of its index alone.

The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3",
SC 2011). A key is a u32[2]. Element i, row-major, of `rng.bits` is word i % 4 of the block whose counter is
[i // 4 mod 2**32, i // 4 div 2**32, 0, 0]. `rng.fold` takes the first two words of the block whose counter
is [data mod 2**32, data div 2**32, 0, 1], so that keys and numbers never come from the same block.

All distributions are computed from these bits by `array` operations, which are exact except logarithm and
cosine: bits, uniforms, integers and permutations are the same on every target.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import array
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.elementwise import show, tensor_type
from dlc.dialects.array.shape import reshape
from dlc.dialects.decomposed import Decomposed
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.dims import Shape, Size
from dlc.ir.types import BOOL, F32, F64, I32, I64, U32, U64, DType, TensorType

KEY = TensorType(U32, (2,))
"""The type of a key."""

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
"""The golden ratio and sqrt(3) - 1, as 32-bit fractions: the increments of the key in each round."""
ROUNDS = 10
FOLD_TAG = 1
"""The last word of the counter when a key is derived; it is 0 when numbers are drawn."""

Words = NDArray[np.uint64]


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, ...]:
    """Blocks of four 32-bit words, held in u64, from blocks of four counter words and a key."""
    low32 = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = x0 * MULTIPLIERS[0], x2 * MULTIPLIERS[1]
        x0, x1, x2, x3 = (
            (second >> shift) ^ x1 ^ np.uint64(k0),
            second & low32,
            (first >> shift) ^ x3 ^ np.uint64(k1),
            first & low32,
        )
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return x0, x1, x2, x3


def _key_words(key: Array) -> tuple[int, int]:
    low, high = key.tolist()
    return int(low), int(high)


def check_key(op: Op, key: Value) -> None:
    """Raise D0314 unless the value is a key."""
    if key.type is not KEY:
        raise op.fail(f"a random key is {KEY.text}, found {show(key)}", code="D0314")


def draws(op: Op, key: Value, dtype: DType, shape: Shape, *, floats: bool) -> TensorType:
    """The type of the random numbers; raises D0302 for a dtype of the wrong kind."""
    check_key(op, key)
    if dtype.is_float != floats or dtype is BOOL:
        raise op.fail(f"{op.name} has no meaning for {dtype.name}", code="D0302")
    return TensorType(dtype, shape)


@op("rng.key")
class Key(Decomposed):
    """The key of a seed, a u64 scalar: its low and its high 32 bits."""

    seed: Value = operand()

    not_differentiable = "a seed is an integer"

    def infer(self) -> TensorType:
        if self.seed.type is not TensorType(U64):
            raise self.fail(f"a seed is one u64, found {show(self.seed)}", code="D0314")
        return KEY

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        return (_words(emit, self.seed),)


def _words(emit: Builder, number: Value) -> Value:
    """A u64 scalar as the u32[2] of its low and its high half."""
    half = array.constant_like(emit, 32, number)
    low = emit(array.Cast(number, U32))
    high = emit(array.Cast(emit(array.ShiftRight(number, half)), U32))
    return emit(array.Concatenate((reshape(emit, low, (1,)), reshape(emit, high, (1,))), 0))


@op("rng.fold")
class Fold(Op):
    """A new key from a key and a number, an i64 or u64 scalar: different numbers give independent keys."""

    random_key: Value = operand()
    data: Value = operand()

    not_differentiable = "a key is made of integers"

    def infer(self) -> TensorType:
        check_key(self, self.random_key)
        if self.data.type not in (TensorType(I64), TensorType(U64)):
            raise self.fail(
                f"a number folded into a key is one i64 or u64, found {show(self.data)}",
                code="D0314",
            )
        return KEY

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        key, data = inputs
        number = data.astype(np.uint64).reshape(1)
        low, high = number & np.uint64(0xFFFFFFFF), number >> np.uint64(32)
        zero = np.zeros(1, np.uint64)
        block = philox((low, high, zero, zero + np.uint64(FOLD_TAG)), _key_words(key))
        return np.concatenate(block[:2]).astype(np.uint32)


@op("rng.bits")
class Bits(Op):
    """Independent random u32 of the given shape, uniform over all values."""

    random_key: Value = operand()
    shape: Shape = attribute()

    not_differentiable = "its operand is a key"

    def infer(self) -> TensorType:
        check_key(self, self.random_key)
        return TensorType(U32, self.shape)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        shape = at.shape(self.shape)
        size = math.prod(shape)
        number = np.arange((size + 3) // 4, dtype=np.uint64)
        low, high = number & np.uint64(0xFFFFFFFF), number >> np.uint64(32)
        zero = np.zeros_like(number)
        block = philox((low, high, zero, zero), _key_words(inputs[0]))
        return np.stack(block, -1).astype(np.uint32).reshape(-1)[:size].reshape(shape)


def words(emit: Builder, key: Value, shape: Shape, count: int) -> list[Value]:
    """`count` random u32 for each element, from neighbouring elements of one `rng.bits`."""
    drawn = emit(Bits(key, (*shape, count)))
    last = len(shape)
    return [
        reshape(emit, array.slice_axis(emit, drawn, last, k, k + 1), shape) for k in range(count)
    ]


def long_word(emit: Builder, low: Value, high: Value) -> Value:
    """A u64 from its halves."""
    wide = emit(array.Cast(high, U64))
    upper = emit(array.ShiftLeft(wide, array.constant_like(emit, 32, wide)))
    return emit(array.Or(upper, emit(array.Cast(low, U64))))


def fraction(emit: Builder, bits: Value, count: int, dtype: DType) -> Value:
    """The top `count` bits as a binary fraction, exactly: a number in [0, 1)."""
    width = tensor_type(bits).dtype.bits
    top = emit(array.ShiftRight(bits, array.constant_like(emit, width - count, bits)))
    return times(emit, emit(array.Cast(top, dtype)), 2.0**-count)


def inside(emit: Builder, bits: Value, dtype: DType) -> Value:
    """`(bits + 1/2) / 2**width`, rounded: a number in (0, 1], small ones with full precision."""
    width = tensor_type(bits).dtype.bits
    scaled = times(emit, emit(array.Cast(bits, dtype)), 2.0**-width)
    return plus(emit, scaled, 2.0 ** -(width + 1))


@op("rng.uniform")
class Uniform(Decomposed):
    """Numbers in [0, 1): the top 24 bits of one word times 2**-24; for f64 53 bits of two words.

    f16 and bf16 take the top 11 and 8 bits, so that 1 is never reached.
    """

    random_key: Value = operand()
    shape: Shape = attribute()
    dtype: DType = attribute(default=F32)

    not_differentiable = "its operand is a key"

    def infer(self) -> TensorType:
        return draws(self, self.random_key, self.dtype, self.shape, floats=True)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        if self.dtype is F64:
            low, high = words(emit, self.random_key, self.shape, 2)
            return (fraction(emit, long_word(emit, low, high), 53, F64),)
        bits = emit(Bits(self.random_key, self.shape))
        return (fraction(emit, bits, array.MANTISSA[self.dtype.name], self.dtype),)


@op("rng.normal")
class Normal(Decomposed):
    """Numbers of the normal distribution with mean 0 and standard deviation 1 (Box and Muller, 1958).

    `sqrt(-2 log u) cos(2 pi v)` of two uniforms of one word each, for f64 of two words. f16 and bf16 are
    computed in f32 and rounded.
    """

    random_key: Value = operand()
    shape: Shape = attribute()
    dtype: DType = attribute(default=F32)

    not_differentiable = "its operand is a key"

    def infer(self) -> TensorType:
        return draws(self, self.random_key, self.dtype, self.shape, floats=True)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        if self.dtype is F64:
            drawn = words(emit, self.random_key, self.shape, 4)
            first, second = long_word(emit, *drawn[:2]), long_word(emit, *drawn[2:])
            u, v = inside(emit, first, F64), fraction(emit, second, 53, F64)
        else:
            first, second = words(emit, self.random_key, self.shape, 2)
            u, v = inside(emit, first, F32), fraction(emit, second, 24, F32)
        radius = emit(array.Sqrt(times(emit, emit(array.Log(u)), -2.0)))
        direction = emit(array.Cos(times(emit, v, 2 * math.pi)))
        result = emit(array.Multiply(radius, direction))
        return (result if self.dtype in (F32, F64) else emit(array.Cast(result, self.dtype)),)


@op("rng.bernoulli")
class Bernoulli(Decomposed):
    """True with the probability of each element: where a uniform of the same dtype is below it."""

    random_key: Value = operand()
    probability: Value = operand()

    not_differentiable = "its result is a bool"

    def infer(self) -> TensorType:
        type = tensor_type(self.probability)
        return draws(self, self.random_key, type.dtype, type.shape, floats=True).with_dtype(BOOL)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        type = tensor_type(self.probability)
        uniform = emit(Uniform(self.random_key, type.shape, type.dtype))
        return (emit(array.Compare(uniform, self.probability, "lt")),)


@op("rng.categorical")
class Categorical(Decomposed):
    """An index along the axis, as an i32, with probability `softmax(logits)`, one for each row.

    By the Gumbel-max trick, `argmax(logits - log(-log(u)))`, in f32 (f64 for f64 logits).
    """

    random_key: Value = operand()
    logits: Value = operand()
    axis: int = attribute()

    not_differentiable = "its result is an index"

    def infer(self) -> TensorType:
        type = tensor_type(self.logits)
        draws(self, self.random_key, type.dtype, type.shape, floats=True)
        array.check_axis(self, self.axis, type)
        array.check_numbered(self, self.axis, type)
        return TensorType(I32, type.shape[: self.axis] + type.shape[self.axis + 1 :])

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        type = tensor_type(self.logits)
        logits = self.logits
        if type.dtype is F64:
            u = self._open(emit, long_word(emit, *words(emit, self.random_key, type.shape, 2)), F64)
        else:
            u = self._open(emit, emit(Bits(self.random_key, type.shape)), F32)
            logits = logits if type.dtype is F32 else emit(array.Cast(logits, F32))
        inner = emit(array.Negate(emit(array.Log(u))))
        noisy = emit(array.Subtract(logits, emit(array.Log(inner))))
        return (emit(array.ArgMax(noisy, self.axis)),)

    def _open(self, emit: Builder, bits: Value, dtype: DType) -> Value:
        """An odd multiple of a power of 2 in (0, 1), without the ends, whose logarithms are infinite."""
        count = array.MANTISSA[dtype.name] - 1
        return plus(emit, fraction(emit, bits, count, dtype), 2.0 ** -(count + 1))


@op("rng.randint")
class RandInt(Decomposed):
    """Integers in [low, high), scalars of the result's dtype: a random u64 modulo their distance.

    An empty range gives low. The probabilities of two numbers differ by at most 2**-64.
    """

    random_key: Value = operand()
    low: Value = operand()
    high: Value = operand()
    shape: Shape = attribute()

    not_differentiable = "its results are integers"

    def infer(self) -> TensorType:
        type = tensor_type(self.low)
        if type.rank or self.high.type is not type:
            raise self.fail(
                f"the ends of rng.randint are two scalars of one type, found {show(self.low)} and "
                f"{show(self.high)}"
            )
        return draws(self, self.random_key, type.dtype, self.shape, floats=False)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        dtype = tensor_type(self.low).dtype
        # Conversion to u64 extends the sign, so the distance comes out right modulo 2**64.
        low, high = (emit(array.Cast(end, U64)) for end in (self.low, self.high))
        distance = emit(array.Subtract(high, low))
        rising = emit(array.Compare(self.low, self.high, "lt"))
        one = array.constant_like(emit, 1, distance)
        distance = emit(array.Select(rising, distance, one))
        bits = long_word(emit, *words(emit, self.random_key, self.shape, 2))
        step = emit(array.Remainder(bits, emit(array.Broadcast(distance, self.shape, ()))))
        shifted = emit(array.Add(step, emit(array.Broadcast(low, self.shape, ()))))
        return (emit(array.Cast(shifted, dtype)),)


@op("rng.permutation")
class Permutation(Decomposed):
    """A random permutation of 0 to `count` - 1: the order of random u64."""

    random_key: Value = operand()
    count: Size = attribute()
    dtype: DType = attribute(default=I32)

    not_differentiable = "its results are integers"

    def infer(self) -> TensorType:
        return draws(self, self.random_key, self.dtype, (self.count,), floats=False)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        bits = long_word(emit, *words(emit, self.random_key, (self.count,), 2))
        numbers = emit(array.Iota((self.count,), 0, self.dtype))
        return (emit.all(array.Sort(bits, (numbers,), 0))[1],)
