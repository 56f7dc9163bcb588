"""The kernels of a module as the code of an artifact: an image for a processor, PTX for a GPU, or both."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, cast

from dlc.codegen.engine.assemble import engine_image
from dlc.codegen.kernels import (
    KernelsInBackground,
    Processor,
    assemble_ptx,
    compile_kernels,
    compile_ptx,
    kernel_texts,
)
from dlc.codegen.link.image import Image as LinkedImage
from dlc.codegen.llvm.begun import ObjectCache
from dlc.codegen.llvm.target_machine import cpu_name
from dlc.dialects import loop, simt
from dlc.dialects.builtin import Module
from dlc.ir.types import DType, VectorType
from dlc.lowering.gpu.collective import COLLECTIVE
from dlc.lowering.kernel_to_hetero import TRANSFER
from dlc.runtime.abi import COPY, ON_GPU
from dlc.runtime.artifact import manifest
from dlc.runtime.artifact.container import Data
from dlc.runtime.artifact.kernel_records import GpuRoof, Roof, gpu_roof_bytes, gpu_roof_section
from dlc.runtime.cpu import blas
from dlc.target.cpu import CpuTarget
from dlc.target.gpu import GpuTarget
from dlc.target.roof import levels, operation_femtoseconds

PTX, CUBIN = "code/cuda/ptx", "code/cuda/cubin"
"""The sections of code for a GPU."""

KernelKind: TypeAlias = type[loop.Func | simt.Func]
"""Kernels of processors, or of GPUs."""


class Code(NamedTuple):
    """Compiled kernels: the number by which programs call each, and the sections of the artifact."""

    name: str
    """Of the target."""
    numbers: Mapping[str, int]
    sections: Mapping[str, Data]
    cpu: manifest.CpuCode | None = None
    gpu: manifest.GpuCode | None = None
    roof: Roof = Roof()
    """Of the processor."""


@dataclass(frozen=True, slots=True)
class CodeMaker:
    """Settings of code generation: the target, the optimization level, and what is cached."""

    processor: Processor
    level: int
    cache: ObjectCache | None = None
    gpu: GpuTarget | None = None
    """The GPU for what is placed on one."""
    own: Mapping[str, str] = field(default_factory=dict[str, str])
    """LLVM texts in place of those of the kernels of these names."""
    begun: KernelsInBackground | None = None
    """The kernels for the processor, all of them, where they were begun as they were lowered."""
    own_objects: ObjectCache | None = None
    """Where the compiler's own code, such as the engine, is kept."""

    def make(self, module: Module) -> Code:
        """The code of a module at loop level."""
        if isinstance(self.processor, GpuTarget):
            return self._for_gpu(module, self.processor)
        on_gpu = [op for op in module.body if isinstance(op, simt.Func)]
        loops = [op for op in module.body if isinstance(op, loop.Func)]
        copies = [op.sym_name for op in loops if TRANSFER in op.attributes]
        if not on_gpu and not copies:
            return self._for_cpu(module, self.processor)
        assert self.gpu is not None
        one, other = self._for_cpu(module, self.processor), self._for_gpu(module, self.gpu)
        numbers = {
            **one.numbers,
            **{name: ON_GPU + number for name, number in other.numbers.items()},
            **dict.fromkeys(copies, COPY),
        }
        sections = {**one.sections, **other.sections}
        return Code(f"{one.name}+{other.name}", numbers, sections, one.cpu, other.gpu, one.roof)

    def _for_cpu(self, module: Module, processor: CpuTarget) -> Code:
        if self.begun is not None:
            image = self.begun.image()
        else:
            texts = {**texts_of(module, loop.Func), **self.own}
            image = compile_kernels(texts, processor, self.level, self.cache)
        if not image.code:  # all of it is on a GPU, and a section has bytes
            image = replace(image, code=b"\0")
        engine = engine_image(self.own_objects)
        native = manifest.CpuCode(
            triple=processor.triple,
            processor=cpu_name(processor),
            features=processor.features,
            code=_image("code/cpu", image),
            engine=_image("engine/cpu", engine),
            library=_library(image),
        )
        sections = {"code/cpu": image.code, "engine/cpu": engine.code}
        roof = Roof(operation_femtoseconds(processor), levels(processor))
        return Code("cpu", image.entries, sections, cpu=native, roof=roof)

    def _for_gpu(self, module: Module, gpu: GpuTarget) -> Code:
        kernels = [op for op in module.body if isinstance(op, simt.Func)]
        ptx = compile_ptx(texts_of(module, simt.Func).values(), gpu, self.cache)
        cubin = assemble_ptx(ptx, gpu, self.cache)
        rows = tuple(
            [
                manifest.GpuKernel(op.sym_name, op.threads, op.dynamic_bytes, op.narrow)
                for op in kernels
            ]
        )
        collectives = _collectives(module)
        facts = manifest.GpuCode(gpu.name, PTX, CUBIN if cubin else "", rows, collectives)
        numbers = {row.name: number for number, row in enumerate([*rows, *collectives])}
        name = f"cuda:{gpu.name}"
        sections: dict[str, Data] = {
            PTX: ptx.encode(),
            CUBIN: cubin,
            gpu_roof_section(name): gpu_roof_bytes(_gpu_roof(gpu, kernels)),
        }
        return Code(name, numbers, sections, gpu=facts)


def _collectives(module: Module) -> tuple[manifest.GpuCollective, ...]:
    """What ranks do together in the place of a kernel."""
    found: list[manifest.GpuCollective] = []
    for op in module.body:
        if isinstance(op, loop.Func) and COLLECTIVE in op.attributes:
            fields = cast("tuple[Any, ...]", op.attributes[COLLECTIVE])
            found.append(manifest.GpuCollective(op.sym_name, *fields))
    return tuple(found)


def _gpu_roof(gpu: GpuTarget, kernels: Sequence[simt.Func]) -> GpuRoof:
    """The best rates of a GPU, and which of the kernels have those of matrix instructions."""
    peak = gpu.peak
    matrices = {
        kernel.sym_name: max(peak.matrices(dtype) for dtype in dtypes)
        for kernel in kernels
        if (dtypes := [_factors(op) for op in kernel.walk() if isinstance(op, simt.Mma)])
    }
    return GpuRoof(peak.fma, peak.memory, peak.cache_bytes, peak.cache, matrices)


def _factors(op: simt.Mma) -> DType:
    """The dtype of what a matrix instruction multiplies."""
    type = op.lhs[0].type
    if isinstance(type, VectorType):
        type = type.dtype
    assert isinstance(type, DType)
    return type


def texts_of(module: Module, kind: KernelKind) -> dict[str, str]:
    """The LLVM text of each kernel of a kind, by name; copies between devices are none."""
    texts = kernel_texts(module)
    return {
        op.sym_name: texts[op.sym_name]
        for op in module.body
        if isinstance(op, kind) and TRANSFER not in op.attributes
    }


def _library(image: LinkedImage) -> manifest.Library | None:
    """The BLAS that the code calls, if it calls one."""
    return blas_in_use() if any(name in blas.NAMES for name in image.imports) else None


def blas_in_use() -> manifest.Library:
    """The BLAS of this process, as the artifact names it."""
    found = blas.library()
    return manifest.Library("BLAS", found.config, found.core)


def _image(section: str, image: LinkedImage) -> manifest.Image:
    symbols = tuple(manifest.Symbol(name, offset) for name, offset in sorted(image.entries.items()))
    return manifest.Image(section, hashlib.sha256(image.code).hexdigest(), image.imports, symbols)
