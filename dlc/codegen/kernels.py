"""Machine code for all kernels of a module, each made on its own and kept in a cache.

The number in a kernel's name counts the kernels before it. Object files are made without the name, so
that the cache has one for all kernels that are equal, in whatever model and at whatever place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from dlc.codegen.link.image import ANONYMOUS, Image, link
from dlc.codegen.llvm import target_machine
from dlc.codegen.llvm.begun import BegunObjects, ObjectCache
from dlc.codegen.llvm.loop import function_text
from dlc.codegen.nvptx import ptx
from dlc.codegen.nvptx.ptx import GPU_LEVEL, NoAssembler, assemble, kernel_ptx, whole_ptx
from dlc.codegen.nvptx.simt import kernel_text
from dlc.dialects import loop, simt
from dlc.dialects.builtin import Module
from dlc.ir.core import Op
from dlc.target.cpu import CpuTarget
from dlc.target.gpu import GpuTarget

Processor: TypeAlias = CpuTarget | GpuTarget
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
    if isinstance(processor, GpuTarget):
        made = [kernel_ptx(text, processor.name) for text in texts]
        return whole_ptx(made, processor.name)
    return "\n".join(target_machine.assembly(text, processor, level) for text in texts)


def compile_kernels(
    texts: Mapping[str, str], target: CpuTarget, level: int, cache: ObjectCache | None = None
) -> Image:
    """The kernels compiled for a target and linked into one image."""
    return link(
        {
            name: cached_object(_anonymous(text, name), target, level, cache)
            for name, text in texts.items()
        }
    )


def _anonymous(text: str, name: str) -> str:
    """The LLVM text of a kernel without its name, which the linker gives it again."""
    return text.replace(f"@{name}(", f"@{ANONYMOUS}(")


class KernelsInBackground:
    """Kernels that further processes compile while the next ones are lowered."""

    def __init__(self, target: CpuTarget, level: int, objects: BegunObjects) -> None:
        self.texts: dict[str, str] = {}
        """The LLVM texts of the kernels so far, by name."""
        self._target = target
        self._level = level
        self._objects = objects
        self._machine = target_machine.machine_of(target, level)
        self._keys: dict[str, str] = {}

    def begin(self, op: Op) -> None:
        """Begin with a kernel, unless it is in the cache. It has its name, and does not change any more."""
        if not isinstance(op, loop.Func):
            return
        name = op.sym_name
        self.texts[name] = function_text(op, name)
        text = _anonymous(self.texts[name], name)
        self._keys[name] = cache_key(text, self._target, self._level)
        self._objects.begin(self._keys[name], lambda: text, self._machine)

    def image(self) -> Image:
        """All kernels linked into one image, when they are compiled."""
        return link({name: self._object(key) for name, key in self._keys.items()})

    def _object(self, key: str) -> bytes:
        made = self._objects.get(key)
        assert made is not None, "it was begun"
        return made


def compile_ptx(texts: Iterable[str], gpu: GpuTarget, cache: ObjectCache | None = None) -> str:
    """The kernels as one file of PTX."""
    return whole_ptx([_cached_ptx(text, gpu, cache) for text in texts], gpu.name)


def assemble_ptx(text: str, gpu: GpuTarget, cache: ObjectCache | None = None) -> bytes:
    """Machine code of it; nothing where there is no assembler that knows the GPU."""
    key = cache_key(f"ptxas {text}", gpu, GPU_LEVEL)
    try:
        return kept(cache, key, lambda: assemble(text, gpu.name)[0])
    except NoAssembler:
        return b""


def _cached_ptx(text: str, gpu: GpuTarget, cache: ObjectCache | None) -> str:
    key = cache_key(text, gpu, GPU_LEVEL)
    return kept(cache, key, lambda: kernel_ptx(text, gpu.name).encode()).decode()


def cached_object(text: str, target: CpuTarget, level: int, cache: ObjectCache | None) -> bytes:
    """The object file of a text, from the cache if it is there."""
    key = cache_key(text, target, level)
    return kept(cache, key, lambda: target_machine.compile_object(text, target, level))


def kept(cache: ObjectCache | None, key: str, make: Callable[[], bytes]) -> bytes:
    """What the cache has under a key, else what is made and kept there."""
    if cache is None:
        return make()
    found = cache.get(key)
    if found is None:
        found = make()
        cache.put(key, found)
    return found


def facts_of(processor: Processor) -> tuple[str, ...]:
    """What code depends on besides the kernels."""
    if isinstance(processor, GpuTarget):
        return ptx.facts_of(processor)
    return target_machine.facts_of(processor)


def cache_key(text: str, processor: Processor, level: int) -> str:
    """Changes with everything that the code of a text depends on."""
    parts = [target_machine.version(), *facts_of(processor), str(level), text]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
