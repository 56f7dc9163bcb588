"""Machine code for all kernels of a module: one object file each, from a cache where it has them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

from dlc.codegen import llvm
from dlc.codegen.image import Image, link
from dlc.codegen.llvm import Target
from dlc.codegen.loop_to_llvm import function_text
from dlc.dialects import loop
from dlc.dialects.builtin import Module


class ObjectCache(Protocol):
    """Keeps object files by the hash of what they were made from."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, data: bytes) -> None: ...


def kernel_texts(module: Module) -> dict[str, str]:
    """The LLVM text of each kernel, by name."""
    return {
        op.sym_name: function_text(op, op.sym_name)
        for op in module.body
        if isinstance(op, loop.Func)
    }


def compile_kernels(
    texts: Mapping[str, str], target: Target, level: int, cache: ObjectCache | None = None
) -> Image:
    """The kernels compiled for a target and linked into one image."""
    return link({name: cached_object(text, target, level, cache) for name, text in texts.items()})


def cached_object(text: str, target: Target, level: int, cache: ObjectCache | None) -> bytes:
    """The object file of a text, from the cache if it is there."""
    if cache is None:
        return llvm.compile_object(text, target, level)
    key = cache_key(text, target, level)
    found = cache.get(key)
    if found is None:
        found = llvm.compile_object(text, target, level)
        cache.put(key, found)
    return found


def cache_key(text: str, target: Target, level: int) -> str:
    """Changes with everything that the object file depends on."""
    parts = [llvm.version(), target.triple, target.cpu, target.flags, str(level), text]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
