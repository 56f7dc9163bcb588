"""What NVIDIA's driver refuses is an error in words; the driver here is made of a few functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from dlc.errors import CallError
from dlc.runtime.cuda import driver
from dlc.runtime.cuda.driver import NoGpu, open_driver

Use: TypeAlias = Callable[[SimpleNamespace], None]


def gives(*results: object) -> Callable[..., tuple[object, ...]]:
    """A function of the driver that ends with a status and its results, whatever it is given."""

    def function(*arguments: object) -> tuple[object, ...]:
        return results

    return function


def capability(which: int, device: object) -> tuple[int, int]:
    return 0, which


def bindings(allocated: tuple[object, ...], devices: int = 1) -> SimpleNamespace:
    """Functions that succeed, but for the one that allocates."""
    attribute = "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_"
    return SimpleNamespace(
        CUdevice_attribute=SimpleNamespace(**{f"{attribute}MAJOR": 8, f"{attribute}MINOR": 6}),
        cuInit=gives(0),
        cuDeviceGetCount=gives(0, devices),
        cuDeviceGet=gives(0, 0),
        cuDevicePrimaryCtxRetain=gives(0, "context"),
        cuDeviceGetAttribute=capability,
        cuCtxSetCurrent=gives(0),
        cuMemAlloc=gives(*allocated),
        cuGetErrorString=gives(0, b"it is used up"),
    )


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    open_driver.cache_clear()

    def use(found: SimpleNamespace) -> None:
        def imported(name: str) -> SimpleNamespace:
            assert name == "cuda.bindings.driver"
            return found

        monkeypatch.setattr(driver, "import_module", imported)

    yield use
    open_driver.cache_clear()


def test_a_gpu_says_what_it_can_do_and_where_memory_is(pretend: Use) -> None:
    pretend(bindings((0, 4096)))
    assert open_driver().capability == (8, 6)
    assert open_driver().allocate(10) == 4096


def test_a_refusal_has_the_words_of_the_driver(pretend: Use) -> None:
    pretend(bindings((700,)))
    with pytest.raises(CallError, match=r"D0818.*refuses cuMemAlloc: it is used up"):
        open_driver().allocate(10)


def test_a_machine_without_devices_has_none(pretend: Use) -> None:
    pretend(bindings((0, 1), devices=0))
    with pytest.raises(NoGpu, match="GPU 0, and there are 0 here"):
        open_driver()
