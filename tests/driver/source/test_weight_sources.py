"""Weights from initialisers and arrays, and what is computed from them when they are loaded."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from dlc.dialects import array, func, weight
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.builtin import Module
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.weight_initializers import initial
from dlc.errors import ModelError
from dlc.ir.attributes import Symbol, decode
from dlc.ir.core import Block, Builder, Evaluation, Value
from dlc.ir.passes import Context
from dlc.ir.types import BF16, F16, F32, DType, TensorType
from dlc.runtime.cpu.blas import numpy_library
from dlc.runtime.model import Model
from tests.importers.onnx.models import model_of
from tests.lowering.everywhere import HERE, assert_close
from tests.suites import every


def f32(*shape: int) -> TensorType:
    return TensorType(F32, shape)


WEIGHTS = {
    "conv.w": (f32(8, 3, 3, 3), "he_normal()"),
    "norm.scale": (f32(8), "uniform(0.5, 1.5)"),
    "norm.shift": (f32(8), "normal(1.0)"),
    "head.w": (f32(8, 10), "glorot_uniform()"),
}


def network(emit: Builder, x: Value) -> Value:
    """A convolution with channels first, a normalisation, a pooling and a product."""
    got = {name: emit(weight.Get(Symbol(name), type), name) for name, (type, _) in WEIGHTS.items()}
    ones, pads = (1, 1), ((1, 1), (1, 1))
    y = emit(array.Convolution(x, got["conv.w"], ones, pads, ones, ones, 1, "nchw"))
    shape = tensor_type(y).shape
    for step, name in ((array.Multiply, "norm.scale"), (array.Add, "norm.shift")):
        y = emit(step(y, emit(array.Broadcast(got[name], shape, (1,)))))
    y = emit(array.Maximum(array.constant_like(emit, 0, y), y))
    return emit(array.MatMul(emit(array.ReduceSum(y, (2, 3))), got["head.w"]))


def opened() -> SourceModel:
    module = Module.empty(HERE)
    top = Builder(module.body, HERE)
    for name, (type, init) in WEIGHTS.items():
        top.place(weight.Source(name, type, name, init=init))
    body = Block([f32(2, 3, 8, 8)], ["x"])
    emit = Builder(body, HERE)
    result = network(emit, body.arguments[0])
    emit.place(func.Return((result,)))
    top.place(func.Func(body, "f", func.signature(body, [result])))
    return SourceModel(module, Context(), "net.dlm", {"net.dlm": "dlc 1\n"}, Path())


@pytest.mark.parametrize(
    ("level", "matmul"), every(8, itertools.product([0, 2], ["auto", "blas", "generated"]))
)
def test_weights_are_folded_and_packed_when_they_are_loaded(level: int, matmul: str) -> None:
    arrays = {name: initial(name, type, init, 7, 0) for name, (type, init) in WEIGHTS.items()}
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    model = opened()
    function = model.module.symbol("f")
    assert isinstance(function, func.Func)
    (expected,) = Evaluation(weights=arrays).run(function.body, [x])
    settings = Settings(level=level, matmul=matmul, verify_each=True)
    made = Model(compile_model(model, settings, "init:7"))
    assert_close([np.asarray(made.f(x))], [expected], 1e-4, "machine code")
    other = {name: (array.astype(np.float32) * np.float32(0.5)) for name, array in arrays.items()}
    (again,) = Evaluation(weights=other).run(opened_body(), [x])
    assert_close([np.asarray(made.with_weights(other).f(x))], [again], 1e-4, "other weights")


def opened_body() -> Block:
    function = opened().module.symbol("f")
    assert isinstance(function, func.Func)
    return function.body


def test_two_compilations_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLC_CACHE", "")
    first, second = (compile_model(opened(), Settings(), "init:3").to_bytes() for _ in range(2))
    assert first == second


def test_an_initialiser_depends_on_seed_and_name_only() -> None:
    type = f32(4, 5)
    same = initial("a", type, "normal(1.0)", 1, 0)
    assert np.array_equal(same, initial("a", type, "normal(1.0)", 1, 0))
    assert not np.array_equal(same, initial("b", type, "normal(1.0)", 1, 0))
    assert not np.array_equal(same, initial("a", type, "normal(1.0)", 2, 0))


@pytest.mark.parametrize("dtype", [F16, BF16, F32])
def test_numbers_that_the_dtype_does_not_hold_are_no_initial_values(dtype: DType) -> None:
    type = TensorType(dtype, (8,))
    with pytest.raises(ModelError, match=f"{dtype.name} does not hold") as caught:
        initial("w", type, "normal(1e39)", 0, 0)
    assert caught.value.diagnostics[0].code == "D0552"
    assert np.isinf(decode(initial("w", type, "constant(inf)", 0, 0), dtype)).all()


def test_an_orthogonal_matrix_has_orthonormal_rows() -> None:
    rows = np.asarray(initial("q", f32(4, 6), "orthogonal()", 0, 0), np.float64)
    np.testing.assert_allclose(rows @ rows.T, np.eye(4), atol=1e-6)


def test_an_orthogonal_matrix_does_not_depend_on_how_many_threads_blas_has() -> None:
    blas = numpy_library()
    if blas.get_threads is None or blas.set_threads is None:
        pytest.skip("the BLAS of this NumPy has no switch for its threads")
    before = blas.get_threads()
    found: list[bytes] = []
    try:
        for threads in (1, 4):
            blas.set_threads(threads)
            found.append(initial("q", f32(192, 256), "orthogonal()", 0, 0).tobytes())
            assert blas.get_threads() == threads
    finally:
        blas.set_threads(before)
    assert found[0] == found[1]


def test_an_unknown_initialiser_is_named() -> None:
    with pytest.raises(ModelError, match=r"unknown initialiser gaussian\(1\)"):
        initial("w", f32(2), "gaussian(1)", 0, 0)


def test_compiling_a_file_drops_weights_as_they_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that large ones do not lie in memory twice. With a limit of memory further attempts need them."""
    x = np.ones((3, 256), np.float32)
    w = np.arange(1 << 16, dtype=np.float32).reshape(256, 256) % 7
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "v"], ["y"]),
    ]
    path = tmp_path / "net.onnx"
    model = model_of(nodes, {"x": x}, ["y"], {"w": w, "v": w[:3]})
    path.write_bytes(model.SerializeToString())
    opened: list[SourceModel] = []
    reading = CompileRequest.open

    def noted(request: CompileRequest) -> SourceModel:
        opened.append(reading(request))
        return opened[-1]

    monkeypatch.setattr(CompileRequest, "open", noted)
    monkeypatch.setenv("DLC_CACHE", "")
    made = make_artifact(CompileRequest(str(path)))
    assert not opened[0].arrays
    (entry,) = Model(made.artifact).entry_points.values()
    np.testing.assert_array_equal(np.asarray(entry(x)).reshape(3, 256), x @ w + w[:3])
    limited = replace(CompileRequest(str(path)), settings=Settings(max_memory=1 << 24))
    make_artifact(limited)
    assert opened[1].arrays
