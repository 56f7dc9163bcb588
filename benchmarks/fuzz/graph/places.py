"""Nodes that read and write at places: gathers, scatters, orders, counts."""

from __future__ import annotations

import numpy as np

from benchmarks.fuzz.graph.building import Graph, Maker, Value, fixed

WAYS = ("none", "add", "mul", "max", "min")


def gathered(graph: Graph) -> Value | None:
    """Rows by constant places, some of them from the end."""
    x = graph.pick(graph.random.choice(("f", "f", "i")), lambda v: v.rank > 0)
    if x is None:
        return None
    axis = graph.axis(x)
    place = axis % x.rank
    size = min(x.shape[place])
    sizes = graph.random.choice(((), (2,), (2, 2), (1,)))
    places = graph.constant(graph.whole(sizes, -size, size))
    shape = (*x.shape[:place], *fixed(*sizes), *x.shape[place + 1 :])
    return graph.make("Gather", [x, places], shape, x.letter, axis=axis)


def embedded(graph: Graph) -> Value | None:
    """Rows of a table by integers that are computed."""
    ids = graph.pick("i", lambda v: v.elements <= 60) or graph.input("i")
    size = graph.constant(np.asarray(5, np.int64))
    inside = graph.make("Mod", [ids, size], ids.shape, "i")
    table = graph.constant(graph.numbers((5, 3)))
    return graph.make("Gather", [table, inside], (*ids.shape, (3, 3)))


def gathered_elements(graph: Graph) -> Value | None:
    """Elements along an axis."""
    x = graph.pick(wanted=lambda v: v.rank > 0 and v.is_fixed)
    if x is None:
        return None
    axis = graph.axis(x)
    size = x.sizes[axis]
    places = graph.constant(graph.whole(x.sizes, -size, size))
    return graph.make("GatherElements", [x, places], x.shape, axis=axis)


def gathered_nd(graph: Graph) -> Value | None:
    """Elements or rows by several places at once."""
    x = graph.pick(wanted=lambda v: v.rank >= 2)
    if x is None:
        return None
    sizes = [min(pair) for pair in x.shape[:2]]
    places = np.stack([graph.whole((3,), -size, size) for size in sizes], axis=-1)
    return graph.make("GatherND", [x, graph.constant(places)], (*fixed(3), *x.shape[2:]))


def scattered_elements(graph: Graph) -> Value | None:
    """Elements that are set, added and so on along an axis."""
    x = graph.pick(wanted=lambda v: v.rank > 0 and v.is_fixed)
    if x is None:
        return None
    axis, random = graph.axis(x), graph.random
    way = random.choice(WAYS if graph.opset >= 18 else WAYS[:3] if graph.opset >= 16 else WAYS[:1])
    sizes = [*x.sizes]
    count = random.randint(1, sizes[axis])
    sizes[axis] = count
    # Each place once where the last one would win: which one that is nobody promises.
    rows = [random.sample(range(x.sizes[axis]), count) for _ in range(int(np.prod(sizes)) // count)]
    other = np.moveaxis(np.zeros(sizes), axis, -1).shape
    places = np.moveaxis(np.asarray(rows, np.int64).reshape(other), -1, axis)
    given = graph.constant(np.ascontiguousarray(places)), graph.constant(graph.numbers(sizes))
    more = {} if way == "none" else {"reduction": way}
    return graph.make("ScatterElements", [x, *given], x.shape, axis=axis, **more)


def scattered_nd(graph: Graph) -> Value | None:
    """Rows that are set or added."""
    x = graph.pick(wanted=lambda v: v.rank > 0 and v.is_fixed)
    if x is None:
        return None
    random = graph.random
    way = random.choice(WAYS if graph.opset >= 18 else WAYS[:3] if graph.opset >= 16 else WAYS[:1])
    rows = random.sample(range(x.sizes[0]), random.randint(1, x.sizes[0]))
    places = graph.constant(np.asarray(rows, np.int64).reshape(-1, 1))
    updates = graph.constant(graph.numbers((len(rows), *x.sizes[1:])))
    more = {} if way == "none" else {"reduction": way}
    return graph.make("ScatterND", [x, places, updates], x.shape, **more)


def first_of_order(graph: Graph) -> Value | None:
    """The largest or smallest elements, in order."""
    x = graph.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return None
    axis = graph.axis(x)
    place = axis % x.rank
    k = graph.random.randint(1, min(x.shape[place]))
    names = graph.node(
        "TopK", [x.name, graph.ints(k)], 2, axis=axis, largest=graph.random.randrange(2)
    )
    shape = (*x.shape[:place], (k, k), *x.shape[place + 1 :])
    graph.keep(Value(names[1], shape, "i"))
    return Value(names[0], shape)


def best(graph: Graph) -> Value | None:
    """Where the largest or smallest element stands."""
    x = graph.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return None
    axis = graph.axis(x)
    place, keep = axis % x.rank, graph.random.randrange(2)
    kept = ((1, 1),) if keep else ()
    shape = (*x.shape[:place], *kept, *x.shape[place + 1 :])
    kind = graph.random.choice(("ArgMax", "ArgMin"))
    last = {"select_last_index": 1} if graph.opset >= 12 and graph.random.random() < 0.2 else {}
    return graph.make(kind, [x], shape, "i", axis=axis, keepdims=keep, **last)


def running(graph: Graph) -> Value | None:
    """Running sums."""
    x = graph.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return None
    axis = graph.constant(np.asarray(graph.axis(x), np.int64))
    random = graph.random
    flags = {"exclusive": random.randrange(2), "reverse": random.randrange(2)}
    return graph.make("CumSum", [x, axis], x.shape, **flags)


def one_hot(graph: Graph) -> Value | None:
    """Rows with one element that differs."""
    x = graph.pick("i", lambda v: v.elements <= 100)
    if x is None:
        return None
    depth = graph.constant(np.asarray([4], np.int64))
    values = graph.constant(np.asarray([-0.5, 2.0], graph.floats))
    axis = graph.random.choice((-1, 0))
    shape = (*x.shape, (4, 4)) if axis == -1 else ((4, 4), *x.shape)
    return graph.make("OneHot", [x, depth, values], shape, axis=axis)


def counted(graph: Graph) -> Value | None:
    """How many elements are not 0, by NonZero and the shape of what it gives."""
    x = graph.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return None
    positive = graph.make("Relu", [x], x.shape)
    (places,) = graph.node("NonZero", [positive.name])
    return graph.make("ReduceMax", [_as_floats(graph, places)], fixed(1, 1), keepdims=1)


def _as_floats(graph: Graph, places: str) -> str:
    """The places behind a column of zeros, so that there are some, as floats."""
    (numbers,) = graph.node("Cast", [places], to=graph.onnx_float)
    (padded,) = graph.node("Pad", [numbers, graph.ints(0, 1, 0, 0)])
    return padded


def compressed(graph: Graph) -> Value | None:
    """Rows where a constant condition holds."""
    x = graph.pick(wanted=lambda v: v.rank > 0 and v.known(0))
    if x is None:
        return None
    mask = graph.whole((x.sizes[0],), 0, 2).astype(np.bool_)
    mask[0] = True
    count = int(mask.sum())
    shape = ((count, count), *x.shape[1:])
    return graph.make("Compress", [x, graph.constant(mask)], shape, axis=0)


MAKERS: tuple[Maker, ...] = (
    *(gathered, gathered, embedded, gathered_elements, gathered_nd, scattered_elements),
    *(scattered_nd, first_of_order, best, running, one_hot, counted, compressed),
)
