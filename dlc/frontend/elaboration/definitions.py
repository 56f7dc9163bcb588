"""Modules as they are declared, before an instance is made."""

from __future__ import annotations

from collections.abc import Callable

from dlc.frontend.elaboration.scope import Home
from dlc.frontend.elaboration.values import Callee
from dlc.text.model import ast

__all__ = ["MemberNode", "ModuleDefinition"]

MemberNode = ast.Param | ast.State | ast.Const | ast.Use | ast.Fn
"""A member that has a name."""


class ModuleDefinition(Callee):
    """A `module` of a file; `home` is the file. `members` are the named ones, in order.

    Those that `is_sound` refuses could not be read: `unread` has their names.
    """

    __slots__ = ("declaration", "home", "members", "unread")

    def __init__(
        self, declaration: ast.Module, home: Home, is_sound: Callable[[MemberNode], bool]
    ) -> None:
        self.declaration = declaration
        self.home = home
        named = [member for member in declaration.members if isinstance(member, MemberNode)]
        self.members: dict[str, MemberNode] = {m.name: m for m in named if is_sound(m)}
        self.unread = {member.name for member in named} - self.members.keys()

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def called(self) -> str:
        return f"the module {self.name}"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple([parameter.name for parameter in self.declaration.parameters])

    @property
    def exports(self) -> list[ast.Fn]:
        """Its entry points."""
        return [m for m in self.members.values() if isinstance(m, ast.Fn) and m.exported]

    @property
    def requirements(self) -> list[ast.Require]:
        """The constraints on its parameters."""
        return [m for m in self.declaration.members if isinstance(m, ast.Require)]
