"""The bill of materials lists what a user installs with dlc, and nothing else."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TypedDict, cast

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import dlc
from supply_chain import sbom
from supply_chain.lock import DEV, read_lock
from supply_chain.sbom import bill_of_materials

SECONDS = 1_700_000_000


class Hash(TypedDict):
    """A digest of a file."""

    alg: str
    content: str


class Reference(TypedDict):
    """Files, and the digest of each."""

    url: str
    hashes: list[Hash]


class Component(TypedDict):
    """A package."""

    name: str
    version: str
    scope: str
    externalReferences: list[Reference]


class Needs(TypedDict):
    """What a package needs, by their purls."""

    ref: str
    dependsOn: list[str]


@pytest.fixture
def distribution(tmp_path: Path) -> Path:
    file = tmp_path / "dlc-0-py3-none-any.whl"
    file.write_bytes(b"a wheel")
    return file


@pytest.fixture
def text(distribution: Path) -> str:
    return bill_of_materials([distribution], SECONDS)


def components(text: str) -> dict[str, Component]:
    return {each["name"]: each for each in cast(list[Component], json.loads(text)["components"])}


def test_it_is_valid(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_the_same_build_gives_the_same_bytes(text: str, distribution: Path) -> None:
    assert bill_of_materials([distribution], SECONDS) == text
    assert bill_of_materials([distribution], SECONDS + 1) != text


def test_it_has_the_versions_and_the_hashes_of_the_lock(text: str) -> None:
    pins = read_lock(DEV.read_text(encoding="utf-8"))
    for name, component in components(text).items():
        assert component["version"] == pins[name].version
        [files] = component["externalReferences"]
        assert {each["content"] for each in files["hashes"]} == set(pins[name].hashes)


def test_what_is_always_installed_is_told_from_what_an_extra_brings(text: str) -> None:
    scopes = {name: component["scope"] for name, component in components(text).items()}
    assert {scopes[name] for name in ("llvmlite", "numpy", "scipy", "typer", "rich")} == {
        "required"
    }
    assert {scopes[name] for name in ("cuda-bindings", "onnx", "protobuf", "pillow")} == {
        "optional"
    }
    assert not scopes.keys() & {"pytest", "ruff", "setuptools", "dlc"}


def test_every_package_is_needed_by_another(text: str) -> None:
    needs = cast(list[Needs], json.loads(text)["dependencies"])
    root, *others = (each["ref"] for each in needs)
    assert root == f"pkg:pypi/dlc@{dlc.__version__}"
    assert {other for each in needs for other in each["dependsOn"]} == set(others)
    [scipy] = [each["dependsOn"] for each in needs if "/scipy@" in each["ref"]]
    assert [url.split("@")[0] for url in scipy] == ["pkg:pypi/numpy"]


def test_it_names_the_distributions_with_their_hashes(text: str, distribution: Path) -> None:
    [reference] = json.loads(text)["metadata"]["component"]["externalReferences"]
    assert reference["url"] == distribution.name
    [found] = reference["hashes"]
    assert found["content"] == hashlib.sha256(b"a wheel").hexdigest()


def test_another_version_than_that_of_the_lock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(name: str) -> str:
        return "0.0.1"

    monkeypatch.setattr(sbom, "version", older)
    with pytest.raises(ValueError, match=r"0\.0\.1 is installed, .* is in the lock: make install"):
        bill_of_materials([], SECONDS)
