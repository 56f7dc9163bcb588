"""Where a module stops gradients: kept through the decompositions of PyTorch, which forget it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from dlc.errors import Unsupported

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

DETACHED = frozenset({"aten.detach.default", "aten.detach_.default"})
WITHOUT_GRADIENTS = "wrap_with_set_grad_enabled"
"""What `torch.no_grad` is in a program."""


@cache
def stop_gradient() -> object:
    """The operator `dlc.stop_gradient`: its argument, as far as PyTorch is concerned."""
    import torch

    def copied(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    made = torch.library.custom_op(
        "dlc::stop_gradient", copied, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    made.register_fake(torch.empty_like)
    return torch.ops.dlc.stop_gradient.default


def mark_stops(program: ExportedProgram) -> None:
    """Put the operator where tensors are detached, and behind what is computed without gradients."""
    _mark(program.graph_module)


def _mark(module: GraphModule) -> None:
    for node in list(module.graph.nodes):
        if node.op == "get_attr":
            part = getattr(module, str(node.target), None)
            if part is not None and hasattr(part, "graph"):
                _mark(part)
        elif str(node.target) in DETACHED:
            node.target = stop_gradient()
        elif str(node.target) == WITHOUT_GRADIENTS and not node.args[0]:
            for part in list(node.users):
                _stop_behind(module, part)
    module.recompile()


def _stop_behind(module: GraphModule, node: Node) -> None:
    value = node.meta.get("val")
    if not hasattr(value, "is_floating_point"):
        return
    with module.graph.inserting_after(node):
        stop = module.graph.call_function(stop_gradient(), (node,))
    stop.meta = {**node.meta}

    def is_other(user: Node) -> bool:
        return user is not stop

    node.replace_all_uses_with(stop, is_other)


@contextmanager
def refusing_own_derivatives() -> Generator[None]:
    """While a module is exported, refuse functions that bring a derivative of their own.

    `torch.export` writes down what they compute and forgets the derivative. Raises Unsupported (D0717).
    """
    import torch

    function = torch.autograd.Function
    usual = function.__dict__["apply"]

    def apply(kind: type, *given: object, **named: object) -> object:
        if kind.__module__ == "torch._library.autograd":  # of an operator that a library registers
            return usual.__get__(None, kind)(*given, **named)
        raise Unsupported(
            f"{kind.__name__} brings a derivative of its own, which torch.export does not write down",
            code="D0717",
            help="torch.compile(module, backend='dlc') takes such a module",
        )

    setattr(function, "apply", classmethod(apply))  # noqa: B010 - it is no attribute of a value
    try:
        yield
    finally:
        setattr(function, "apply", usual)  # noqa: B010
