"""Names and types of entry points as text, for people and for Python."""

from __future__ import annotations

from collections.abc import Sequence
from keyword import iskeyword

from dlc.runtime.artifact.manifest import Dim, Input, Output


def describe(tensor: Input | Output) -> str:
    """The type of an input or output as the language writes it, such as `f32[B, 64]`."""
    return f"{tensor.dtype}[{', '.join(tensor.shape)}]" if tensor.shape else tensor.dtype


def dims_text(dims: Sequence[Dim]) -> str:
    """Each named size with its bounds, such as `B = 1..64, T = 1..`; of one that a call counts, the limit.

    >>> from dlc.runtime.artifact.manifest import Measured
    >>> dims_text([Dim("B", 1, 64), Dim("n", measured=Measured("#0", "2*B"))])
    'B = 1..64, n = 0..2*B'
    """
    return ", ".join(f"{dim.name} = {dim.lower}..{_upper(dim)}" for dim in dims)


def _upper(dim: Dim) -> str:
    if dim.measured is not None:
        return dim.measured.limit
    return "" if dim.upper is None else str(dim.upper)


def python_name(name: str) -> str:
    """The name by which Python code passes it: what is taken already gets a `_` at the end.

    No two names get the same.

    >>> python_name("x"), python_name("out"), python_name("out_"), python_name("lambda")
    ('x', 'out_', 'out__', 'lambda_')
    """
    bare = name.rstrip("_")
    return f"{name}_" if iskeyword(bare) or bare in ("out", "arena") else name
