"""Files of StableHLO: text, portable bytecode, and what `jax.export` serializes."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false
# pyright: reportArgumentType=false

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.driver.source.importing import import_model

jax = pytest.importorskip("jax", reason="JAX is not installed: make test-jax")

import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402

from tests.importers.stablehlo.agreement import compare, numbers  # noqa: E402

TABLE = numbers(4, 64)


def function(x):
    return jax.nn.relu(x @ jnp.asarray(TABLE))


@pytest.fixture(scope="module")
def exported():
    (b,) = export.symbolic_shape("b")
    return export.export(jax.jit(function))(jax.ShapeDtypeStruct((b, 4), np.float32))


@pytest.mark.parametrize("kind", ["text", "bytecode", "serialized"])
def test_every_kind_of_file_is_compiled(tmp_path: Path, exported, kind: str) -> None:
    path = tmp_path / "model.mlir"
    match kind:
        case "text":
            path.write_text(exported.mlir_module())
        case "bytecode":
            path.write_bytes(exported.mlir_module_serialized)
        case _:
            path.write_bytes(exported.serialize())
    model = dlc.compile(path)
    assert "run(x: f32[b, 4]) -> (result: f32[b, 64])" in str(model.entry_points["run"])
    compare(model.run(numbers(3, 4)), [function(numbers(3, 4))])


def test_the_text_of_a_lowered_function_is_compiled(tmp_path: Path) -> None:
    path = tmp_path / "lowered.mlir"
    path.write_text(jax.jit(lambda x: jax.lax.erf(x) + 1).lower(numbers(3)).as_text())
    compare(dlc.compile(path).run(numbers(3)), [jax.lax.erf(numbers(3)) + 1])


def test_functions_of_chlo_that_dlc_lacks_are_taken_apart(tmp_path: Path) -> None:
    path = tmp_path / "lowered.mlir"
    path.write_text(jax.jit(lambda x: jax.lax.lgamma(x * x)).lower(numbers(3)).as_text())
    compare(dlc.compile(path).run(numbers(3)), [jax.lax.lgamma(numbers(3) ** 2)])


def test_a_file_is_imported_as_model_text(tmp_path: Path, exported) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(exported.mlir_module())
    made = import_model(path, tmp_path / "model.dlm")
    assert made.parameters == TABLE.size
    model = dlc.compile(made.text)
    compare(model.run(numbers(2, 4)), [function(numbers(2, 4))])


@pytest.mark.parametrize("data", [b"module {", b"\x00\x01nothing", b"ML\xefRnothing"])
def test_a_file_that_is_none_is_an_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.mlir"
    path.write_bytes(data)
    with pytest.raises(dlc.UsageError, match=r"not read as a module of StableHLO"):
        dlc.compile(path)


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_bytes(b"")
    with pytest.raises(dlc.UsageError, match=r"D0903.*model.mlir is empty"):
        dlc.compile(path)


def test_a_file_of_another_kind_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(dlc.UsageError, match="neither text, nor bytecode of MLIR"):
        dlc.compile(path)


def test_a_damaged_file_ends_the_process_that_reads_it_and_no_other(
    tmp_path: Path, exported
) -> None:
    path = tmp_path / "model.mlir"
    data = exported.mlir_module_serialized
    assert b"jit(function)" in data
    path.write_bytes(data.replace(b"jit(function)", b"jit(fun\xfftion)"))
    with pytest.raises(dlc.UsageError, match=r"D0903.*the reader of MLIR was ended by signal"):
        dlc.compile(path)


def test_a_file_that_keeps_its_reader_busy_is_given_up(
    tmp_path: Path, exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(exported.mlir_module())
    monkeypatch.setattr("dlc.importers.stablehlo.apart.SECONDS", 0)
    with pytest.raises(dlc.UsageError, match="was not done after 0 seconds"):
        dlc.compile(path)


def test_a_module_without_main_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text("module { func.func private @f() { return } }")
    with pytest.raises(dlc.Unsupported, match="no function main"):
        dlc.compile(path)


def test_options_of_onnx_files_are_refused(tmp_path: Path, exported) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(exported.mlir_module())
    with pytest.raises(dlc.UsageError, match="D0919"):
        import_model(path, tmp_path / "model.dlm", shapes={"x": "2,4"})
