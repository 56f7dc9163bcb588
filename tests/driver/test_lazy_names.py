"""The names of `dlc` and `dlc.driver`: those that a checker reads are imported on first use."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import dlc
from dlc import driver


def names_for_a_checker(package: ModuleType) -> Iterator[tuple[str, str]]:
    """The module and the name of each import under `if TYPE_CHECKING`."""
    for statement in ast.parse(inspect.getsource(package)).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for imported in ast.walk(statement):
                if isinstance(imported, ast.ImportFrom) and imported.module != "types":
                    yield from ((str(imported.module), alias.name) for alias in imported.names)


def names_in_cases(package: ModuleType) -> Iterator[tuple[str, str]]:
    """The module and the name of each `case "name"` in `_home`."""
    for statement in ast.parse(inspect.getsource(package)).body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "_home":
            for case in [node for node in ast.walk(statement) if isinstance(node, ast.match_case)]:
                imported = [node for node in case.body if isinstance(node, ast.Import)]
                names = [node for node in ast.walk(case.pattern) if isinstance(node, ast.Constant)]
                yield from (
                    (each.names[0].name, str(name.value)) for each in imported for name in names
                )


@pytest.mark.parametrize("package", [dlc, driver])
def test_the_names_that_a_checker_reads_are_imported_from_their_modules(
    package: ModuleType,
) -> None:
    names = list(names_for_a_checker(package))
    assert names
    for module, name in names:
        assert getattr(package, name) is getattr(sys.modules[module], name)


@pytest.mark.parametrize("package", [dlc, driver])
def test_other_names_are_refused(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'unheard_of'"):
        getattr(package, "unheard_of")  # noqa: B009 - a checker would refuse the attribute


def test_both_lists_of_the_driver_agree() -> None:
    cases = sorted(names_in_cases(driver))
    assert cases == sorted(names_for_a_checker(driver))
