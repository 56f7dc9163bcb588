"""How names and types of entry points are written, for people and for Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from keyword import iskeyword

from dlc.runtime.manifest import Dim, Input, Output

_DIGITS = re.compile(r"[0-9]{1,20}")
"""As many as 2**64 has."""


def describe(tensor: Input | Output) -> str:
    """The type of an input or output as the language writes it, such as `f32[B, 64]`."""
    return f"{tensor.dtype}[{', '.join(tensor.shape)}]" if tensor.shape else tensor.dtype


def dims_text(dims: Sequence[Dim]) -> str:
    """Each named size with its bounds, such as `B = 1..64, T = 1..`; of one that a call counts, the limit.

    >>> from dlc.runtime.manifest import Measured
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


def whole_number(text: str) -> int | None:
    """The number that a text spells with at most 20 ASCII digits; None for any other text.

    `int` would read the digits of every script, and raises ValueError for thousands of them.

    >>> whole_number("64"), whole_number("-1"), whole_number("٣"), whole_number("9" * 5000)
    (64, None, None, None)
    """
    return int(text) if _DIGITS.fullmatch(text) else None


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "weight"), counted(61706, "parameter")
    ('1 weight', '61,706 parameters')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
