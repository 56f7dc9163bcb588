"""Calls of machine code that fail: the error names the line of the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import array
from dlc.driver.compile.build_artifact import Sources, build_artifact, interface_of
from dlc.driver.compile.cache import open_cache
from dlc.driver.compile.code_maker import CodeMaker
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.source.weight_sources import Weights
from dlc.errors import CallError
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, I32, TensorType
from dlc.runtime.model import Model
from dlc.target.cpu import CpuTarget
from tests.lowering.everywhere import Program, called, function_of

TYPES = (TensorType(F32, (4, 3)), TensorType(F32, (2, 3)), TensorType(I32, (2,)))


def scatter(emit: Builder, x: Value, rows: Value, index: Value) -> Sequence[Value]:
    return (emit(array.Scatter(x, rows, (index,), (0,), "add")),)


def gather(emit: Builder, x: Value, rows: Value, index: Value) -> Sequence[Value]:
    return emit(array.Gather(x, (index,), (0,))), emit(array.Negate(rows))


def gather_along_the_last_axis(
    emit: Builder, x: Value, rows: Value, index: Value
) -> Sequence[Value]:
    return emit(array.Gather(x, (index,), (1,))), emit(array.Negate(rows))


def model_of(program: Program, level: int) -> Model:
    module, function = function_of(program, TYPES, {})
    entry = interface_of(function)
    Manager(Context(options=Options(level=level))).run(module, pipeline("graph", "loop", level))
    sources = Sources("program.dlm", {"program.dlm": "dlc 1\n"}, "")
    code = CodeMaker(CpuTarget.named("host"), level, open_cache())
    artifact = build_artifact(module, (entry,), Weights((), memoryview(b"")), sources, code)
    return Model(artifact, threads=1)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("wrong", [-1, 4, 2**31 - 1])
@pytest.mark.parametrize("program", [scatter, gather, gather_along_the_last_axis])
def test_an_index_out_of_range_names_the_line(program: Program, wrong: int, level: int) -> None:
    model = model_of(program, level)
    x, rows = np.ones((4, 3), np.float32), np.ones((2, 3), np.float32)
    called(model, [x, rows, np.array([0, 1], np.int32)])
    with pytest.raises(CallError, match=rf"index {wrong} is out of range(.|\n)*program\.dlm:1:1"):
        called(model, [x, rows, np.array([0, wrong], np.int32)])
