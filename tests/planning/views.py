"""Random programs in which everything is read through views: parts, steps, turned and unit axes.

A view is made backwards: it begins with the shape that is wanted and finds a larger or other array that
has these elements in it. So every operation can be given each of its operands in any strides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import TypeAlias

import numpy as np

from dlc.dialects import array, flow, nn
from dlc.dialects.array.convolution_layouts import LAYOUTS
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.pieces import slice_axis
from dlc.ir.attributes import Dense
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import evaluate
from dlc.ir.types import F32, I32, I64, TensorType
from tests.lowering.everywhere import HERE, Program

View: TypeAlias = Callable[[Builder, Sequence[Value]], Value]
"""Writes a view of the inputs."""

SIZES = (1, 1, 2, 3, 4, 5, 8, 16, 17, 20)
LARGEST = 20_000
"""Elements of an input, at most."""


@dataclass(slots=True)
class Views:
    """Makes views, and notes the inputs that they are of."""

    random: Random
    types: list[TensorType] = field(default_factory=list[TensorType])

    def of(self, shape: Iterable[int], steps: int = 3) -> View:
        """An array of this shape that lies in others somehow."""
        shape = tuple(shape)
        if steps == 0 or self.random.random() < 0.2:
            return self._source(shape)
        made = self.random.choice(_KINDS)(self, shape, steps - 1)
        return made if made is not None else self.of(shape, steps - 1)

    def _source(self, shape: tuple[int, ...]) -> View:
        """An input, or what a kernel makes of it."""
        number = len(self.types)
        self.types.append(TensorType(F32, shape))
        kind = self.random.randrange(4)

        def source(emit: Builder, inputs: Sequence[Value]) -> Value:
            value = inputs[number]
            if kind == 0 and shape:
                return emit(array.CumulativeSum(value, 0))
            return emit(array.Tanh(value)) if kind == 1 else value

        return source

    def permuted(self, shape: tuple[int, ...], steps: int) -> View | None:
        axes = list(range(len(shape)))
        self.random.shuffle(axes)
        inner = self.of([shape[axes.index(k)] for k in range(len(shape))], steps)
        return lambda emit, inputs: emit(array.Transpose(inner(emit, inputs), tuple(axes)))

    def reversed(self, shape: tuple[int, ...], steps: int) -> View | None:
        if not shape:
            return None
        inner, axis = self.of(shape, steps), self.random.randrange(len(shape))
        return lambda emit, inputs: emit(array.Reverse(inner(emit, inputs), (axis,)))

    def sliced(self, shape: tuple[int, ...], steps: int) -> View | None:
        """A range of a larger array along each axis, with a step perhaps."""
        random = self.random
        by = [random.choice((1, 1, 1, 2, 3)) for _ in shape]
        starts = [random.choice((0, 0, 1, 4)) for _ in shape]
        limits = [s + (n - 1) * k + 1 for s, n, k in zip(starts, shape, by, strict=True)]
        larger = [limit + random.choice((0, 0, 1, 3)) for limit in limits]
        if prod(larger) > LARGEST:
            return None
        inner = self.of(larger, steps)
        return lambda emit, inputs: emit(
            array.Slice(inner(emit, inputs), tuple(starts), tuple(limits), tuple(by))
        )

    def indexed(self, shape: tuple[int, ...], steps: int) -> View | None:
        """One index of an axis that is not in the result, as `x[:, :, 1]`."""
        axis, size = self.random.randrange(len(shape) + 1), self.random.choice((1, 2, 3, 5))
        whole = (*shape[:axis], size, *shape[axis:])
        if len(shape) > 4 or prod(whole) > LARGEST:
            return None
        place, inner = self.random.randrange(size), self.of(whole, steps)

        def index(emit: Builder, inputs: Sequence[Value]) -> Value:
            one = slice_axis(emit, inner(emit, inputs), axis, place, place + 1)
            return emit(array.Reshape(one, shape))

        return index

    def reshaped(self, shape: tuple[int, ...], steps: int) -> View | None:
        """An axis that was two, two that were one, or axes of size 1 in other places."""
        random, other = self.random, [size for size in shape if size != 1]
        for _ in range(random.randrange(3)):
            other.insert(random.randint(0, len(other)), 1)
        k = random.randrange(len(other)) if other else 0
        if other and random.random() < 0.5:
            divisors = [d for d in range(1, other[k] + 1) if other[k] % d == 0]
            first = random.choice(divisors)
            other[k : k + 1] = [first, other[k] // first]
        elif len(other) > 1 and k + 1 < len(other):
            other[k : k + 2] = [other[k] * other[k + 1]]
        inner = self.of(other, steps)
        return lambda emit, inputs: emit(array.Reshape(inner(emit, inputs), shape))

    def joined(self, shape: tuple[int, ...], steps: int) -> View | None:
        """Two arrays beside each other."""
        axes = [axis for axis, size in enumerate(shape) if size > 1]
        if not axes:
            return None
        axis = self.random.choice(axes)
        first = self.random.randrange(1, shape[axis])
        pieces = [
            self.of((*shape[:axis], size, *shape[axis + 1 :]), steps)
            for size in (first, shape[axis] - first)
        ]
        return lambda emit, inputs: emit(
            array.Concatenate([piece(emit, inputs) for piece in pieces], axis)
        )

    def multiplied(self, shape: tuple[int, ...], steps: int) -> View | None:
        """A product, which is written where others want it."""
        if len(shape) < 2:
            return None
        depth = self.random.choice(SIZES)
        lhs = self.of((*shape[:-1], depth), steps)
        rhs = self.of((*shape[:-2], depth, shape[-1]), steps)
        return lambda emit, inputs: emit(array.MatMul(lhs(emit, inputs), rhs(emit, inputs)))


_KINDS: Sequence[Callable[[Views, tuple[int, ...], int], View | None]] = (
    Views.permuted,
    Views.reversed,
    Views.sliced,
    Views.indexed,
    Views.indexed,
    Views.reshaped,
    Views.joined,
    Views.multiplied,
)

# What reads the views: each writes an operation whose operands are views.

Reader: TypeAlias = Callable[[Views], View]


def product(views: Views) -> View:
    random = views.random
    batch = [random.choice((1, 2, 3)) for _ in range(random.choice((0, 0, 1, 2)))]
    m, k, n = (random.choice((*SIZES, 33, 65)) for _ in range(3))
    lhs, rhs = views.of((*batch, m, k)), views.of((*batch, k, n))
    return lambda emit, inputs: emit(array.MatMul(lhs(emit, inputs), rhs(emit, inputs)))


def convolution(views: Views) -> View:
    random = views.random
    dims = random.choice(("nwc", "ncw", "nhwc", "nchw"))
    layout = LAYOUTS[dims]
    spatial = layout.rank - 2
    groups = random.choice((1, 1, 1, 2, 4))
    inner, outer = (
        random.choice((1, 3, 4) if groups == 1 else (1, 2)),
        random.choice((1, 3, 8, 17)),
    )
    if random.random() < 0.3:
        groups, inner, outer = random.choice((4, 16)), 1, 1
    taps = [random.choice((1, 2, 3)) for _ in range(spatial)]
    extents = [random.choice((4, 5, 9)) for _ in range(spatial)]
    strides = tuple([random.choice((1, 1, 2)) for _ in range(spatial)])
    padding = tuple([(random.randrange(t), random.randrange(t)) for t in taps])
    channels = groups * inner
    picture = views.of(
        evaluate(size, {}) for size in layout.picture(random.choice((1, 2)), extents, channels)
    )
    kernel = (
        (*taps, inner, groups * outer) if layout.channels_last else (groups * outer, inner, *taps)
    )
    weights, ones = views.of(kernel), (1,) * spatial
    return lambda emit, inputs: emit(
        array.Convolution(
            picture(emit, inputs), weights(emit, inputs), strides, padding, ones, ones, groups, dims
        )
    )


def _one(views: Views, least: int = 1) -> tuple[View, tuple[int, ...], int]:
    """A view of any shape, and an axis of it."""
    random = views.random
    shape = tuple([random.choice(SIZES) for _ in range(random.randint(least, 3))])
    return views.of(shape), shape, random.randrange(len(shape))


def along_an_axis(views: Views) -> View:
    view, _, axis = _one(views)
    backward = views.random.random() < 0.5

    def write(emit: Builder, inputs: Sequence[Value]) -> Value:
        value = view(emit, inputs)
        match kind:
            case "softmax":
                return emit(nn.Softmax(value, axis))
            case "sum":
                return emit(array.ReduceSum(value, (axis,)))
            case "max":
                return emit(array.ReduceMax(value, (axis,)))
            case "argmax":
                return emit(array.ArgMax(value, axis))
            case "sort":
                return emit.all(array.Sort(value, (), axis))[0]
            case "top_k":
                return emit.all(array.TopK(value, axis, 1))[0]
            case _:
                return emit(array.CumulativeSum(value, axis, backward))

    kind = views.random.choice(("softmax", "sum", "max", "argmax", "sort", "top_k", "cumsum"))
    return write


def window(views: Views) -> View:
    random = views.random
    shape = [random.choice((3, 4, 5, 9)) for _ in range(random.randint(1, 3))]
    view, function = views.of(shape), random.choice(("max", "sum"))
    taps = tuple([random.choice((1, 2, 3)) for _ in shape])
    strides = tuple([random.choice((1, 2)) for _ in shape])
    ones, none = (1,) * len(shape), ((0, 0),) * len(shape)
    return lambda emit, inputs: emit(
        array.ReduceWindow(view(emit, inputs), function, taps, strides, none, ones)
    )


def _indices(random: Random, count: int, extent: int) -> Dense:
    return Dense.of(np.array([random.randrange(extent) for _ in range(count)], dtype=np.int32), I32)


def gathered(views: Views) -> View:
    view, shape, axis = _one(views)
    indices = _indices(views.random, 3, shape[axis])
    return lambda emit, inputs: emit(
        array.Gather(view(emit, inputs), [emit(array.Constant(indices))], (axis,))
    )


def scattered(views: Views) -> View:
    view, shape, axis = _one(views)
    rest = [size for k, size in enumerate(shape) if k != axis]
    indices, updates = _indices(views.random, 3, shape[axis]), views.of((3, *rest))
    mode = views.random.choice(("set", "add", "max"))
    return lambda emit, inputs: emit(
        array.Scatter(
            view(emit, inputs),
            updates(emit, inputs),
            [emit(array.Constant(indices))],
            (axis,),
            mode,
        )
    )


def updated(views: Views) -> View:
    view, shape, _ = _one(views)
    part = [views.random.randint(1, size) for size in shape]
    starts = [views.random.randint(0, size - n) for size, n in zip(shape, part, strict=True)]
    update = views.of(part)

    def write(emit: Builder, inputs: Sequence[Value]) -> Value:
        at = [emit(array.Constant(Dense.of(np.array(start), I64))) for start in starts]
        return emit(array.DynamicUpdateSlice(view(emit, inputs), update(emit, inputs), at))

    return write


def attended(views: Views) -> View:
    random = views.random
    batch = [random.choice((1, 2)) for _ in range(random.choice((1, 2)))]
    m, n, d, e = (random.choice((1, 3, 5, 16)) for _ in range(4))
    query, keys, values = (views.of((*batch, *size)) for size in ((m, d), (n, d), (n, e)))
    return lambda emit, inputs: emit.all(
        nn.Attention(query(emit, inputs), keys(emit, inputs), values(emit, inputs), (), 0.5)
    )[0]


def added(views: Views) -> View:
    view, shape, _ = _one(views)
    other = views.of(shape)
    return lambda emit, inputs: emit(array.Add(view(emit, inputs), other(emit, inputs)))


def walked(views: Views) -> View:
    """A loop whose rounds multiply slices along any axis, and stack the results along any."""
    random = views.random
    length, m, k, n = random.choice((2, 3)), *(random.choice((1, 3, 8, 17)) for _ in range(3))
    x_axis, y_axis, backward = random.randrange(3), random.randrange(3), random.random() < 0.3
    shape = [m, k]
    shape.insert(x_axis, length)
    x, w = views.of(shape), views.of((k, n))

    def write(emit: Builder, inputs: Sequence[Value]) -> Value:
        walked, weights = x(emit, inputs), w(emit, inputs)
        row = tensor_type(walked).with_shape((m, k))
        body = Block([TensorType(I64), row, tensor_type(weights)])
        inner = Builder(body, HERE)
        inner.place(flow.Yield((inner(array.MatMul(*body.arguments[1:])),)))
        axes = (x_axis,), (y_axis,)
        scan = flow.Scan((), (walked,), (weights,), body, length, *axes, backward)
        return emit.all(scan)[0]

    return write


READERS: Sequence[Reader] = (
    *(product, product, product, convolution, convolution, along_an_axis, along_an_axis),
    *(window, gathered, scattered, updated, attended, added, walked),
)


def read_twice(views: Views, reader: Reader) -> View:
    """What reads views, and something that reads what it makes through a view again."""
    made = reader(views)
    random = views.random
    kind = random.randrange(3)

    def write(emit: Builder, inputs: Sequence[Value]) -> Value:
        value = made(emit, inputs)
        shape = [evaluate(size, {}) for size in tensor_type(value).shape]
        if kind == 0 or not shape or not tensor_type(value).dtype.is_float:
            return value
        axis = len(shape) - 1
        half = shape[axis] - shape[axis] // 2
        part = slice_axis(emit, value, axis, 0, half)
        if kind == 1:
            return emit(array.Tanh(emit(array.Concatenate([part, value], axis))))
        rows = emit(array.Reshape(part, (prod(shape[:axis]), half)))
        return emit(array.MatMul(emit(array.Transpose(rows, (1, 0))), rows))

    return write


def program_of(seed: int, readers: Sequence[Reader] = READERS) -> tuple[Program, list[TensorType]]:
    """A random program and the types of its inputs."""
    views = Views(Random(seed))
    made = read_twice(views, views.random.choice(readers))

    def program(emit: Builder, *inputs: Value) -> Sequence[Value]:
        return (made(emit, inputs),)

    return program, views.types
