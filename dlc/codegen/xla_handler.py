"""A handler of XLA's foreign function interface: a compiled entry point that XLA calls without Python.

The handler belongs to one tuple of sizes. XLA passes it a call frame with the addresses of arguments and
results, the last of which is working memory; it copies the words of a `dlc_call` to its stack, with these
addresses among the roots, and calls the engine. So any number of XLA's threads may be in it at once.
Offsets are those of `xla/ffi/api/c_api.h`, API version 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from dlc.codegen.link.image import link
from dlc.codegen.llvm.target_machine import compile_object
from dlc.runtime.abi import CallWord, Root
from dlc.runtime.cpu.executable_memory import LoadedImage, load_image
from dlc.runtime.system.buffers import ALIGNMENT
from dlc.target.cpu import HOST, CpuTarget

MESSAGE_BYTES = 4096
"""Room for the text of an error."""

_NAME = "dlc_xla_handler"
_EXTENSION, _API, _ARGUMENTS, _RESULTS = 8, 16, 72, 112
"""Where a call frame has its extension, the table of XLA's functions, and the lists of buffers."""
_BUFFER_DATA = 24
_METADATA = 1
"""The kind of the extension by which XLA asks for the version that a handler was made for."""
_API_VERSION, _ERROR_CREATE = 32, 48
_INTERNAL = 13
"""XLA's error code for what goes wrong in a call."""


@dataclass(frozen=True, slots=True)
class NativeCall:
    """What a handler needs besides the buffers of XLA.

    `words` are those of a `dlc_call`, `roots` the fixed ones; `updates` has for each output the input that
    it overwrites, or None. `fail(words, message)` writes the error of a failed call, `enter` is the engine:
    both are addresses. `scratch_at` is where the scratch begins in the working memory, in bytes.
    """

    words: Sequence[int]
    roots: Sequence[int]
    inputs: int
    updates: Sequence[int | None]
    scratch_at: int
    enter: int
    fail: int


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler at `address`, for the lifetime of this object."""

    address: int
    image: LoadedImage


def compile_handler(call: NativeCall) -> Handler:
    """The handler of a call as machine code of this processor."""
    data = compile_object(handler_text(call), CpuTarget.named(HOST))
    image = link({_NAME: data})
    loaded = load_image(image.code, hashlib.sha256(image.code).digest(), image.imports)
    return Handler(loaded.base + image.entries[_NAME], loaded)


def handler_text(call: NativeCall) -> str:
    """The handler as LLVM IR: `ptr handler(ptr frame)`, which gives null or an error of XLA."""
    text = _Text()
    text.lines += [f"define ptr @{_NAME}(ptr %frame) {{", "entry:"]
    extension = text.load("ptr", "%frame", _EXTENSION)
    none = text.emit(f"icmp eq ptr {extension}, null")
    text.lines += [f"  br i1 {none}, label %execute, label %extended", "extended:"]
    kind = text.load("i32", extension, 8)
    asked = text.emit(f"icmp eq i32 {kind}, {_METADATA}")
    text.lines += [f"  br i1 {asked}, label %metadata, label %execute", "metadata:"]
    _write_metadata(text, extension)
    text.lines += ["  ret ptr null", "execute:"]
    words = _write_call(text, call)
    status = text.emit(f"call i32 inttoptr (i64 {call.enter} to ptr)(ptr {words})")
    right = text.emit(f"icmp eq i32 {status}, 0")
    text.lines += [f"  br i1 {right}, label %done, label %failed", "done:", "  ret ptr null"]
    text.lines.append("failed:")
    text.lines += [f"  ret ptr {_error(text, call, words)}", "}", ""]
    return "\n".join(text.lines)


def _write_metadata(text: _Text, extension: str) -> None:
    """Say the version of XLA itself: what is read here has been the same in all of version 0."""
    metadata = text.load("ptr", extension, 24)
    api = text.load("ptr", "%frame", _API)
    for offset in (0, 4):
        version = text.load("i32", api, _API_VERSION + offset)
        text.store("i32", version, metadata, 24 + offset)
    text.store("i32", "0", metadata, 32)


def _write_call(text: _Text, call: NativeCall) -> str:
    """The words of the call, on the stack, with the roots that they point to."""
    count = Root.INPUTS + call.inputs + len(call.updates)
    words = text.emit(f"alloca [{CallWord.COUNT.value} x i64], align 16")
    roots = text.emit(f"alloca [{count} x i64], align 16")
    for number, word in enumerate(call.words):
        text.store("i64", str(word), words, 8 * number)
    text.store("ptr", roots, words, 8 * CallWord.ROOTS)
    for root, address in enumerate(call.roots):
        text.store("i64", str(address), roots, 8 * root)
    arguments = text.load("ptr", "%frame", _ARGUMENTS)
    for number in range(call.inputs):
        _write_root(text, roots, Root.INPUTS + number, _data(text, arguments, number))
    results = text.load("ptr", "%frame", _RESULTS)
    for number, updated in enumerate(call.updates):
        data = _data(text, results, number)
        _write_root(text, roots, Root.INPUTS + call.inputs + number, data)
        if updated is not None:
            _write_root(text, roots, Root.INPUTS + updated, data)
    _write_working_memory(text, call, roots, _data(text, results, len(call.updates)))
    return words


def _write_working_memory(text: _Text, call: NativeCall, roots: str, data: str) -> None:
    """Arena and scratch, from the first aligned byte on."""
    above = text.emit(f"add i64 {data}, {ALIGNMENT - 1}")
    base = text.emit(f"and i64 {above}, {-ALIGNMENT}")
    _write_root(text, roots, Root.ARENA, base)
    _write_root(text, roots, Root.SCRATCH, text.emit(f"add i64 {base}, {call.scratch_at}"))


def _write_root(text: _Text, roots: str, root: int, address: str) -> None:
    text.store("i64", address, roots, 8 * root)


def _data(text: _Text, buffers: str, number: int) -> str:
    """The address of the elements of a buffer, as a number."""
    buffer = text.load("ptr", buffers, 8 * number)
    return text.load("i64", buffer, _BUFFER_DATA)


def _error(text: _Text, call: NativeCall, words: str) -> str:
    """XLA's error with the message of a failed call."""
    message = text.emit(f"alloca [{MESSAGE_BYTES} x i8], align 16")
    arguments = text.emit("alloca [4 x i64], align 16")
    text.lines.append(f"  call void inttoptr (i64 {call.fail} to ptr)(ptr {words}, ptr {message})")
    text.store("i64", "28", arguments, 0)  # as long as the struct is up to its last field
    text.store("ptr", "null", arguments, 8)
    text.store("ptr", message, arguments, 16)
    text.store("i32", str(_INTERNAL), arguments, 24)
    create = text.load("ptr", text.load("ptr", "%frame", _API), _ERROR_CREATE)
    return text.emit(f"call ptr {create}(ptr {arguments})")


class _Text:
    """The lines of a function of LLVM IR."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def emit(self, instruction: str) -> str:
        """Append an instruction; gives the name of its value."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def load(self, type: str, base: str, offset: int) -> str:
        return self.emit(f"load {type}, ptr {self._at(base, offset)}, align 4")

    def store(self, type: str, value: str, base: str, offset: int) -> None:
        self.lines.append(f"  store {type} {value}, ptr {self._at(base, offset)}, align 4")

    def _at(self, base: str, offset: int) -> str:
        return self.emit(f"getelementptr i8, ptr {base}, i64 {offset}")


__all__ = ["MESSAGE_BYTES", "Handler", "NativeCall", "compile_handler", "handler_text"]
