"""Result classes of packages that are not installed.

A `.pt2` file names the classes by which results are nested. PyTorch reads it only where a package has
registered them; for results in their order any class that holds them will do.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager


class _Kinds(dict[str, type]):
    """The registered classes by name; others are made when they are asked for."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> type:
        made = self[name] = _registered(name)
        return made


@contextmanager
def unknown_classes() -> Generator[None]:
    """While a file is read, a list stands for each class that is not registered."""
    from torch.utils import _pytree

    usual = _pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE
    _pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE = _Kinds(usual)
    try:
        yield
    finally:
        _pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE = usual


def _registered(name: str) -> type:
    """A list of this name, which PyTorch takes apart and puts together."""
    from torch.utils import _pytree

    class Results(list[object]):
        """The parts of a class that is not there."""

    def parts(held: Iterable[object]) -> tuple[list[object], None]:
        return [*held], None

    def whole(given: Iterable[object], _: object) -> Results:
        return Results(given)

    Results.__name__ = name.rpartition(".")[2]
    _pytree.register_pytree_node(
        Results,
        parts,
        whole,
        serialized_type_name=f"dlc.{name}",
        to_dumpable_context=str,
        from_dumpable_context=_nothing,
    )
    return Results


def _nothing(context: object) -> None:
    """What the file says of a class, such as the names of its parts, is not needed."""
