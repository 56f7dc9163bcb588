"""Functions with a custom derivative, which `torch.export` does not record."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from dlc.errors import Unsupported

OPERATORS = ("torch._library.", "torch._higher_order_ops.")
"""Where PyTorch has the derivatives of operators that a library registers, and of choices and loops."""


@contextmanager
def refusing_own_derivatives() -> Generator[None]:
    """While a module is exported, refuse functions that bring a derivative of their own.

    `torch.export` writes down what they compute and forgets the derivative. Raises Unsupported (D0717).
    """
    import torch

    function = torch.autograd.Function
    usual = function.__dict__["apply"]

    def apply(kind: type, *given: object, **named: object) -> object:
        if kind.__module__.startswith(OPERATORS):
            return usual.__get__(None, kind)(*given, **named)
        raise Unsupported(
            f"{kind.__name__} brings a derivative of its own, which torch.export does not write down",
            code="D0717",
            help="torch.compile(module, backend='dlc') takes such a module",
        )

    setattr(function, "apply", classmethod(apply))  # noqa: B010 - it is not an attribute of a value
    try:
        yield
    finally:
        setattr(function, "apply", usual)  # noqa: B010
