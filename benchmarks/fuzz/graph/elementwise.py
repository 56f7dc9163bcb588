"""Nodes that compute each element on its own."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from benchmarks.fuzz.graph.building import Graph, Maker, Shape, Value, fixed

ANYWHERE = (
    *(
        "Abs",
        "Neg",
        "Relu",
        "Sigmoid",
        "Tanh",
        "Erf",
        "Softplus",
        "Softsign",
        "Elu",
        "Selu",
        "Celu",
    ),
    *("LeakyRelu", "HardSigmoid", "HardSwish", "Mish", "ThresholdedRelu", "Shrink", "Gelu", "Sin"),
    *("Cos", "Atan", "Asinh", "Identity", "Ceil", "Floor", "Round", "Sign", "Swish", "Dropout"),
)
"""Functions of all numbers."""
BETWEEN = ("Exp", "Sinh", "Cosh", "Tan", "Asin", "Acos", "Atanh")
"""Functions that are given numbers between -0.9 and 0.9."""
POSITIVE = ("Sqrt", "Log", "Reciprocal", "Acosh")
"""Functions that are given numbers above 1."""
ATTRIBUTES = ("Elu", "Celu", "LeakyRelu", "ThresholdedRelu")
"""Functions with `alpha`."""


def unary(graph: Graph) -> Value | None:
    """A function of all numbers."""
    x = graph.pick()
    kind = graph.random.choice(ANYWHERE)
    if x is None or not graph.has(kind):
        return None
    more: dict[str, object] = {}
    if kind in ATTRIBUTES and graph.random.random() < 0.7:
        more["alpha"] = graph.random.choice((0.1, 0.5, 1.25))
    if kind == "Gelu" and graph.random.random() < 0.5:
        more["approximate"] = "tanh"
    if kind == "Shrink":
        more |= {"lambd": 0.4, "bias": 0.1}
    return graph.make(kind, [x], x.shape, **more)


def within(graph: Graph) -> Value | None:
    """A function that is not defined everywhere, or grows fast, of what was made small."""
    x = graph.pick()
    if x is None:
        return None
    if graph.random.random() < 0.6:
        small = graph.make("Tanh", [x], x.shape)
        factor = graph.constant(graph.scalar(0.875))
        part = graph.make("Mul", [small, factor], x.shape)
        return graph.make(graph.random.choice(BETWEEN), [part], x.shape)
    above = above_one(graph, x)
    return graph.make(graph.random.choice(POSITIVE), [above], x.shape)


def above_one(graph: Graph, x: Value) -> Value:
    """1.25 more than magnitudes."""
    size = graph.make("Abs", [x], x.shape)
    return graph.make("Add", [size, graph.constant(graph.scalar(1.25))], x.shape)


def beside(graph: Graph, x: Value) -> tuple[Value | str, Shape]:
    """What stretches to `x`, or is of its shape: another value, a constant, or a new input."""
    same = [v for v in graph.values if v.letter == "f" and v.shape == x.shape and v is not x]
    if same and graph.random.random() < 0.6:
        return graph.random.choice(same), x.shape
    last = graph.random.randrange(x.rank + 1)
    sizes = [
        size[0] if size[0] == size[1] and graph.random.random() < 0.6 else 1
        for size in x.shape[last:]
    ]
    if graph.random.random() < 0.2 and x.rank < 4:
        sizes = [2, *[1] * last, *sizes]
        return graph.constant(graph.numbers(sizes)), ((2, 2), *x.shape)
    return graph.constant(graph.numbers(sizes)), x.shape


def binary(graph: Graph) -> Value | None:
    """Arithmetic that stretches."""
    x = graph.pick()
    if x is None or x.elements > 500:
        return None
    kind = graph.random.choice(("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "Mod"))
    y, shape = beside(graph, x)
    if kind in ("Div", "Mod"):
        y, shape = graph.constant(graph.numbers([1] * x.rank, 0.5, 2.0)), x.shape
    more = {"fmod": 1} if kind == "Mod" else {}
    pair = [x, y]
    if kind not in ("Div", "Mod") and graph.random.random() < 0.5:
        pair.reverse()
    return graph.make(kind, pair, shape, **more)


def power(graph: Graph) -> Value | None:
    """Powers of numbers above 1, or small whole powers."""
    x = graph.pick()
    if x is None:
        return None
    if graph.random.random() < 0.5:
        return graph.make("Pow", [x, graph.constant(graph.scalar(2))], x.shape)
    exponent = graph.constant(graph.scalar(graph.random.choice((0.5, -1.0, 1.5, 0.0))))
    return graph.make("Pow", [above_one(graph, x), exponent], x.shape)


def rectified(graph: Graph) -> Value | None:
    """PRelu and Clip."""
    x = graph.pick()
    if x is None:
        return None
    if graph.random.random() < 0.5:
        axis = x.shape[-1:] if x.rank and x.known(-1) else ()
        slope = graph.constant(graph.numbers([size for size, _ in axis]))
        return graph.make("PRelu", [x, slope], x.shape)
    bounds = [graph.constant(graph.scalar(n)) for n in (-0.5, 0.75)]
    if graph.random.random() < 0.3:
        bounds[0] = ""
    return graph.make("Clip", [x, *bounds], x.shape)


def compared(graph: Graph) -> Value | None:
    """A comparison, which gives conditions."""
    x = graph.pick()
    if x is None or x.elements > 500:
        return None
    y, shape = beside(graph, x)
    kinds = ["Greater", "Less", "Equal"]
    kinds += ["GreaterOrEqual", "LessOrEqual"] if graph.opset >= 12 else []
    return graph.make(graph.random.choice(kinds), [x, y], shape, "b")


def logical(graph: Graph) -> Value | None:
    """Conditions of conditions."""
    x = graph.pick("b")
    if x is None:
        return None
    if graph.random.random() < 0.3:
        return graph.make("Not", [x], x.shape, "b")
    other = graph.pick("b", lambda v: v.shape == x.shape) or x
    return graph.make(graph.random.choice(("And", "Or", "Xor")), [x, other], x.shape, "b")


def tested(graph: Graph) -> Value | None:
    """Whether elements are not numbers, or infinite."""
    x = graph.pick()
    if x is None:
        return None
    kind = graph.random.choice(("IsNaN", "IsInf"))
    return graph.make(kind, [x], x.shape, "b")


def chosen(graph: Graph) -> Value | None:
    """Where: by a mask that is there, or one that is made."""
    x = graph.pick()
    if x is None or x.elements > 500:
        return None
    mask = graph.pick("b", lambda v: v.shape == x.shape)
    if mask is None:
        mask = graph.make("Greater", [x, graph.constant(graph.scalar(0.1))], x.shape, "b")
    y, shape = beside(graph, x)
    pair = [x, y] if graph.random.random() < 0.5 else [y, x]
    return graph.make("Where", [mask, *pair], shape)


def cast(graph: Graph) -> Value | None:
    """From and to conditions, integers and floats."""
    x = graph.pick(graph.random.choice(("f", "i", "b")))
    if x is None:
        return None
    match graph.random.choice(("f", "f", "i", "b")):
        case "f":
            if graph.has("CastLike") and graph.random.random() < 0.3:
                like = graph.constant(graph.scalar(0))
                return graph.make("CastLike", [x, like], x.shape)
            return graph.make("Cast", [x], x.shape, to=graph.onnx_float)
        case "i":
            return graph.make("Cast", [x], x.shape, "i", to=TensorProto.INT64)
        case _:
            return graph.make("Cast", [x], x.shape, "b", to=TensorProto.BOOL)


def integers(graph: Graph) -> Value | None:
    """Arithmetic of integers."""
    x = graph.pick("i", lambda v: v.elements <= 500) or graph.input("i")
    kinds = ["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Abs", "Neg", "Sign"]
    if graph.opset >= 18:
        kinds += ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"]
    if graph.opset < 12:
        kinds = [kind for kind in kinds if kind not in ("Max", "Min")]
    kind = graph.random.choice(kinds)
    if kind in ("Abs", "Neg", "BitwiseNot", "Sign"):
        return graph.make(kind, [x], x.shape, "i")
    low = 1 if kind in ("Div", "Mod") else -4
    sizes = [1 if not x.known(k) else x.shape[k][0] for k in range(x.rank)]
    y = graph.constant(graph.whole(sizes, low, 5))
    return graph.make(kind, [x, y], x.shape, "i")


def shifted(graph: Graph) -> Value | None:
    """Bits of u8, moved."""
    x = graph.pick("i", lambda v: v.elements <= 500)
    if x is None:
        return None
    unsigned = graph.make("Cast", [x], x.shape, "i", to=TensorProto.UINT8)
    by = graph.constant(np.asarray([graph.random.randrange(4)], np.uint8))
    way = graph.random.choice(("LEFT", "RIGHT"))
    shape = x.shape if x.rank else fixed(1)
    moved = graph.make("BitShift", [unsigned, by], shape, "i", direction=way)
    return graph.make("Cast", [moved], shape, "i", to=TensorProto.INT64)


MAKERS: tuple[Maker, ...] = (
    *(unary, unary, unary, within, binary, binary, binary, power, rectified),
    *(compared, logical, tested, chosen, cast, integers, shifted),
)
