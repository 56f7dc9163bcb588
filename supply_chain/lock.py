"""The locks: exactly one version of each package, with the hashes of its files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
DEV = ROOT / "supply_chain" / "requirements-dev.txt"
"""What `make install` installs: the extra `dev`, with all that it needs."""
SUPPLY_CHAIN = ROOT / "supply_chain" / "requirements-supply-chain.txt"
"""What `make lock` and `make audit` are done with."""
CUDA = [ROOT / "supply_chain" / f"requirements-cuda-{version}.txt" for version in ("12.9", "13.0")]
"""Other bindings of a GPU's driver, which tests take in turn."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A package of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """The SHA-256 of each of its files."""
    is_direct: bool
    """Whether pyproject.toml names it; the others are needed by those."""


def read_lock(text: str) -> dict[str, Pin]:
    """The packages of a lock by their normalized names. Raises ValueError for one that is not pinned."""
    pins: dict[str, Pin] = {}
    for entry in re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]:
        requirement = Requirement(entry.partition("\\\n")[0])
        name = canonicalize_name(requirement.name)
        [pinned] = requirement.specifier
        if pinned.operator != "==" or name in pins:
            raise ValueError(f"{requirement} is not one version of {name}")
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
        pins[name] = Pin(name, pinned.version, hashes, "(pyproject.toml" in entry)
    return pins


def disagreements(requirements: list[Requirement], pins: dict[str, Pin]) -> list[str]:
    """Where a lock is not what those requirements give; empty if it is."""
    found: list[str] = []
    names = {canonicalize_name(each.name): each for each in requirements}
    for each in requirements:
        pin = pins.get(canonicalize_name(each.name))
        if pin is None:
            found.append(f"{each} is not in the lock")
        elif pin.version not in each.specifier:
            found.append(f"{each} is asked for, {pin.version} is in the lock")
    found += [
        f"{pin.name} is in the lock, and nothing asks for it"
        for pin in pins.values()
        if pin.is_direct and pin.name not in names
    ]
    return found
