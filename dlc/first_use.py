"""Names that a package imports when they are first asked for, so that a program loads only what it uses.

The package declares them once, by `from MODULE import NAME` under `if TYPE_CHECKING:`. Type checkers,
editors and linters read these statements where they stand; `imported` runs the one that has the name.
"""

from __future__ import annotations

import ast
import linecache
from functools import cache
from types import ModuleType

__all__ = ["imported", "names"]


def imported(package: ModuleType, name: str) -> object:
    """What a package declares by this name. Raises AttributeError for other names."""
    statement = _statements(package).get(name)
    if statement is None:
        raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")
    scope: dict[str, object] = {}
    exec(compile(ast.Module([statement], []), str(package.__file__), "exec"), scope)
    return scope[name]


def names(package: ModuleType) -> tuple[str, ...]:
    """The names that the package declares, in the order of their statements."""
    return tuple(_statements(package))


@cache
def _statements(package: ModuleType) -> dict[str, ast.ImportFrom]:
    """The import of each name alone, without those that stand beside it in the statement."""
    text = "".join(linecache.getlines(str(package.__file__), vars(package)))
    blocks = [node for node in ast.parse(text).body if isinstance(node, ast.If)]
    [declared] = [block.body for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING"]
    return {
        alias.asname or alias.name: ast.copy_location(ast.ImportFrom(node.module, [alias], 0), node)
        for node in declared
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
