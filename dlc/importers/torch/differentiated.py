"""The entry point `gradients` beside `run`: the cotangents of its inputs, given those of its results."""

from __future__ import annotations

from dlc.dialects import flow, func
from dlc.dialects.builtin import Module
from dlc.dialects.flow.reverse import is_float
from dlc.importers.identifiers import Identifiers
from dlc.importers.torch.facts import Graph
from dlc.ir.clone import clone_block
from dlc.ir.core import Block, Builder

GRADIENTS = "gradients"


def add_gradients(module: Module, function: func.Func, graph: Graph) -> None:
    """Add a function of all inputs of `function`, then of a cotangent for each of its results that is a
    float and no new state, to the cotangents of the inputs in `graph.wrt`.

    It computes the forward pass again, so nothing is kept between the two.
    """
    body = clone_block(function.body)
    _yield_differentiable(body, graph)
    block = Block()
    inputs = [block.add_argument(each.type, each.name) for each in function.body.arguments]
    called = Identifiers("x", taken=function.input_names)
    names = [
        name
        for name, result in zip(function.result_names, graph.results, strict=True)
        if not result.updates
    ]
    given = [
        (called.of(f"d_{name}"), value.type)
        for name, value in zip(names, body.terminator.operands, strict=True)
        if is_float(value)
    ]
    cotangents = [block.add_argument(type, name) for name, type in given]
    places = {declared.name: number for number, declared in enumerate(graph.inputs)}
    wrt = tuple([places[name] for name in graph.wrt])
    emit = Builder(block, function.location)
    made = emit.all(flow.Vjp(tuple(inputs), tuple(cotangents), body, wrt))
    emit.place(func.Return(made))
    gradients = func.Func(block, GRADIENTS, func.signature(block, list(made)))
    gradients.location = function.location
    results = Identifiers("y")
    gradients.attributes.update(
        {
            **{
                key: function.attributes[key] for key in ("dlc.dims",) if key in function.attributes
            },
            "dlc.inputs": (*function.input_names, *[name for name, _ in given]),
            "dlc.results": tuple([results.of(f"d_{function.input_names[k]}") for k in wrt]),
        }
    )
    module.body.append(gradients)


def _yield_differentiable(body: Block, graph: Graph) -> None:
    """Hand over the results of the function that are no new states."""
    returned = body.terminator
    emit = Builder(body, returned.location)
    kept = [
        value
        for value, result in zip(returned.operands, graph.results, strict=True)
        if not result.updates
    ]
    returned.erase()
    emit.place(flow.Yield(tuple(kept)))
