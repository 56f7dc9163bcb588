"""What dlc needs, directly or not, as the packages that are installed here declare it.

The answer is that for CPython 3.11 on Linux on x86-64, wherever it is asked, so that it is always the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import metadata, requires
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PLATFORM: Final = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.0",
    "python_version": "3.11",
    "sys_platform": "linux",
}


UNLOCKED: Final = frozenset({"docs", "jax", "torch"})
"""Extras that the lock leaves out, and so licences and SBOM do: JAX and PyTorch are tested in environments
of their own, and come in builds for many machines; the generator of `make docs`, of licence MIT, only
makes a site."""


def users_extras() -> list[str]:
    """The extras of dlc that the lock has, but for the one of those who develop it."""
    return sorted(set(metadata("dlc").get_all("Provides-Extra", [])) - {"dev"} - UNLOCKED)


def dependencies(extras: Sequence[str]) -> dict[str, set[str]]:
    """What dlc with those extras and each package below it need, by normalized names.

    Raises PackageNotFoundError where one of them is not installed.
    """
    needs: dict[str, set[str]] = {}
    seen: set[tuple[str, str]] = set()
    left = [("dlc", extra) for extra in ("", *extras)]
    while left:
        name, extra = asked = left.pop()
        if asked in seen:
            continue
        seen.add(asked)
        its_needs = needs.setdefault(name, set())
        for requirement in _requirements(name, extra):
            other = canonicalize_name(requirement.name)
            left += [(other, each) for each in ("", *requirement.extras)]
            if other != name:
                its_needs.add(other)
    return needs


def _requirements(name: str, extra: str) -> Iterator[Requirement]:
    """What a package declares for one of its extras; for the extra "", what it always needs."""
    for text in requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({**PLATFORM, "extra": extra}):
            yield requirement
