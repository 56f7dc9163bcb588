"""Operations from other packages: each names a module under the entry point `dlc.ops`, which is imported.

What it defines with `@op` and `add_builtin` is then known like dlc's own. In its `pyproject.toml`:

    [project.entry-points."dlc.ops"]
    softsign = "dlc_softsign"
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from dlc.errors import UsageError

GROUP = "dlc.ops"


@cache
def load_extensions() -> tuple[str, ...]:
    """Import every such module, once; gives what was loaded, as `NAME (PACKAGE VERSION)`.

    Raises UsageError (D0922) for one that cannot be imported.
    """
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple([_loaded(point) for point in points])


def _loaded(point: EntryPoint) -> str:
    package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    try:
        point.load()
    except Exception as error:  # another package's code may fail in any way
        raise UsageError(
            f"the operations of {package} cannot be loaded: {type(error).__name__}: {error}",
            code="D0922",
            help=f"fix the module {point.value}, or uninstall {package.partition(' ')[0]}",
        ) from error
    return f"{point.name} ({package})"
