"""Expansions of functions into basic operations."""

from collections.abc import Callable

from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value

EXPANSIONS: dict[type[Op], Callable[[Builder, Op], Value]] = {}
