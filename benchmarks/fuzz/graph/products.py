"""Nodes that multiply, reduce and normalise, over matrices and over pictures."""

from __future__ import annotations

from benchmarks.fuzz.graph.building import Graph, Maker, Shape, Value, same

REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"),
)


def reduced(graph: Graph) -> Value | None:
    """Along some axes."""
    x = graph.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return None
    kind, random = graph.random.choice(REDUCTIONS), graph.random
    if kind == "ReduceLogSum":
        x = graph.make("Exp", [graph.make("Tanh", [x], x.shape)], x.shape)
    axes = sorted(random.sample(range(x.rank), random.randint(1, x.rank)))
    keep = random.randrange(2)
    shape = tuple(
        [(1, 1) if k in axes else pair for k, pair in enumerate(x.shape) if keep or k not in axes]
    )
    signed = [axis - x.rank if random.random() < 0.3 else axis for axis in axes]
    if graph.opset >= 18 or (kind == "ReduceSum" and graph.opset >= 13):
        return graph.make(kind, [x, graph.ints(*signed)], shape, keepdims=keep)
    return graph.make(kind, [x], shape, keepdims=keep, axes=signed)


def spread(graph: Graph) -> Value | None:
    """Softmax and its kind."""
    x = graph.pick(wanted=lambda v: v.rank > 0)
    if x is None:
        return None
    kind = graph.random.choice(("Softmax", "Softmax", "LogSoftmax", "Hardmax"))
    return graph.make(kind, [x], x.shape, axis=graph.axis(x))


def normalised(graph: Graph) -> Value | None:
    """Rows of a known size: layer norms and others."""
    x = graph.pick(wanted=lambda v: v.rank > 1 and v.known(-1) and v.shape[-1][0] > 1)
    if x is None:
        return None
    size = x.shape[-1][0]
    scale, shift = graph.constant(graph.numbers((size,))), graph.constant(graph.numbers((size,)))
    kind = graph.random.choice(("LayerNormalization", "RMSNormalization", "LpNormalization"))
    if kind == "LpNormalization":
        return graph.make(kind, [x], x.shape, axis=-1, p=graph.random.choice((1, 2)))
    if not graph.has(kind):
        return None
    given: list[Value | str] = [x, scale]
    if kind == "LayerNormalization" and graph.random.random() < 0.7:
        given.append(shift)
    return graph.make(kind, given, x.shape, axis=-1, epsilon=1e-3)


def multiplied(graph: Graph) -> Value | None:
    """By a constant matrix, or by itself turned."""
    x = graph.pick(wanted=lambda v: v.rank >= 1 and v.elements <= 600)
    if x is None:
        return None
    if x.rank >= 2 and graph.random.random() < 0.4:
        axes = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        turned_shape = tuple([x.shape[k] for k in axes])
        turned = graph.make("Transpose", [x], turned_shape, perm=axes)
        return graph.make("MatMul", [x, turned], (*x.shape[:-1], x.shape[-2]))
    if not x.known(-1):
        return None
    columns = graph.random.choice((1, 3, 5, 16))
    weights = graph.constant(graph.numbers((x.shape[-1][0], columns), -1, 1))
    return graph.make("MatMul", [x, weights], (*x.shape[:-1], (columns, columns)))


def linear(graph: Graph) -> Value | None:
    """Gemm in all its forms."""
    x = graph.pick(wanted=lambda v: v.rank == 2)
    if x is None:
        return None
    a = graph.random.randrange(2)
    depth = -2 if a else -1
    if not x.known(depth):
        return None
    size, columns, b = x.shape[depth][0], graph.random.choice((1, 3, 4)), graph.random.randrange(2)
    weights = graph.constant(graph.numbers((columns, size) if b else (size, columns), -1, 1))
    given: list[Value | str] = [x, weights]
    if graph.random.random() < 0.7:
        bias = graph.random.choice(((columns,), (1, columns), (1,)))
        given.append(graph.constant(graph.numbers(bias)))
    more = {"alpha": 0.5, "beta": 1.5} if graph.random.random() < 0.4 else {}
    shape = (x.shape[1] if a else x.shape[0], (columns, columns))
    return graph.make("Gemm", given, shape, transA=a, transB=b, **more)


