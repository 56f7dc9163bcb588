"""Every example of an operation as machine code: the same as its evaluation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pytest

from dlc.dialects import func
from dlc.dialects.kernel.products import Product
from dlc.driver.compile.build_artifact import Sources, build_artifact, interface_of
from dlc.driver.compile.cache import open_cache
from dlc.driver.compile.code_maker import CodeMaker
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.compile.settings import Settings
from dlc.driver.source.weight_sources import Weights
from dlc.ir.attributes import decode
from dlc.ir.passes import Context, Manager
from dlc.ir.types import TensorType
from dlc.planning.return_counts import return_counts
from dlc.runtime.model import Model
from tests.op_examples.calls import as_argument, given_dims, stored
from tests.op_examples.every import OPERATORS
from tests.op_examples.example import EXAMPLES, TOLERANCE, Example, Numbers
from tests.suites import every, together

CASES = [
    pytest.param(example, id=f"{name}-{number}")
    for name in OPERATORS
    for number, example in enumerate(EXAMPLES.get(name, ()))
]


def natively(example: Example, settings: Settings) -> Sequence[Numbers]:
    """The results of an example from machine code."""
    level = settings.level
    module = example.module()
    main = module.symbol("main")
    assert isinstance(main, func.Func)
    return_counts(main)
    entry = interface_of(main)
    context = Context(options=settings.options())
    Manager(context).run(module, pipeline("graph", "loop", level))
    sources = Sources("example.dlm", {"example.dlm": "dlc 1\n"}, "")
    code = CodeMaker(settings.processor, level, open_cache())
    artifact = build_artifact(module, (entry,), Weights((), memoryview(b"")), sources, code)
    model = Model(artifact, threads=1)
    main_of = cast("Callable[..., object]", model.main)
    found = main_of(*[as_argument(given) for given in example.inputs], **given_dims(example))
    results = cast("tuple[object, ...]", found) if isinstance(found, tuple) else (found,)
    return [stored(result) for result in results]


@together(("example", "level"), every(13, itertools.product(CASES, (2, 0))), parts=4)
def test_its_machine_code_gives_what_its_evaluation_gives(example: Example, level: int) -> None:
    compare(example, Settings(level))


PRODUCTS = (
    *("array.convolution", "array.dot_general", "array.matmul"),
    *("nn.attention", "nn.attention_gradient", "nn.conv", "nn.linear", "nn.lstm"),
)
"""Operations that become products of matrices; the others do not depend on who computes those."""


@pytest.mark.parametrize(
    ("name", "matmul"), every(6, itertools.product(PRODUCTS, ["blas", "generated"]))
)
def test_its_products_are_right_whoever_computes_them(name: str, matmul: str) -> None:
    for example in EXAMPLES[name]:
        compare(example, Settings(2, matmul=matmul))


@together("name", OPERATORS)
def test_it_is_no_product_unless_it_is_tested_as_one(name: str) -> None:
    module = EXAMPLES[name][0].module()
    context = Context(options=Settings(2, matmul="generated").options())
    Manager(context).run(module, pipeline("graph", "kernel", 2))
    has_product = any(isinstance(op, Product) for op in module.walk())
    assert not has_product or name in PRODUCTS


def compare(example: Example, settings: Settings) -> None:
    """Machine code against the evaluated graph."""
    block, op = example.block()
    wanted = example.run(block)
    for value, one, other in zip(op.results, natively(example, settings), wanted, strict=True):
        assert isinstance(value.type, TensorType)
        dtype = value.type.dtype
        assert one.dtype == other.dtype
        tolerance = 0 if not dtype.is_float else 4 * TOLERANCE[dtype]
        np.testing.assert_allclose(
            decode(one, dtype).astype(np.float64),
            decode(other, dtype).astype(np.float64),
            rtol=tolerance,
            atol=tolerance,
        )
