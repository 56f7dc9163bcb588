"""The locks are those of pyproject.toml, and say of each file which one it is. Nothing needs a network."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from packaging.requirements import Requirement

from supply_chain.dependencies import UNLOCKED
from supply_chain.lock import CUDA, DEV, ROOT, SUPPLY_CHAIN, disagreements, read_lock

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
LOCK = DEV.read_text(encoding="utf-8")
GROUPS = {path.stem.removeprefix("requirements-"): path for path in (SUPPLY_CHAIN, *CUDA)}
"""The locks of pyproject's dependency groups, whose names have a hyphen for each dot."""
LOCKS = pytest.mark.parametrize("lock", [DEV, *GROUPS.values()], ids=lambda path: path.stem)

Lists = Mapping[str, list[str]]


def asked_for(text: str) -> list[Requirement]:
    """What a pyproject.toml asks for: to run, with every extra of the lock, and to build."""
    tables = tomllib.loads(text)
    extras = cast(Lists, tables["project"]["optional-dependencies"])
    texts = [*tables["project"]["dependencies"], *tables["build-system"]["requires"]]
    locked = [each for extra, asked in extras.items() if extra not in UNLOCKED for each in asked]
    requirements = [Requirement(each) for each in [*texts, *locked]]
    return [each for each in requirements if each.name != "dlc"]


def test_the_lock_is_that_of_pyproject() -> None:
    assert disagreements(asked_for(PROJECT), read_lock(LOCK)) == [], "make lock"


@pytest.mark.parametrize("group", GROUPS)
def test_the_lock_of_a_group_is_that_of_pyproject(group: str) -> None:
    groups = cast(Lists, tomllib.loads(PROJECT)["dependency-groups"])
    requirements = [Requirement(each) for each in groups[group.replace(".", "-")]]
    pins = read_lock(GROUPS[group].read_text(encoding="utf-8"))
    assert disagreements(requirements, pins) == [], "make lock"


@pytest.mark.parametrize(
    ("line", "changed", "said"),
    [
        ('"numpy>=2.1,<3"', '"numpy>=2.1,<3", "attrs-strict"', "attrs-strict is not in the lock"),
        ('"numpy>=2.1,<3"', '"numpy>=99"', "numpy>=99 is asked for, .* is in the lock"),
        ('"mpmath>=1.3,<2",', "", "mpmath is in the lock, and nothing asks for it"),
        ('["setuptools>=77,<90"]', '["hatchling"]', "hatchling is not in the lock"),
        ('"cuda-python>=12.9,<14;', '"cuda-python<12;', "cuda-python<12; .* is in the lock"),
    ],
)
def test_a_change_of_pyproject_without_a_new_lock_is_noticed(
    line: str, changed: str, said: str
) -> None:
    assert line in PROJECT
    [found] = disagreements(asked_for(PROJECT.replace(line, changed, 1)), read_lock(LOCK))
    assert re.fullmatch(said, found)


@LOCKS
def test_every_package_has_a_hash(lock: Path) -> None:
    pins = read_lock(lock.read_text(encoding="utf-8"))
    assert [pin.name for pin in pins.values() if not pin.hashes] == []


@LOCKS
def test_a_lock_names_no_registry(lock: Path) -> None:
    assert not re.search(r"://|^-", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_a_package_of_two_versions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"numpy==2\.5 is not one version of numpy"):
        read_lock("numpy==2.4 \\\n    --hash=sha256:0\nnumpy==2.5 \\\n    --hash=sha256:0\n")


def test_a_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"numpy>=2\.4 is not one version of numpy"):
        read_lock("numpy>=2.4 \\\n    --hash=sha256:0\n")
