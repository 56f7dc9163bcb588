"""Names that a package declares once, and imports when they are first asked for."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import pytest

import dlc
from dlc import driver
from dlc.first_use import imported, names

TEXT = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from fractions import Fraction
    from decimal import Decimal as Number, missing
"""


def declared(package: ModuleType) -> Iterator[tuple[str, str]]:
    """The module and the name of each import under `if TYPE_CHECKING`."""
    for statement in ast.parse(inspect.getsource(package)).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for node in ast.walk(statement):
                if isinstance(node, ast.ImportFrom):
                    yield from ((str(node.module), alias.name) for alias in node.names)


@pytest.mark.parametrize("package", [dlc, driver])
def test_the_names_that_a_checker_reads_are_imported_from_their_modules(
    package: ModuleType,
) -> None:
    assert names(package) == tuple(name for _, name in declared(package))
    for module, name in declared(package):
        assert getattr(package, name) is getattr(sys.modules[module], name)


@pytest.mark.parametrize("package", [dlc, driver])
def test_other_names_are_refused(package: ModuleType) -> None:
    for name in ("unheard_of", "ModuleType", "__path"):
        with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute '{name}'"):
            getattr(package, name)


def test_what_is_published_is_what_is_declared() -> None:
    assert sorted(dlc.__all__) == sorted(names(dlc))


def test_a_name_is_imported_alone_and_what_was_not_asked_for_is_not(tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text(TEXT, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("lazy", tmp_path / "lazy.py")
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    assert names(package) == ("Fraction", "Number", "missing")
    assert imported(package, "Number") is Decimal
    with pytest.raises(ImportError, match="missing"):
        imported(package, "missing")


def test_a_verb_is_loaded_without_those_beside_it() -> None:
    script = (
        "from dlc.first_use import imported\nfrom dlc.cli.verbs import lookup\nimport sys\n"
        "imported(lookup, 'ops')\n"
        "print(*[name for name in sys.modules if name.startswith(lookup.__name__ + '.')])\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "dlc.cli.verbs.lookup.ops\n"
