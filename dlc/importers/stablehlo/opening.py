"""Files of StableHLO, and functions of JAX by `jax.export`, as facts."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dlc.errors import DlcError, UsageError
from dlc.importers.stablehlo.apart import read_apart
from dlc.importers.stablehlo.facts import Program
from dlc.importers.stablehlo.importing import IMPORTERS, StableHloModel, import_program
from dlc.importers.stablehlo.reading import kinds_of, read_module

if TYPE_CHECKING:
    from jaxlib.mlir import ir

BYTECODE = b"ML\xefR"
"""What bytecode of MLIR begins with."""
PORTABLE = b"StableHLO_v"
"""What stands behind it in portable bytecode: VHLO, which later versions read."""


def jax_needed() -> None:
    """Raise UsageError (D0921) where JAX is not installed."""
    if find_spec("jax") is None or find_spec("jaxlib") is None:
        raise UsageError(
            "jax is not installed, which functions of JAX and .mlir files need",
            code="D0921",
            help="pip install -e '.[jax]' in a clone of dlc brings it, or pip install 'jax<0.11'",
        )


def read_mlir(path: Path) -> StableHloModel:
    """The model in a `.mlir` file, text or portable bytecode, or in what `jax.export` serialized.

    A process of its own reads it. Raises UsageError (D0903) for another file, Unsupported with every
    operation that is not imported.
    """
    jax_needed()
    return import_program(read_apart(path))


def program_of(data: bytes, file: str) -> Program:
    """A module of StableHLO in bytes as facts. Raises UsageError (D0903) for what is none."""
    try:
        return read_module(_without_unknown(_parsed(data)), file)
    except DlcError:
        raise
    except Exception as error:  # what the bindings of MLIR raise has no common class
        told = [line for line in str(error).splitlines() if "error:" in line] or [str(error)]
        raise UsageError(
            f"{file} is not read as a module of StableHLO: {_said(told[0])}",
            code="D0903",
            help="jax.export.export(jax.jit(f))(x).mlir_module() is the text of one",
        ) from error


def _said(line: str) -> str:
    """What an error says, without its severity."""
    return line.strip().removeprefix("error: ")[:300]


def _parsed(data: bytes) -> ir.Module:
    """The module of text, of bytecode, or of the bytes of `jax.export.Exported.serialize`."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    context = _context()
    if PORTABLE in data[:64] and data.startswith(BYTECODE):
        return stablehlo.deserialize_portable_artifact(context, data)
    if data.startswith(BYTECODE) or _is_text(data):
        with context:
            return ir.Module.parse(data)
    from jax import export

    try:
        exported = export.deserialize(bytearray(data))
    except Exception as error:  # what flatbuffers and JAX raise has no common class
        raise ValueError(
            "it is neither text, nor bytecode of MLIR, nor what Exported.serialize() of jax.export gives"
        ) from error
    return stablehlo.deserialize_portable_artifact(context, exported.mlir_module_serialized)


def _context() -> ir.Context:
    """A context of MLIR with the dialects that JAX writes."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    return context


def _without_unknown(module: ir.Module) -> ir.Module:
    """The module with the functions of CHLO that dlc has none of as operations of StableHLO."""
    from jaxlib.mlir import passmanager
    from jaxlib.mlir._mlir_libs import _stablehlo

    if not any(name.startswith("chlo.") and name not in IMPORTERS for name in kinds_of(module)):
        return module
    _stablehlo.register_stablehlo_passes()
    with module.context:
        legalize = "builtin.module(func.func(chlo-legalize-to-stablehlo))"
        passmanager.PassManager.parse(legalize).run(module.operation)
    return module


def _is_text(data: bytes) -> bool:
    """Whether it is text in UTF-8 without control characters."""
    try:
        return "\x00" not in data.decode()
    except UnicodeDecodeError:
        return False
