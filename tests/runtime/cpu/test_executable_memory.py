"""Loading a code image: checked, protected, and gone when its owner is."""

from __future__ import annotations

import ctypes
import gc
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from dlc.codegen.link.image import Image, link
from dlc.codegen.llvm.target_machine import compile_object
from dlc.errors import ArtifactError
from dlc.runtime.cpu.executable_memory import LoadedImage, load_engine, load_image
from dlc.runtime.system import pages
from dlc.runtime.system.pages import Pages
from dlc.target.cpu import CpuTarget


class Mapping(NamedTuple):
    start: int
    end: int
    protection: str


def mappings() -> list[Mapping]:
    found: list[Mapping] = []
    with open("/proc/self/maps") as lines:
        for line in lines:
            addresses, protection, *_ = line.split()
            start, end = (int(part, 16) for part in addresses.split("-"))
            found.append(Mapping(start, end, protection))
    return found


def protection(address: int) -> str:
    return next((m.protection for m in mappings() if m.start <= address < m.end), "none")


def image(text: str) -> Image:
    return link({"kernel": compile_object(text, CpuTarget.named("x86-64"))})


TWO = image("define i64 @two() { ret i64 2 }")


def load(made: Image, imports: Sequence[str] | None = None) -> LoadedImage:
    imports = made.imports if imports is None else imports
    return load_image(made.code, hashlib.sha256(made.code).digest(), imports)


def refusal(
    code: bytes, imports: Sequence[str] = (), digest: bytes | None = None
) -> tuple[str, str]:
    with pytest.raises(ArtifactError) as caught:
        load_image(code, digest or hashlib.sha256(code).digest(), imports)
    (said,) = caught.value.diagnostics
    return said.code, said.message


def test_loaded_code_runs_from_a_page_of_its_own() -> None:
    loaded = load(TWO)
    assert loaded.base % 4096 == 0
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.base)() == 2


def test_code_can_be_read_and_executed_and_not_written() -> None:
    loaded = load(TWO)
    assert protection(loaded.base) == "r-xp"


def test_no_memory_is_ever_writable_and_executable(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    make_executable = Pages.make_executable

    def watch(self: Pages) -> None:
        seen.append(protection(self.address))
        make_executable(self)
        seen.append(protection(self.address))

    monkeypatch.setattr(Pages, "make_executable", watch)
    before = set(mappings())  # ctypes keeps a page of its own for callbacks
    loaded = load(TWO)
    assert seen == ["rw-p", "r-xp"]
    assert protection(loaded.base) == "r-xp"
    assert not [m for m in set(mappings()) - before if {"w", "x"} <= set(m.protection)]


def test_the_code_goes_when_its_owner_goes() -> None:
    loaded = load(TWO)
    address = loaded.base
    assert protection(address) == "r-xp"
    del loaded
    gc.collect()
    assert "x" not in protection(address)


def test_a_changed_byte_is_refused() -> None:
    code, message = refusal(b"\x90" + TWO.code[1:], digest=hashlib.sha256(TWO.code).digest())
    assert (code, message) == ("D0606", "the code has another SHA-256 than promised")


def test_a_function_that_is_not_on_the_list_is_refused_by_name() -> None:
    code, message = refusal(bytes(64), ["memcpy", "system"])
    assert code == "D0609"
    assert message == "the code calls system, which code in an artifact may not call"


def test_an_image_shorter_than_its_import_table_is_refused() -> None:
    assert refusal(b"") == ("D0606", "a code image of 0 bytes is too short")
    assert refusal(bytes(15), ["memcpy", "memset"])[0] == "D0606"


def test_the_import_table_is_filled_in_the_order_of_the_names() -> None:
    loaded = load_image(bytes(64), hashlib.sha256(bytes(64)).digest(), ["memset", "memcpy"])
    table = (ctypes.c_void_p * 3).from_address(loaded.base)
    expected = [
        ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
        for name in ("memset", "memcpy")
    ]
    assert list(table) == [*expected, None]


def test_a_system_that_forbids_execution_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(address: int, size: int, rights: int) -> int:
        ctypes.set_errno(13)
        return -1

    monkeypatch.setattr(pages, "_mprotect", forbid)
    code, message = refusal(TWO.code)
    assert (code, message) == ("D0615", "memory cannot be made executable: Permission denied")


def test_an_engine_whose_entry_lies_outside_is_refused() -> None:
    digest = hashlib.sha256(TWO.code).digest()
    with pytest.raises(ArtifactError, match="no entry at byte 1000"):
        load_engine(TWO.code, digest, (), 1000)


def test_pages_are_zero_and_can_be_wiped_in_children() -> None:
    some = Pages(10_000)
    assert some.size == 10_000
    assert not any(some.view())
    assert some.wipe_on_fork()
