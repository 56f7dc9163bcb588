"""Machine code for all kernels of a module, each made on its own and kept in a cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from dlc.codegen import llvm
from dlc.codegen.image import Image, link
from dlc.codegen.llvm import Target
from dlc.codegen.loop_to_llvm import function_text
from dlc.codegen.ptx import GPU_LEVEL, Gpu, assemble, has_ptxas, kernel_ptx, whole_ptx
from dlc.codegen.simt_to_llvm import kernel_text
from dlc.dialects import loop, simt
from dlc.dialects.builtin import Module


class ObjectCache(Protocol):
    """Keeps object files by the hash of what they were made from."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, data: bytes) -> None: ...


Processor: TypeAlias = Target | Gpu
"""What code is made for."""


def kernel_texts(module: Module) -> dict[str, str]:
    """The LLVM text of each kernel, by name."""
    texts: dict[str, str] = {}
    for op in module.body:
        match op:
            case loop.Func(sym_name=name):
                texts[name] = function_text(op, name)
            case simt.Func(sym_name=name):
                texts[name] = kernel_text(op, name)
            case _:
                pass
    return texts


def assembly(texts: Iterable[str], processor: Processor, level: int) -> str:
    """Kernels as assembly code for people to read: PTX where they are for a GPU."""
    if isinstance(processor, Gpu):
        made = [kernel_ptx(text, processor.architecture) for text in texts]
        return whole_ptx(made, processor.architecture)
    return "\n".join(llvm.assembly(text, processor, level) for text in texts)


def compile_kernels(
    texts: Mapping[str, str], target: Target, level: int, cache: ObjectCache | None = None
) -> Image:
    """The kernels compiled for a target and linked into one image."""
    return link({name: cached_object(text, target, level, cache) for name, text in texts.items()})


def compile_ptx(texts: Iterable[str], gpu: Gpu, cache: ObjectCache | None = None) -> str:
    """The kernels as one file of PTX."""
    return whole_ptx([_cached_ptx(text, gpu, cache) for text in texts], gpu.architecture)


def assemble_ptx(ptx: str, gpu: Gpu, cache: ObjectCache | None = None) -> bytes:
    """Machine code of it; nothing where there is no assembler."""
    if not has_ptxas():
        return b""
    key = cache_key(f"ptxas {ptx}", gpu, GPU_LEVEL)
    return kept(cache, key, lambda: assemble(ptx, gpu.architecture)[0])


def _cached_ptx(text: str, gpu: Gpu, cache: ObjectCache | None) -> str:
    key = cache_key(text, gpu, GPU_LEVEL)
    return kept(cache, key, lambda: kernel_ptx(text, gpu.architecture).encode()).decode()


def cached_object(text: str, target: Target, level: int, cache: ObjectCache | None) -> bytes:
    """The object file of a text, from the cache if it is there."""
    key = cache_key(text, target, level)
    return kept(cache, key, lambda: llvm.compile_object(text, target, level))


def kept(cache: ObjectCache | None, key: str, make: Callable[[], bytes]) -> bytes:
    """What the cache has under a key, else what is made and kept there."""
    if cache is None:
        return make()
    found = cache.get(key)
    if found is None:
        found = make()
        cache.put(key, found)
    return found


def cache_key(text: str, processor: Processor, level: int) -> str:
    """Changes with everything that the code of a text depends on."""
    parts = [llvm.version(), *processor.facts, str(level), text]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
