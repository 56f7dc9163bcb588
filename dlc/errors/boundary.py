"""The boundary of the Python API: the caller's errors are raised here, without the frames inside dlc.

An error that says what is wrong with a model or a call names the place in it, and the frames between the
call and the check that failed tell its author nothing. Faults of dlc itself keep theirs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import ParamSpec, TypeVar

from dlc.errors import DlcError, InternalError

__all__ = ["methods_without_frames", "without_frames"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


def without_frames(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose errors have a traceback that ends at its call."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except InternalError:
            raise
        except DlcError as error:
            raise error.with_traceback(None)  # noqa: B904  it is the same error

    return called


def methods_without_frames(kind: type[C]) -> type[C]:
    """The class, whose public methods and `__init__` raise errors with a traceback that ends at the call.

    Other special methods are left as they are: those that raise errors are decorated one by one.
    """
    for name, member in list(vars(kind).items()):
        if isinstance(member, FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, without_frames(member))
    return kind
