"""Structure of the package: modules and rooms of each folder, imports between them, circles, lines.

`python -m benchmarks rooms [CHECKOUT]` reads the sources of this or another checkout and runs none of them.
A room is a module or folder directly under a package of `dlc`; an arrow is a pair of rooms of one package,
of which the first imports the second. A circle is a set of two or more modules that reach each other by
imports, with those inside functions and those for type checkers. Folders of many modules and long files are
named, for whoever divides them next.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = ("dlc", "tests", "benchmarks")
MANY_MODULES = 25
"""Folders with more are named."""
MANY_LINES = 450
"""Files with more are named: a person does not read them in one sitting."""

Imports = Mapping[str, frozenset[str]]
"""The modules that each module imports, by dotted names; a package is named like its folder."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The figures of one package directly under `dlc`."""

    name: str
    modules: int
    rooms: int
    arrows: int


def imports_of(checkout: Path) -> Imports:
    """The import graph of `dlc` in a checkout."""
    paths = {_module_name(path.relative_to(checkout)): path for path in _sources(checkout / "dlc")}
    return {
        name: frozenset(_imported(ast.parse(path.read_text(encoding="utf-8")), paths)) - {name}
        for name, path in paths.items()
    }


def folders(imports: Imports) -> Iterator[Folder]:
    """The figures of each package, in the order of their names."""
    for folder, modules in sorted(Counter(_parts(name)[0] for name in imports).items()):
        if f"dlc.{folder}" not in imports or not any(
            name.startswith(f"dlc.{folder}.") for name in imports
        ):
            continue
        rooms = {_parts(name)[1] for name in imports if _parts(name)[0] == folder} - {""}
        yield Folder(
            folder,
            modules,
            len(rooms),
            len(set(_arrows(imports, folder))),
        )


def strongly_connected(imports: Imports) -> list[list[str]]:
    """The circles: strongly connected components of two or more modules, largest first."""
    reached = {name: _reachable(imports, name) for name in imports}
    circles = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in imports
        if name in reached[name]
    }
    return sorted((sorted(circle) for circle in circles), key=len, reverse=True)


def lines_of(folder: Path) -> int:
    """Lines of Python under a folder."""
    return sum(path.read_bytes().count(b"\n") for path in _sources(folder))


def full_folders(folder: Path) -> list[tuple[int, Path]]:
    """The folders of more than `MANY_MODULES` modules beside `__init__.py`, the fullest first."""
    counts = Counter(path.parent for path in _sources(folder) if path.stem != "__init__")
    return [(count, path) for path, count in counts.most_common() if count > MANY_MODULES]


def long_files(folder: Path) -> list[tuple[int, Path]]:
    """The files of more than `MANY_LINES` lines, the longest first."""
    lengths = [(path.read_bytes().count(b"\n"), path) for path in _sources(folder)]
    return sorted([each for each in lengths if each[0] > MANY_LINES], reverse=True)


def pass_cases(checkout: Path) -> int:
    """Text cases under `tests/cases`: stretches of a `.dlir` file between lines `// -----`."""
    return sum(
        path.read_text(encoding="utf-8").count("\n// -----\n") + 1
        for path in (checkout / "tests" / "cases").rglob("*.dlir")
    )


def _sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _parts(module: str) -> tuple[str, str]:
    """The package under `dlc` and the room of a module; empty for what has none."""
    _, folder, room, *_ = (*module.split("."), "", "")
    return folder, room


def _imported(tree: ast.AST, modules: Mapping[str, object]) -> Iterator[str]:
    """The modules of `dlc` that a tree imports, wherever in its file."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name in modules)
            case ast.ImportFrom(module=str(base), names=names) if base in modules:
                for each in names:
                    inner = f"{base}.{each.name}"
                    yield inner if inner in modules else base
            case _:
                yield from _imported(node, modules)


def _arrows(imports: Imports, folder: str) -> Iterator[tuple[str, str]]:
    for name, imported in imports.items():
        for other in imported:
            source, target = _parts(name), _parts(other)
            if source[0] == target[0] == folder and source[1] != target[1] != "" != source[1]:
                yield source[1], target[1]


def _reachable(imports: Imports, start: str) -> set[str]:
    """The modules that `start` reaches by one import or more."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for other in imports[waiting.pop()] - reached:
            reached.add(other)
            waiting.append(other)
    return reached


def main(arguments: Sequence[str]) -> None:
    """Print a table of the packages, then circles, lines, text cases, full folders and long files."""
    checkout = Path(arguments[0]) if arguments else ROOT
    imports = imports_of(checkout)
    print("| folder | modules | rooms | arrows |\n| --- | --: | --: | --: |")
    for row in folders(imports):
        print(f"| `{row.name}` | {row.modules} | {row.rooms} | {row.arrows} |")
    for circle in strongly_connected(imports):
        print(f"circle of {len(circle)}: {', '.join(circle)}")
    print(f"lines of dlc {lines_of(checkout / 'dlc'):,}, of tests {lines_of(checkout / 'tests'):,}")
    print(f"text cases of passes {pass_cases(checkout)}")
    for count, path in chain.from_iterable(full_folders(checkout / name) for name in TREES):
        print(f"{count} modules in {path.relative_to(checkout)}")
    for count, path in long_files(checkout / "dlc"):
        print(f"{count} lines in {path.relative_to(checkout)}")


if __name__ == "__main__":
    main(sys.argv[1:])