EQUATIONS = ("...ij->...ji", "...ij->...i", "...ij,...ij->...i", "...ij,...kj->...ik", "...ij->...")


def einsum(graph: Graph) -> Value | None:
    """Products by the names of axes."""
    x = graph.pick(wanted=lambda v: v.rank >= 2 and v.elements <= 300)
    if x is None or graph.opset < 12:
        return None
    equation = graph.random.choice(EQUATIONS)
    given = [x, x] if "," in equation else [x]
    named: dict[str, Shape] = {"i": x.shape[-2:-1], "k": x.shape[-2:-1], "j": x.shape[-1:]}
    shape = x.shape[:-2]
    for letter in equation.split("->")[1].removeprefix("..."):
        shape += named[letter]
    return graph.make("Einsum", given, shape, equation=equation)


# Pictures.


def picture(graph: Graph) -> Value | None:
    """A value with channels in a known number, or a new input."""
    x = graph.pick(wanted=lambda v: v.rank in (3, 4) and v.known(1) and v.elements <= 1500)
    if x is not None and graph.random.random() < 0.8:
        return x
    sizes = [graph.random.choice((4, 5, 8)) for _ in range(graph.random.choice((1, 2, 2)))]
    batch = "N" if "N" in graph.names and graph.random.random() < 0.5 else 2
    channels = graph.random.choice((1, 2, 3, 4))
    name = graph.fresh("x")
    first = graph.names["N"] if batch == "N" else (2, 2)
    shape = (first, same(channels), *[(n, n) for n in sizes])
    value = Value(name, shape)
    graph.inputs[name] = value, (batch, channels, *sizes)
    graph.keep(value)
    return value


def _out(size: int, taps: int, stride: int, pads: int, dilation: int = 1) -> int:
    return (size + pads - dilation * (taps - 1) - 1) // stride + 1


