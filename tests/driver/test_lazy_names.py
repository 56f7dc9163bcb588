"""The names of `dlc.driver`: what a checker reads is what is loaded on first use."""

from __future__ import annotations

import ast
import inspect

from dlc import driver


def test_the_table_of_names_is_what_is_imported_for_a_checker() -> None:
    imported = {
        statement.module: tuple(alias.name for alias in statement.names)
        for statement in ast.walk(ast.parse(inspect.getsource(driver)))
        if isinstance(statement, ast.ImportFrom)
        and (statement.module or "").startswith("dlc.driver.")
    }
    assert imported == driver._NAMES  # pyright: ignore[reportPrivateUsage] - the table itself
    for names in imported.values():
        assert all(hasattr(driver, name) for name in names)
