"""`dlc doctor`: whether this machine has what dlc needs, and what dlc will use of it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from dlc.codegen.llvm import target_machine
from dlc.codegen.llvm.object_code import LLVMLITE, has_right_version
from dlc.codegen.nvptx.ptx import find_ptxas
from dlc.driver.compile.cache import chosen_cache
from dlc.driver.compile.cost_table import (
    BUILT_IN,
    CostTable,
    host_with,
    read_tuned,
    this_processor,
)
from dlc.driver.compile.host_target import newest_here
from dlc.driver.source.extensions import load_extensions
from dlc.errors import DlcError
from dlc.runtime.cpu import blas, features
from dlc.runtime.cpu.threads import default_threads
from dlc.runtime.cuda.devices import driver_of
from dlc.target.gpu import GpuTarget
from dlc.target.network import USUAL_NETWORK
from dlc.target.table import rows
from dlc.version import VERSION

CORETYPE: Final = "OPENBLAS_CORETYPE"
NEEDED: Final = ("numpy", "scipy", "llvmlite", "typer")
OPTIONAL: Final = {
    "onnx": "reads .onnx files: pip install 'dlc[onnx]'",
    "pillow": "reads and writes pictures: pip install 'dlc[pictures]'",
    "mpi4py": "ranks that train together (dlc train --ranks): pip install 'dlc[mpi]'",
    "pygls": "speaks with editors (dlc lsp): pip install 'dlc[lsp]'",
    "matplotlib": "draws training curves: pip install 'dlc[plots]'",
    "ml_dtypes": "gives bf16 arrays a NumPy dtype: pip install ml_dtypes",
    "cuda-bindings": "runs models on NVIDIA GPUs: pip install 'dlc[cuda]'",
}
"""Optional packages, and the purpose of each."""
CORES: Final = {
    "Sandybridge": "x86-64-v2",
    "Bulldozer": "x86-64-v2",
    "Piledriver": "x86-64-v2",
    "Steamroller": "x86-64-v2",
    "Excavator": "x86-64-v2",
    "Haswell": "x86-64-v3",
    "Zen": "x86-64-v3",
    "SkylakeX": "x86-64-v4",
    "Cooperlake": "x86-64-v4",
    "SapphireRapids": "x86-64-v4",
}
"""The level of the kernels that OpenBLAS calls by these names; the others are of the first levels."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about this machine. `level` is `error` where dlc cannot work as it is."""

    what: str
    text: str
    level: Literal["ok", "warning", "error"] = "ok"


def examine() -> list[Finding]:
    """Everything that matters about this machine."""
    return [
        Finding("dlc", VERSION),
        Finding("python", f"{platform.python_version()} on {platform.system()}"),
        *[_package(name) for name in NEEDED],
        *[_optional(name, purpose) for name, purpose in OPTIONAL.items()],
        Finding("llvm", target_machine.version()),
        _processor(),
        _gpu(),
        _ptxas(),
        _blas(),
        _cache(),
        Finding("threads", str(default_threads())),
        *_extensions(),
        *_targets(),
    ]


def _targets() -> Iterator[Finding]:
    """The targets of this machine: descriptions, and the costs by which passes decide."""
    table, finding = _costs()
    processor = host_with(table)
    yield Finding("target", f"cpu: {processor}")
    yield finding
    for row in rows(processor.costs):
        yield Finding("cpu cost", str(row))
    for row in rows(USUAL_NETWORK):
        yield Finding("network cost", str(row))
    newest = newest_here()
    if newest is not None:
        gpu = GpuTarget.named(newest)
        yield Finding("target", f"cuda:{gpu.name}: {gpu}")
        for row in rows(gpu.costs):
            yield Finding("gpu cost", str(row))


def _costs() -> tuple[CostTable, Finding]:
    """The table of costs that counts for this processor where none is named."""
    usual = "the built-in table"
    try:
        table = read_tuned()
    except DlcError as error:
        message = error.diagnostics[0].message
        return BUILT_IN, Finding("costs", f"{usual}: {message}; run dlc tune again", "warning")
    if table is None:
        return BUILT_IN, Finding("costs", f"{usual}; dlc tune measures one of this processor")
    if table.processor != this_processor():
        text = f"{usual}: that of {table.name} is of another processor, {table.processor}"
        return BUILT_IN, Finding("costs", text)
    return table, Finding("costs", f"{table.name}, {len(table.rows)} rows of dlc tune")


def _extensions() -> list[Finding]:
    """The packages of operations that are not dlc's own."""
    try:
        return [Finding("operations", text) for text in load_extensions()]
    except DlcError as error:
        return [Finding("operations", error.diagnostics[0].message, "error")]


def _package(name: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "not installed", "error")
    if name == "llvmlite" and not has_right_version():
        text = f"{version}, and dlc is made for {LLVMLITE}: pip install 'llvmlite=={LLVMLITE}.*'"
        return Finding(name, text, "error")
    return Finding(name, version)


def _optional(name: str, purpose: str) -> Finding:
    try:
        return Finding(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, f"not installed; it {purpose}")


def _processor() -> Finding:
    name = features.host_model() or platform.machine()
    level = _host_level()
    if level is None:
        return Finding("processor", f"{name}: no x86-64 Linux, dlc has no code for it", "error")
    return Finding("processor", f"{name}, {level}")


def _gpu() -> Finding:
    """The GPU that `--target cuda` means here."""
    try:
        found = driver_of("cuda")
    except DlcError as error:
        return Finding("gpu", f"none: {error.diagnostics[0].message}")
    major, minor = found.capability
    return Finding("gpu", f"{found.name}, sm_{major}{minor}")


def _ptxas() -> Finding:
    """What assembles the code for GPUs before a driver has to."""
    try:
        return Finding("ptxas", find_ptxas())
    except DlcError:
        text = "none: the GPU's driver assembles code when a model is loaded, which takes longer"
        return Finding("ptxas", f"{text}: pip install nvidia-cuda-nvcc")


def _host_level() -> str | None:
    """The highest level of x86-64 that this processor has."""
    have = features.host_features()
    levels = [level for level, needs in features.LEVELS.items() if have.issuperset(needs)]
    return levels[-1] if have else None


def _blas() -> Finding:
    try:
        found = blas.library()
    except DlcError as error:
        return Finding("blas", error.diagnostics[0].message, "warning")
    return _judged(found, os.environ.get(CORETYPE), _host_level())


def _judged(found: blas.Library, forced: str | None, level: str | None) -> Finding:
    """Whether the kernels of OpenBLAS are those for this processor."""
    text = f"{found.config or 'of unknown make'}, core {found.core or 'unknown'}"
    if forced:
        text += (
            f"; {CORETYPE}={forced} overrules the choice for this processor: products may be several "
            f"times slower (unset {CORETYPE})"
        )
        return Finding("blas", text, "warning")
    known = list(features.LEVELS)
    of_core = CORES.get(found.core, known[0])
    if found.core and level is not None and known.index(of_core) < known.index(level):
        text += f"; its kernels are for {of_core}, the processor is {level}: --matmul generated is faster"
        return Finding("blas", text, "warning")
    return Finding("blas", text)


def _cache() -> Finding:
    cache = chosen_cache()
    if cache is None:
        return Finding("cache", "switched off (DLC_CACHE is empty, or there is no home)")
    try:
        cache.check()
    except (OSError, DlcError) as error:
        return Finding("cache", f"nothing is kept in {cache.folder}: {error}", "warning")
    return Finding("cache", str(cache.folder))
