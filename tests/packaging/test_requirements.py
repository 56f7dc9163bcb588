"""What an installation brings along, as the wheel declares it."""

from __future__ import annotations

from packaging.requirements import Requirement


def brought(requirements: list[Requirement], extra: str) -> set[str]:
    """The packages that `pip install dlc[extra]` asks for; without an extra, `pip install dlc`."""
    return {
        each.name
        for each in requirements
        if not each.marker or each.marker.evaluate({"extra": extra})
    }


def test_without_an_extra_nothing_for_gpus_files_or_pictures_is_installed(
    requirements: list[Requirement],
) -> None:
    assert brought(requirements, "") == {"llvmlite", "numpy", "scipy", "typer"}


def test_each_extra_that_messages_name_brings_its_package(requirements: list[Requirement]) -> None:
    packages = {"cuda": "cuda-python", "onnx": "onnx", "pictures": "pillow", "plots": "matplotlib"}
    for extra, package in packages.items():
        assert package in brought(requirements, extra)
