"""Calls of compiled code by XLA: a handler for each tuple of sizes, registered under a name of its own."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

from dlc.codegen.xla_handler import MESSAGE_BYTES, Handler, NativeCall, compile_handler
from dlc.errors import Unsupported
from dlc.runtime.abi import CallWord, Root
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.frames import Frame, scratch_at, working_bytes
from dlc.runtime.calling.results import Storage
from dlc.runtime.system.buffers import ALIGNMENT

_Fail = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Registered(NamedTuple):
    """A handler that XLA knows by the name `target`, with the memory of its results."""

    target: str
    outputs: tuple[Storage, ...]
    working_bytes: int
    """The size of the last result, in which the call works."""


_alive: list[object] = []
"""Handlers and what they point to. XLA keeps its programs as long as it likes, and forgets no handler."""


def register(
    entry: EntryPoint, shapes: Sequence[tuple[int, ...]], sizes: Mapping[str, int]
) -> Registered:
    """A handler for calls with inputs of these shapes, and sizes that no input tells.

    Raises CallError for shapes and sizes that do not fit, Unsupported (D0714) for code of a GPU.
    """
    import jax

    frame, specialization = entry.prepared(shapes, sizes)
    if not isinstance(frame, Frame):
        raise Unsupported(
            f"{entry.name} was compiled for a GPU, and JAX calls what runs on the processor",
            code="D0714",
            help='compile it with target="cpu"',
        )
    sized = specialization.sized
    fail = _failure_writer(entry)
    handler = compile_handler(_native_call(entry, frame, sized.sizes_at, scratch_at(sized), fail))
    # A name that no other process uses: programs that JAX keeps on disk must not find another model.
    target = f"dlc_{uuid4().hex}"
    jax.ffi.register_ffi_target(target, _capsule(handler), platform="cpu")
    _alive.append((handler, frame, sized, fail, entry))
    room = working_bytes(sized, entry.threads) + ALIGNMENT
    return Registered(target, specialization.outputs, room)


def _native_call(
    entry: EntryPoint, frame: Frame, sizes_at: int, scratch: int, fail: object
) -> NativeCall:
    words = list(frame.words)
    words[CallWord.SIZES], words[CallWord.CANCEL] = sizes_at, 0
    if frame.uses_blas:
        words[CallWord.THREADS] = 1  # each of them would call a BLAS that has threads of its own
    places = {item.name: number for number, item in enumerate(entry.entry.inputs)}
    return NativeCall(
        words,
        list(frame.roots)[: Root.INPUTS],
        len(entry.entry.inputs),
        [places[each.updates] if each.updates else None for each in entry.entry.outputs],
        scratch,
        frame.enter_address,
        _address(fail),
    )


def _failure_writer(entry: EntryPoint) -> object:
    """A C function that writes the message of a failed call, as a zero-terminated text."""

    def write(words: int, message: int) -> None:
        found = (ctypes.c_int64 * CallWord.COUNT).from_address(words)
        text = str(entry.failure(list(found))).encode()[: MESSAGE_BYTES - 1]
        ctypes.memmove(message, text + b"\0", len(text) + 1)

    return _Fail(write)


def _address(function: object) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value  # pyright: ignore[reportArgumentType]
    assert found is not None
    return found


def _capsule(handler: Handler) -> object:
    """The address as JAX takes it."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
    )
    return new(handler.address, None, None)
