"""Nodes that rearrange: shapes, parts, copies, and chains by which exporters compute shapes."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import numpy_helper

from benchmarks.fuzz.graph.building import Graph, Maker, Shape, Value, fixed, same

MOST = 600
"""Elements that what is copied may have."""


def any_value(graph: Graph) -> Value | None:
    """A value of any dtype, more often of floats."""
    return graph.pick(graph.random.choice(("f", "f", "f", "i", "b")))


def transposed(graph: Graph) -> Value | None:
    """The axes in another order."""
    x = any_value(graph)
    if x is None or not x.rank:
        return None
    axes = list(range(x.rank))
    graph.random.shuffle(axes)
    if graph.random.random() < 0.2:
        return graph.make("Transpose", [x], x.shape[::-1], x.letter)
    return graph.make("Transpose", [x], tuple([x.shape[k] for k in axes]), x.letter, perm=axes)


def flattened(graph: Graph) -> Value | None:
    """Two axes of all."""
    x = graph.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return None
    axis = graph.random.randint(0, x.rank)
    return graph.make("Flatten", [x], (_joined(x.shape[:axis]), _joined(x.shape[axis:])), axis=axis)


def _joined(shape: Shape) -> tuple[int, int]:
    return prod(one for one, _ in shape), prod(two for _, two in shape)


def _last_joined(x: Value) -> Shape:
    return (*x.shape[:-2], _joined(x.shape[-2:]))


def reshaped(graph: Graph) -> Value | None:
    """By a constant: sizes that stay (0), one to be found (-1), a fixed size taken apart."""
    x = any_value(graph)
    if x is None or not x.rank:
        return None
    axis = graph.random.randrange(x.rank)
    if x.rank >= 2 and graph.random.random() < 0.5:
        target = [0] * (x.rank - 2) + [-1]
        return graph.make("Reshape", [x, graph.ints(*target)], _last_joined(x), x.letter)
    if not x.known(axis):
        return None
    size = x.shape[axis][0]
    part = graph.random.choice([n for n in range(1, size + 1) if size % n == 0])
    shape = (*x.shape[:axis], same(size // part), (part, part), *x.shape[axis + 1 :])
    unknown = [k for k in range(len(shape)) if shape[k][0] != shape[k][1]]
    if len([k for k in unknown if k >= axis]) > 1:
        return None
    target = [0 if k < axis else shape[k][0] for k in range(len(shape))]
    for k in unknown:
        if k >= axis:
            target[k] = -1
    return graph.make("Reshape", [x, graph.ints(*target)], shape, x.letter)


def reshaped_by_a_chain(graph: Graph) -> Value | None:
    """Shape, Gather or Slice, Concat, Reshape: how exporters say "flatten but keep the batch"."""
    x = graph.pick(wanted=lambda v: v.rank >= 2)
    if x is None:
        return None
    shape = graph.make("Shape", [x], fixed(x.rank), "i")
    axis = graph.random.randrange(x.rank)
    if graph.random.random() < 0.5:
        index = graph.constant(np.asarray(axis, np.int64))
        size = graph.make("Gather", [shape, index], (), "i", axis=0)
        kept = unsqueezed_by(graph, size, 0)
    else:
        ends = graph.ints(axis), graph.ints(axis + 1), graph.ints(0)
        kept = graph.make("Slice", [shape, *ends], fixed(1), "i")
    before, rest = x.shape[axis], _joined((*x.shape[:axis], *x.shape[axis + 1 :]))
    if graph.random.random() < 0.5:
        target = graph.make("Concat", [kept, graph.ints(-1)], fixed(2), "i", axis=0)
        return graph.make("Reshape", [x, target], (before, rest))
    target = graph.make("Concat", [graph.ints(-1), kept], fixed(2), "i", axis=0)
    return graph.make("Reshape", [x, target], (rest, before))


def merged_heads(graph: Graph) -> Value | None:
    """Sizes that are multiplied and divided as numbers, then a Reshape by them."""
    x = graph.pick(wanted=lambda v: v.rank >= 2)
    if x is None:
        return None
    shape = graph.make("Shape", [x], fixed(x.rank), "i")
    sizes: list[Value] = []
    for k in (0, 1):
        index = graph.constant(np.asarray(k, np.int64))
        sizes.append(graph.make("Gather", [shape, index], (), "i"))
    product = graph.make("Mul", sizes, (), "i")
    first = unsqueezed_by(graph, product, 0)
    target = graph.make("Concat", [first, graph.ints(-1)], fixed(2), "i", axis=0)
    return graph.make("Reshape", [x, target], (_joined(x.shape[:2]), _joined(x.shape[2:])))


def unsqueezed_by(graph: Graph, x: Value, axis: int) -> Value:
    """A value with one more axis of size 1."""
    shape = (*x.shape[:axis], (1, 1), *x.shape[axis:])
    if graph.opset >= 13:
        return graph.make("Unsqueeze", [x, graph.ints(axis)], shape, x.letter)
    return graph.make("Unsqueeze", [x], shape, x.letter, axes=[axis])


def unsqueezed(graph: Graph) -> Value | None:
    """One more axis."""
    x = any_value(graph)
    return (
        None
        if x is None or x.rank > 4
        else unsqueezed_by(graph, x, graph.random.randint(0, x.rank))
    )


def squeezed(graph: Graph) -> Value | None:
    """One axis of size 1 less."""
    x = graph.pick(wanted=lambda v: (1, 1) in v.shape)
    if x is None:
        return None
    axis = x.shape.index((1, 1))
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    if graph.opset >= 13:
        return graph.make("Squeeze", [x, graph.ints(axis - x.rank)], shape)
    return graph.make("Squeeze", [x], shape, axes=[axis])


def concatenated(graph: Graph) -> Value | None:
    """Behind each other, with itself or with a constant."""
    x = graph.pick(wanted=lambda v: v.rank > 0 and v.elements <= MOST)
    if x is None:
        return None
    axis = graph.axis(x)
    place = axis % x.rank
    if x.is_fixed and graph.random.random() < 0.5:
        sizes = [*x.sizes]
        sizes[place] = graph.random.choice((1, 2, 3))
        other: Value | str = graph.constant(graph.numbers(sizes))
        more = (sizes[place], sizes[place])
    else:
        found = graph.pick(wanted=lambda v: v.rank == x.rank and _but(v, place) == _but(x, place))
        other = found or x
        more = (found or x).shape[place]
    size = x.shape[place]
    shape = (*x.shape[:place], (size[0] + more[0], size[1] + more[1]), *x.shape[place + 1 :])
    return graph.make("Concat", [x, other], shape, axis=axis)


def _but(x: Value, axis: int) -> Shape:
    return (*x.shape[:axis], *x.shape[axis + 1 :])


def split(graph: Graph) -> Value | None:
    """Two parts, one of them negated and joined again perhaps."""
    x = graph.pick(wanted=lambda v: any(v.known(k) and v.shape[k][0] > 1 for k in range(v.rank)))
    if x is None:
        return None
    axis = next(k for k in range(x.rank) if x.known(k) and x.shape[k][0] > 1)
    size = x.shape[axis][0]
    first = graph.random.randrange(1, size)
    if graph.opset >= 13:
        parts = graph.node("Split", [x.name, graph.ints(first, size - first)], 2, axis=axis)
    else:
        parts = graph.node("Split", [x.name], 2, axis=axis, split=[first, size - first])
    made = [
        Value(name, (*x.shape[:axis], (n, n), *x.shape[axis + 1 :]))
        for name, n in zip(parts, (first, size - first), strict=True)
    ]
    graph.keep(made[1])
    return made[0]


def sliced(graph: Graph) -> Value | None:
    """A part of one or two axes, with a step, backwards perhaps where the size is known."""
    x = any_value(graph)
    if x is None or not x.rank:
        return None
    count = graph.random.choice((1, 1, 2)) if x.rank > 1 else 1
    axes = sorted(graph.random.sample(range(x.rank), count))
    shape, rows = list(x.shape), list[tuple[int, int, int]]()
    for axis in axes:
        random = graph.random
        if x.known(axis) and random.random() < 0.3:
            start, stop, step = random.choice((-1, 10**6)), -(10**9), random.choice((-1, -2))
        elif x.known(axis):
            start, stop = (
                random.randint(-x.shape[axis][0], 1),
                random.choice((2, 5, 2**31 - 1, 2**63 - 1)),
            )
            step = random.choice((1, 1, 2))
        else:
            start, stop, step = random.choice(((0, 2**63 - 1, 1), (0, -1, 1), (1, 2**31 - 1, 1)))
        rows.append((start, stop, step))
        ends = slice(start, stop, step)
        shape[axis] = (len(range(shape[axis][0])[ends]), len(range(shape[axis][1])[ends]))
    if any(size < 1 for pair in shape for size in pair):
        return None
    starts, stops, steps = zip(*rows, strict=True)
    given = [graph.ints(*starts), graph.ints(*stops), graph.ints(*axes), graph.ints(*steps)]
    return graph.make("Slice", [x, *given], tuple(shape), x.letter)


def expanded(graph: Graph) -> Value | None:
    """More of an axis of size 1, or one more axis."""
    x = graph.pick(wanted=lambda v: v.elements <= MOST // 3)
    if x is None:
        return None
    sizes = [3 if pair == (1, 1) else 1 for pair in x.shape]
    shape = tuple([(3, 3) if pair == (1, 1) else pair for pair in x.shape])
    if graph.random.random() < 0.4 and x.rank < 4:
        return graph.make("Expand", [x, graph.ints(2, *sizes)], ((2, 2), *shape))
    return graph.make("Expand", [x, graph.ints(*sizes)], shape)


def expanded_like(graph: Graph) -> Value | None:
    """A row that is stretched to the shape of a value, which is computed."""
    x = graph.pick(wanted=lambda v: v.rank >= 1 and v.elements <= MOST)
    if x is None:
        return None
    shape = graph.make("Shape", [x], fixed(x.rank), "i")
    row = graph.constant(graph.numbers([1] * x.rank))
    made = graph.make("Expand", [row, shape], x.shape)
    return graph.make("Add", [x, made], x.shape)


def tiled(graph: Graph) -> Value | None:
    """Copies along each axis."""
    x = graph.pick(wanted=lambda v: v.rank > 0 and v.elements <= MOST // 4)
    if x is None:
        return None
    times = [graph.random.choice((1, 1, 2)) for _ in range(x.rank)]
    shape = tuple([(one * n, two * n) for (one, two), n in zip(x.shape, times, strict=True)])
    return graph.make("Tile", [x, graph.ints(*times)], shape)


def padded(graph: Graph) -> Value | None:
    """Zeros, a number, mirrored or repeated elements around."""
    x = graph.pick(wanted=lambda v: v.rank > 0 and v.elements <= MOST)
    if x is None:
        return None
    mode = graph.random.choice(("constant", "constant", "reflect", "edge"))
    ends: list[int] = []
    for _ in range(2):
        for pair in x.shape:
            most = 2 if mode != "reflect" else min(min(pair) - 1, 1)
            ends.append(graph.random.choice((0, 0, most)))
    shape = tuple(
        [
            (one + ends[k] + ends[k + x.rank], two + ends[k] + ends[k + x.rank])
            for k, (one, two) in enumerate(x.shape)
        ]
    )
    given: list[Value | str] = [x, graph.ints(*ends)]
    if mode == "constant" and graph.random.random() < 0.5:
        given.append(graph.constant(graph.scalar(0.5)))
    return graph.make("Pad", given, shape, mode=mode)


def measured(graph: Graph) -> Value | None:
    """What a shape says, as numbers."""
    x = graph.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return None
    kind = graph.random.choice(("Shape", "Size"))
    shape = fixed(x.rank) if kind == "Shape" else ()
    return graph.make(kind, [x], shape, "i")


def filled(graph: Graph) -> Value | None:
    """ConstantOfShape, of a shape that is computed, used beside the value."""
    x = graph.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return None
    shape = graph.make("Shape", [x], fixed(x.rank), "i")
    value = numpy_helper.from_array(graph.scalar(0.5).reshape(1), "value")
    ones = graph.make("ConstantOfShape", [shape], x.shape, value=value)
    return graph.make("Mul", [x, ones], x.shape)


def ranged(graph: Graph) -> Value | None:
    """The places along an axis, by Range, as numbers beside the value."""
    x = graph.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return None
    shape = graph.make("Shape", [x], fixed(x.rank), "i")
    last = graph.constant(np.asarray(x.rank - 1, np.int64))
    size = graph.make("Gather", [shape, last], (), "i")
    zero, one = (graph.constant(np.asarray(n, np.int64)) for n in (0, 1))
    places = graph.make("Range", [zero, size, one], x.shape[-1:], "i")
    numbers = graph.make("Cast", [places], x.shape[-1:], to=graph.onnx_float)
    return graph.make("Add", [x, numbers], x.shape)


def folded(graph: Graph) -> Value | None:
    """DepthToSpace and SpaceToDepth, of pictures."""
    if graph.random.random() < 0.5:
        x = graph.pick(wanted=lambda v: v.rank == 4 and v.known(1) and v.shape[1][0] % 4 == 0)
        if x is None:
            return None
        n, (c, _), h, w = x.shape
        shape = (n, same(c // 4), (h[0] * 2, h[1] * 2), (w[0] * 2, w[1] * 2))
        mode = graph.random.choice(("DCR", "CRD"))
        return graph.make("DepthToSpace", [x], shape, blocksize=2, mode=mode)
    x = graph.pick(wanted=lambda v: v.rank == 4 and all(n % 2 == 0 for s in v.shape[2:] for n in s))
    if x is None:
        return None
    n, (c, d), h, w = x.shape
    shape = (n, (c * 4, d * 4), (h[0] // 2, h[1] // 2), (w[0] // 2, w[1] // 2))
    return graph.make("SpaceToDepth", [x], shape, blocksize=2)


def resized(graph: Graph) -> Value | None:
    """A picture of another size."""
    x = graph.pick(wanted=lambda v: v.rank == 4 and v.elements <= MOST)
    if x is None:
        return None
    factor = graph.random.choice((2.0, 2.0, 3.0, 0.5))
    if factor < 1 and any(size % 2 for pair in x.shape[2:] for size in pair):
        factor = 2.0
    (h, hh), (w, ww) = x.shape[2:]
    sizes = [(int(one * factor), int(two * factor)) for one, two in ((h, hh), (w, ww))]
    scales = graph.constant(np.asarray([1, 1, factor, factor], np.float32))
    empty = graph.constant(np.zeros(0, np.float32))
    mode = graph.random.choice(("nearest", "linear"))
    more: dict[str, object] = {"mode": mode}
    more["coordinate_transformation_mode"] = graph.random.choice(
        ("half_pixel", "asymmetric", "pytorch_half_pixel")
    )
    if mode == "nearest":
        more["nearest_mode"] = graph.random.choice(
            ("round_prefer_floor", "floor", "ceil", "round_prefer_ceil")
        )
    return graph.make("Resize", [x, empty, scales], (*x.shape[:2], *sizes), **more)


def triangle(graph: Graph) -> Value | None:
    """Trilu, and EyeLike beside it."""
    x = graph.pick(wanted=lambda v: v.rank >= 2)
    if x is None or graph.opset < 14:
        return None
    if x.rank == 2 and graph.random.random() < 0.3:
        return graph.make(
            "EyeLike", [x], x.shape, dtype=graph.onnx_float, k=graph.random.randint(-1, 1)
        )
    k = graph.constant(np.asarray(graph.random.randint(-1, 2), np.int64))
    return graph.make("Trilu", [x, k], x.shape, upper=graph.random.randrange(2))


MAKERS: tuple[Maker, ...] = (
    *(transposed, transposed, flattened, reshaped, reshaped, reshaped_by_a_chain, merged_heads),
    *(unsqueezed, squeezed, concatenated, concatenated, split, sliced, sliced, expanded),
    *(expanded_like, tiled, padded, measured, filled, ranged, folded, resized, triangle),
)
