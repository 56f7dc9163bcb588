"""Modules as they are declared, before an instance is made."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.frontend.scope import Home
from dlc.frontend.values import Callee
from dlc.text import ast

__all__ = ["ModuleDefinition"]


@dataclass(frozen=True, slots=True, eq=False)
class ModuleDefinition(Callee):
    """A `module` of a file."""

    declaration: ast.Module
    home: Home

    @property
    def called(self) -> str:
        return f"the module {self.declaration.name}"
