"""The handler for XLA, called with a call frame made by hand as `xla/ffi/api/c_api.h` lays it out."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.codegen.xla_handler import Handler, NativeCall, compile_handler
from dlc.runtime.abi import CallWord, Root
from dlc.runtime.calling.frames import Frame, scratch_at, working_bytes
from dlc.runtime.system.buffers import aligned_bytes

TEXT = "dlc 1\nexport fn f(x: f32[8], k: i32) -> f32[8] = softmax(x)[0] + x * x[k]\n"
Words = NDArray[np.int64]
Fail = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
Create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def words(*numbers: int) -> Words:
    return np.array(numbers, np.int64)


def at(array: NDArray[np.generic]) -> int:
    return array.ctypes.data


class Xla:
    """What XLA passes: the table of its functions, buffers, a frame. Keeps what the words point to."""

    def __init__(self) -> None:
        self.kept: list[object] = []
        self.told: list[bytes] = []
        create = Create(self._create)
        self.kept.append(create)
        address = ctypes.cast(create, ctypes.c_void_p).value or 0
        self.api = words(168, 0, 24, 0, 0x3_0000_0000, 0, address)

    def _create(self, arguments: int) -> int:
        message = ctypes.c_int64.from_address(arguments + 16).value
        self.told.append(ctypes.string_at(message))
        return 99

    def buffers(self, *arrays: NDArray[np.generic]) -> int:
        found = [words(48, 0, 0, at(array), array.ndim, 0) for array in arrays]
        table = words(*[at(each) for each in found])
        self.kept += [*found, table]
        return at(table)

    def frame(self, extension: int, arguments: int = 0, results: int = 0) -> Words:
        frame = words(168, extension, at(self.api), 0, 3, 40, 0, 2, 0, arguments)
        return np.concatenate([frame, words(40, 0, 2, 0, results, *[0] * 8)])


@pytest.fixture(scope="module")
def model() -> dlc.Model:
    return dlc.compile(text=TEXT, threads=1)


def handler_of(model: dlc.Model, kept: list[object]) -> tuple[Handler, int]:
    """The handler, and the bytes of working memory."""
    entry = model.entry_points["f"]
    frame, found = entry.prepared([(8,), ()], {})
    assert isinstance(frame, Frame)
    sized = found.sized

    def write(at_words: int, message: int) -> None:
        status = list((ctypes.c_int64 * CallWord.COUNT).from_address(at_words))
        text = str(entry.failure(status)).encode() + b"\0"
        ctypes.memmove(message, text, len(text))

    fail = Fail(write)
    kept += [frame, found, fail]
    call_words = list(frame.words)
    call_words[CallWord.SIZES], call_words[CallWord.CANCEL] = sized.sizes_at, 0
    call = NativeCall(
        call_words,
        list(frame.roots)[: Root.INPUTS],
        2,
        [None],
        scratch_at(sized),
        frame.enter_address,
        ctypes.cast(fail, ctypes.c_void_p).value or 0,
    )
    return compile_handler(call), working_bytes(sized, 1) + 64


def called(handler: Handler, frame: Words) -> int | None:
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(handler.address)
    found: int | None = function(at(frame))
    return found


def test_a_call_reads_and_writes_the_buffers_of_xla(model: dlc.Model) -> None:
    xla = Xla()
    handler, room = handler_of(model, xla.kept)
    x, k, y = np.arange(8, dtype=np.float32), np.array(3, np.int32), np.zeros(8, np.float32)
    frame = xla.frame(0, xla.buffers(x, k), xla.buffers(y, aligned_bytes(room)))
    assert called(handler, frame) is None
    np.testing.assert_array_equal(y, model.f(x, k))


def test_a_failed_call_gives_an_error_with_the_line_of_the_text(model: dlc.Model) -> None:
    xla = Xla()
    handler, room = handler_of(model, xla.kept)
    x, k, y = np.zeros(8, np.float32), np.array(8, np.int32), np.zeros(8, np.float32)
    frame = xla.frame(0, xla.buffers(x, k), xla.buffers(y, aligned_bytes(room)))
    assert called(handler, frame) == 99
    (told,) = xla.told
    assert (
        told.startswith(b"error[D0807]: f: the index 8 is out of range") and b"model.dlm:2" in told
    )


def test_the_handler_says_the_version_of_the_xla_that_asks(model: dlc.Model) -> None:
    xla = Xla()
    handler, _ = handler_of(model, xla.kept)
    metadata = words(48, 24, 0, -1, -1, -1)
    extension = words(32, 1, 0, at(metadata))
    assert called(handler, xla.frame(at(extension))) is None
    assert metadata[3] == 0x3_0000_0000 and metadata[4] & 0xFFFFFFFF == 0