def convolved(graph: Graph) -> Value | None:
    """Conv with strides, pads, dilations and groups."""
    x = picture(graph)
    if x is None:
        return None
    random, spatial, channels = graph.random, x.rank - 2, x.shape[1][0]
    groups = random.choice([n for n in (1, 1, 2, channels) if channels % n == 0])
    outer = groups * random.choice((1, 2, 3))
    taps = [random.choice((1, 2, 3)) for _ in range(spatial)]
    strides = [random.choice((1, 1, 2)) for _ in range(spatial)]
    dilations = [random.choice((1, 1, 2)) for _ in range(spatial)]
    pads = [random.choice((0, 1)) for _ in range(2 * spatial)]
    shape = [x.shape[0], (outer, outer)]
    for k, pair in enumerate(x.shape[2:]):
        around = pads[k] + pads[k + spatial]
        one, two = (_out(size, taps[k], strides[k], around, dilations[k]) for size in pair)
        shape.append((one, two))
    if any(size < 1 for pair in shape for size in pair):
        return None
    given: list[Value | str] = [
        x,
        graph.constant(graph.numbers((outer, channels // groups, *taps), -1, 1)),
    ]
    if random.random() < 0.6:
        given.append(graph.constant(graph.numbers((outer,))))
    more = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups}
    return graph.make("Conv", given, tuple(shape), **more)


def convolved_back(graph: Graph) -> Value | None:
    """ConvTranspose."""
    x = picture(graph)
    if x is None or x.elements > 300:
        return None
    random, spatial, channels = graph.random, x.rank - 2, x.shape[1][0]
    outer, taps = random.choice((1, 3)), [random.choice((1, 2, 3)) for _ in range(spatial)]
    strides = [random.choice((1, 2)) for _ in range(spatial)]
    pads = [random.choice((0, min(1, t - 1))) for t in taps] * 2
    shape = [x.shape[0], (outer, outer)]
    for k, pair in enumerate(x.shape[2:]):
        one, two = ((size - 1) * strides[k] + taps[k] - 2 * pads[k] for size in pair)
        shape.append((one, two))
    if any(size < 1 for pair in shape for size in pair):
        return None
    weights = graph.constant(graph.numbers((channels, outer, *taps), -1, 1))
    return graph.make("ConvTranspose", [x, weights], tuple(shape), strides=strides, pads=pads)


def pooled(graph: Graph) -> Value | None:
    """Windows: maxima, means and norms."""
    x = picture(graph)
    if x is None:
        return None
    random, spatial = graph.random, x.rank - 2
    kind = random.choice(("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool"))
    if kind.startswith("Global"):
        return graph.make(kind, [x], (*x.shape[:2], *[(1, 1)] * spatial))
    taps = [random.choice((1, 2, 3)) for _ in range(spatial)]
    strides = [random.choice((1, 2)) for _ in range(spatial)]
    pads = [random.randrange(t) if t > 1 else 0 for t in taps] * 2
    pads = [min(p, 1) for p in pads]
    shape = list(x.shape[:2])
    for k, pair in enumerate(x.shape[2:]):
        one, two = (_out(size, taps[k], strides[k], 2 * pads[k]) for size in pair)
        shape.append((one, two))
    if any(size < 1 for pair in shape for size in pair):
        return None
    more: dict[str, object] = {"kernel_shape": taps, "strides": strides, "pads": pads}
    if kind == "AveragePool":
        more["count_include_pad"] = random.randrange(2)
    return graph.make(kind, [x], tuple(shape), **more)


def batch_normalised(graph: Graph) -> Value | None:
    """Norms over channels."""
    x = picture(graph)
    if x is None:
        return None
    channels = x.shape[1][0]
    kinds = ["BatchNormalization", "InstanceNormalization"]
    kinds += ["LRN"] if x.rank == 4 else []
    # ONNX Runtime gives no number for rows of equal numbers, which its definition makes 0.
    kinds += ["MeanVarianceNormalization"] if x.name in graph.inputs else []
    kinds += ["GroupNormalization"] if graph.opset >= 21 else []
    kind = graph.random.choice(kinds)
    scale, shift, mean = (graph.constant(graph.numbers((channels,))) for _ in range(3))
    match kind:
        case "BatchNormalization":
            variance = graph.constant(graph.numbers((channels,), 0.5, 2.0))
            return graph.make(kind, [x, scale, shift, mean, variance], x.shape, epsilon=1e-3)
        case "LRN":
            return graph.make(kind, [x], x.shape, size=3, alpha=0.01)
        case "MeanVarianceNormalization":
            axes = [0, *range(2, x.rank)]
            return graph.make(kind, [x], x.shape, axes=axes)
        case "GroupNormalization":
            return graph.make(kind, [x, scale, shift], x.shape, num_groups=1, epsilon=1e-3)
        case _:
            return graph.make(kind, [x, scale, shift], x.shape, epsilon=1e-3)


def recurrent(graph: Graph) -> Value | None:
    """LSTM, GRU and RNN over the first axis."""
    x = graph.pick(wanted=lambda v: v.rank == 3 and v.known(2) and v.elements <= 200)
    if x is None:
        return None
    random, hidden = graph.random, graph.random.choice((1, 3))
    kind, gates = random.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    way = random.choice(("forward", "reverse", "bidirectional"))
    ways, inner = 2 if way == "bidirectional" else 1, x.shape[2][0]
    sizes = (
        (ways, gates * hidden, inner),
        (ways, gates * hidden, hidden),
        (ways, 2 * gates * hidden),
    )
    given = [graph.constant(graph.numbers(size, -1, 1)) for size in sizes]
    more = {"linear_before_reset": random.randrange(2)} if kind == "GRU" else {}
    shape = (x.shape[0], (ways, ways), x.shape[1], (hidden, hidden))
    return graph.make(kind, [x, *given], shape, direction=way, hidden_size=hidden, **more)


MAKERS: tuple[Maker, ...] = (
    *(reduced, reduced, reduced, spread, normalised, multiplied, multiplied, linear, einsum),
    *(convolved, convolved, convolved_back, pooled, pooled, batch_normalised, recurrent),
)
