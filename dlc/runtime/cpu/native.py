"""The code of an artifact for a processor: whether this processor can run it, and loading it."""

from __future__ import annotations

import mmap
import platform
import struct
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple

from dlc.errors import ArtifactError
from dlc.errors.warn import warn
from dlc.runtime.abi import ABI_VERSION, IMPORTS, is_collective
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import CpuCode, Image, Library, Target
from dlc.runtime.artifact.refusal import ErrorContext
from dlc.runtime.cpu import blas, features
from dlc.runtime.cpu.executable_memory import LoadedImage, load_engine, load_image
from dlc.runtime.system.buffers import Bytes, as_bytes

_ENTER = "dlc_enter"
_MACHINES = {"AMD64": "x86_64", "arm64": "aarch64"}


class Native(NamedTuple):
    """Loaded code: `enter` runs a `dlc_call`, `code` holds the kernels."""

    enter: Callable[[int], int]
    enter_address: int
    code: LoadedImage
    constants: Bytes
    uses_blas: bool


def misfit(code: CpuCode) -> str | None:
    """The reason why this machine cannot run code for a processor, or None if it can."""
    machine = _MACHINES.get(platform.machine(), platform.machine())
    if code.triple.partition("-")[0] != machine or sys.platform not in code.triple:
        return f"is for {code.triple}, this is {machine} {sys.platform}"
    if missing := features.missing_features(code.features):
        return f"needs {', '.join(missing)}, which this processor lacks"
    if (code.pointer_bits, code.byte_order) != (8 * struct.calcsize("P"), sys.byteorder):
        return f"needs {code.pointer_bits}-bit {code.byte_order}-endian words"
    if code.page_bytes % mmap.PAGESIZE:
        return f"needs pages of {code.page_bytes} bytes, here they have {mmap.PAGESIZE}"
    return None


def check_interface(target: Target, context: ErrorContext) -> None:
    """Check that a target has the call interface of this runtime. Raises ArtifactError (D0609)."""
    if target.abi != ABI_VERSION:
        message = f"call interface version {target.abi}, where this dlc has version {ABI_VERSION}"
        raise context.error("D0609", message, section="manifest", help="compile the model again")
    images = () if target.cpu is None else (target.cpu.code, target.cpu.engine)
    for image in images:
        for name in image.imports:
            if name not in IMPORTS and not is_collective(name):
                message = f"it calls {name}, which code in an artifact may not call"
                raise context.error("D0609", message, section=image.section)


def load_native(
    artifact: Artifact, cpu: CpuCode, collective: Callable[[str], int] | None = None
) -> Native:
    """Load the kernels and the engine of a target. Raises ArtifactError as `load_image` does."""
    enter = {symbol.name: symbol.offset for symbol in cpu.engine.symbols}.get(_ENTER)
    if enter is None:
        message = f"the engine has no function {_ENTER}"
        raise artifact.error_context.error("D0609", message, section=cpu.engine.section)
    code = _image(artifact, cpu.code, collective)
    with _located(artifact.error_context, cpu.engine.section):
        data = artifact.section(cpu.engine.section)
        digest = bytes.fromhex(cpu.engine.sha256)
        engine = load_engine(data, digest, cpu.engine.imports, enter)
    uses_blas = any(name in blas.NAMES for name in cpu.code.imports)
    if uses_blas and cpu.library is not None:
        _compare_library(artifact.name, cpu.library)
    return Native(
        engine.enter, engine.address, code, as_bytes(artifact.section("constants")), uses_blas
    )


def _image(
    artifact: Artifact, image: Image, collective: Callable[[str], int] | None
) -> LoadedImage:
    with _located(artifact.error_context, image.section):
        data = artifact.section(image.section)
        return load_image(data, bytes.fromhex(image.sha256), image.imports, collective)


@contextmanager
def _located(context: ErrorContext, section: str) -> Generator[None]:
    """Add the file and the section to an error of the loader."""
    try:
        yield
    except ArtifactError as error:
        (cause,) = error.diagnostics
        raise context.error(cause.code, cause.message, section=section, help=cause.help) from error


def _compare_library(name: str, recorded: Library) -> None:
    """Warn if the library of this process differs from the one at compile time."""
    library = blas.library()
    if (recorded.version, recorded.core) != (library.config, library.core):
        warn(
            f"{name} was made with {recorded.name} {recorded.version} ({recorded.core}), here it is "
            f"{library.config} ({library.core}): results may differ in the last bits"
        )
