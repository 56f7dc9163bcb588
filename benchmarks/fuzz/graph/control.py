"""Choices and loops, and blocks of nodes as exporters write them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks.fuzz.graph.building import Graph, Maker, Value, fixed

STEPS = ("Tanh", "Sigmoid", "Relu", "Neg", "Softplus")


def _body(
    graph: Graph,
    nodes: Sequence[NodeProto],
    outputs: Sequence[tuple[str, int]],
    inputs: Sequence[tuple[str, int]],
) -> GraphProto:
    """A graph inside of a node; floats have any shape, what counts and decides has none."""
    declared = [
        helper.make_tensor_value_info(name, dtype, None if dtype == graph.onnx_float else ())
        for name, dtype in inputs
    ]
    results = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs]
    return helper.make_graph(list(nodes), graph.fresh("g"), declared, results)


def chosen(graph: Graph) -> Value | None:
    """If: by a condition that is computed."""
    x = graph.pick()
    if x is None:
        return None
    axes = {"keepdims": 0}
    total = graph.make("ReduceMax", [x], (), **axes)
    condition = graph.make("Greater", [total, graph.constant(graph.scalar(0.3))], (), "b")
    branches: list[GraphProto] = []
    for _ in range(2):
        first, name = graph.fresh(), graph.fresh()
        nodes = [
            helper.make_node(graph.random.choice(STEPS), [x.name], [first]),
            helper.make_node(graph.random.choice(("Mul", "Add")), [first, x.name], [name]),
        ]
        branches.append(_body(graph, nodes, [(name, graph.onnx_float)], []))
    return graph.make("If", [condition], x.shape, then_branch=branches[0], else_branch=branches[1])


def looped(graph: Graph) -> Value | None:
    """Loop: a known number of rounds that carry a value and stack another."""
    x = graph.pick(wanted=lambda v: v.elements <= 300)
    if x is None:
        return None
    rounds = graph.random.choice((1, 2, 4))
    number, go, carried = (graph.fresh() for _ in range(3))
    keep, following, stacked, scaled = (graph.fresh() for _ in range(4))
    factor = graph.fresh("k")
    half = numpy_helper.from_array(graph.scalar(0.5), factor)
    nodes = [
        helper.make_node("Identity", [go], [keep]),
        helper.make_node(graph.random.choice(STEPS), [carried], [scaled]),
        helper.make_node("Constant", [], [factor], value=half),
        helper.make_node("Mul", [scaled, factor], [stacked]),
        helper.make_node("Add", [stacked, x.name], [following]),
    ]
    floats = graph.onnx_float
    inputs = [(number, TensorProto.INT64), (go, TensorProto.BOOL), (carried, floats)]
    outputs = [(keep, TensorProto.BOOL), (following, floats), (stacked, floats)]
    body = _body(graph, nodes, outputs, inputs)
    count = graph.constant(np.asarray(rounds, np.int64))
    true = graph.constant(np.asarray(True))
    last, rows = graph.node("Loop", [count, true, x.name], 2, body=body)
    graph.keep(Value(rows, ((rounds, rounds), *x.shape)))
    return Value(last, x.shape)


def scanned(graph: Graph) -> Value | None:
    """Scan: over the first axis."""
    x = graph.pick(wanted=lambda v: v.rank >= 2 and v.elements <= 400)
    if x is None:
        return None
    shape = graph.make("Shape", [x], fixed(x.rank), "i")
    ends = graph.ints(1), graph.ints(x.rank), graph.ints(0)
    row_shape = graph.make("Slice", [shape, *ends], fixed(x.rank - 1), "i")
    zero = numpy_helper.from_array(graph.scalar(0).reshape(1), "zero")
    start = graph.make("ConstantOfShape", [row_shape], x.shape[1:], value=zero)
    carried, row, added, following, shown = (graph.fresh() for _ in range(5))
    nodes = [
        helper.make_node("Add", [carried, row], [added]),
        helper.make_node(graph.random.choice(STEPS), [added], [following]),
        helper.make_node("Identity", [following], [shown]),
    ]
    floats = graph.onnx_float
    inputs, outputs = [(carried, floats), (row, floats)], [(following, floats), (shown, floats)]
    body = _body(graph, nodes, outputs, inputs)
    more = {"scan_input_directions": [1]} if graph.random.random() < 0.3 else {}
    given = [start.name, x.name]
    last, rows = graph.node("Scan", given, 2, body=body, num_scan_inputs=1, **more)
    graph.keep(Value(last, x.shape[1:]))
    return Value(rows, x.shape)


def gelu_written_out(graph: Graph) -> Value | None:
    """0.5 * x * (1 + erf(x / sqrt(2))), as exporters write it."""
    x = graph.pick()
    if x is None:
        return None
    part = graph.make("Div", [x, graph.constant(graph.scalar(2**0.5))], x.shape)
    erf = graph.make("Erf", [part], x.shape)
    one = graph.make("Add", [erf, graph.constant(graph.scalar(1))], x.shape)
    product = graph.make("Mul", [x, one], x.shape)
    return graph.make("Mul", [product, graph.constant(graph.scalar(0.5))], x.shape)


def norm_written_out(graph: Graph) -> Value | None:
    """A layer norm of single operations."""
    x = graph.pick(wanted=lambda v: v.rank >= 1 and v.known(-1) and v.shape[-1][0] > 1)
    if x is None:
        return None
    narrow = (*x.shape[:-1], (1, 1))

    def mean(value: Value) -> Value:
        if graph.opset >= 18:
            return graph.make("ReduceMean", [value, graph.ints(-1)], narrow, keepdims=1)
        return graph.make("ReduceMean", [value], narrow, axes=[-1], keepdims=1)

    centred = graph.make("Sub", [x, mean(x)], x.shape)
    squares = graph.make("Pow", [centred, graph.constant(graph.scalar(2))], x.shape)
    safe = graph.make("Add", [mean(squares), graph.constant(graph.scalar(1e-3))], narrow)
    root = graph.make("Sqrt", [safe], narrow)
    row = graph.make("Div", [centred, root], x.shape)
    return graph.make("Mul", [row, graph.constant(graph.numbers((x.shape[-1][0],)))], x.shape)


def attended(graph: Graph) -> Value | None:
    """Attention with a causal mask that is made of sizes."""
    x = graph.pick(wanted=lambda v: v.rank in (2, 3) and v.elements <= 300)
    if x is None or graph.opset < 14:
        return None
    axes = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = graph.make("Transpose", [x], tuple([x.shape[k] for k in axes]), perm=axes)
    scores_shape = (*x.shape[:-1], x.shape[-2])
    scores = graph.make("MatMul", [x, turned], scores_shape)
    scaled = graph.make("Mul", [scores, graph.constant(graph.scalar(0.25))], scores_shape)
    shape = graph.make("Shape", [x], fixed(x.rank), "i")
    ends = graph.ints(x.rank - 2), graph.ints(x.rank - 1), graph.ints(0)
    length = graph.make("Slice", [shape, *ends], fixed(1), "i")
    square = graph.make("Concat", [length, length], fixed(2), "i", axis=0)
    one = numpy_helper.from_array(graph.scalar(1).reshape(1), "one")
    ones = graph.make("ConstantOfShape", [square], (x.shape[-2],) * 2, value=one)
    lower = graph.make("Trilu", [ones], (x.shape[-2],) * 2, upper=0)
    mask = graph.make("Cast", [lower], (x.shape[-2],) * 2, "b", to=TensorProto.BOOL)
    least = graph.constant(graph.scalar(-1e9))
    masked = graph.make("Where", [mask, scaled, least], scores_shape)
    weights = graph.make("Softmax", [masked], scores_shape, axis=-1)
    return graph.make("MatMul", [weights, x], x.shape)


MAKERS: tuple[Maker, ...] = (
    *(chosen, looped, scanned, gelu_written_out, norm_written_out, attended, attended),
)
