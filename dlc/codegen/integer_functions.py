"""Functions about integers, written as Python and compiled to machine code: one text for both.

`dlc.codegen.python_to_llvm` translates them, and says what it accepts; here they are compiled, linked and
called.

Machine code gives what Python gives where no number leaves 64 bits, nothing negative is divided, indices
run from 0 to below the length and variables have values when they are read. It checks none of these. So
tests run the function in Python, too.
"""

from __future__ import annotations

import ctypes
import hashlib
from array import array
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import cast

from dlc.codegen.kernels import cache_key, kept
from dlc.codegen.link.image import link
from dlc.codegen.llvm import target_machine
from dlc.codegen.llvm.begun import BegunObjects, ObjectCache
from dlc.codegen.python_to_llvm import OutsideSubset, fields_of, llvm_text, sources_of
from dlc.ir.native import Code, Record
from dlc.runtime.cpu.executable_memory import LoadedImage, load_image
from dlc.target.cpu import HOST, CpuTarget

__all__ = ["OutsideSubset", "begin_function", "compile_function", "internal_functions"]

LEVEL = 2
"""How hard LLVM tries."""


def compile_function(
    function: Code[Record], record: type[Record], cache: ObjectCache | None = None
) -> Code[Record]:
    """The function of a record and two integers as machine code of this processor.

    An object file in the cache is used where the texts of the function's module and of its translator, and
    the numbers that its module knows, are as they were. Raises `OutsideSubset`.
    """
    assert isinstance(function, FunctionType)
    target = CpuTarget.named(HOST)
    data = kept(
        cache,
        _key(function, record),
        lambda: target_machine.compile_object(llvm_text([function], entry=True), target, LEVEL),
    )
    image = link({function.__name__: data})
    loaded = load_image(image.code, hashlib.sha256(image.code).digest(), image.imports)
    return _caller(loaded, image.entries[function.__name__], fields_of(record))


def begin_function(function: Code[Record], record: type[Record], objects: BegunObjects) -> None:
    """Begin with the object file for `compile_function`."""
    assert isinstance(function, FunctionType)
    machine = target_machine.machine_of(CpuTarget.named(HOST), LEVEL)
    objects.begin(_key(function, record), lambda: llvm_text([function], entry=True), machine)


def _key(function: FunctionType, record: type[object]) -> str:
    return cache_key(sources_of(function, record), CpuTarget.named(HOST), LEVEL)


def internal_functions(*functions: Callable[..., int | None]) -> str:
    """LLVM text of functions of one module and of all that they call, for other text to call.

    A call of `f(table: Sequence[int], count: int)` is `call i64 @f(ptr %words, i64 %count)`. LLVM inlines
    every call. A function that gives nothing gives 0. Raises `OutsideSubset`.
    """
    assert all(isinstance(function, FunctionType) for function in functions)
    return llvm_text(cast("tuple[FunctionType, ...]", functions), entry=False)


def _caller(loaded: LoadedImage, entry: int, names: Sequence[str]) -> Code[object]:
    """Calls machine code: a record is the address and the length of each of its arrays in turn."""
    integer = ctypes.c_int64
    code = ctypes.CFUNCTYPE(integer, ctypes.c_void_p, integer, integer)(loaded.base + entry)

    def call(record: object, first: int, second: int) -> int:
        assert loaded.pages, "the code lives as long as this function"
        arrays = [cast("array[int]", getattr(record, name)) for name in names]
        words = [word for each in arrays for word in each.buffer_info()]
        return code((ctypes.c_int64 * len(words))(*words), first, second)

    return call
