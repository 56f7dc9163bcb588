"""Every row of the tables in docs/semantics.md with the columns operation, dtype, operands, result."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from dlc.dialects import array
from dlc.dialects.func import Return
from dlc.errors import CallError
from dlc.ir.attributes import decode
from dlc.ir.core import OPS, Block, Builder, Evaluation, Op, Value
from dlc.ir.dims import symbol
from dlc.ir.types import I64, DType, TensorType
from tests.op_examples.example import HERE, Input, given
from tests.suites import together

PAGE = Path(__file__).parent.parent / "docs" / "semantics.md"
HEAD = ["operation", "dtype", "operands", "result"]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: an operation with a word that goes with it, its operands and its result as written."""

    name: str
    word: str
    dtype: DType
    operands: str
    result: str


def read_rows() -> list[Row]:
    rows: list[Row] = []
    inside = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else []
        if not cells:
            inside = False
        elif cells == HEAD:
            inside = True
        elif inside and set(cells[0]) != {"-"}:
            name, _, word = cells[0].partition(" ")
            rows.append(Row(name, word, DType.named[cells[1]], cells[2], cells[3]))
    return rows


ROWS = read_rows()


def read_values(text: str) -> list[object]:
    """Numbers, bools and lists of them, separated by commas."""
    return json.loads(f"[{text.replace('nan', 'NaN').replace('inf', 'Infinity')}]")


def operands(row: Row) -> list[Input]:
    """What goes in; indices are i64."""
    first_index = {"gather": 1, "scatter": 2, "dynamic_slice": 1}.get(row.name, 99)
    return [
        given(I64 if k >= first_index else row.dtype, value)
        for k, value in enumerate(read_values(row.operands))
    ]


def argsort(keys: Value, descending: bool) -> Op:
    type = array.tensor_type(keys)
    numbers = Builder(block_of(keys), HERE)(array.Iota(type.shape, 0, I64))
    return array.Sort(keys, (numbers,), 0, descending)


def block_of(value: Value) -> Block:
    assert value.block is not None
    return value.block


SPECIAL: dict[str, Callable[[Sequence[Value], str], Op]] = {
    "cast": lambda values, word: array.Cast(values[0], DType.named[word]),
    "compare": lambda values, word: array.Compare(values[0], values[1], word),
    "sort": lambda values, word: array.Sort(values[0], (), 0, word == "falling"),
    "argsort": lambda values, word: argsort(values[0], word == "falling"),
    "top_k": lambda values, word: array.TopK(values[0], 0, int(word)),
    "gather": lambda values, word: array.Gather(values[0], (values[1],), (0,)),
    "scatter": lambda values, word: array.Scatter(values[0], values[1], (values[2],), (0,), word),
    "dynamic_slice": lambda values, word: array.DynamicSlice(values[0], (values[1],), (int(word),)),
    "nonzero": lambda values, word: array.NonZero(values[0], "N"),
}


def build(row: Row, values: Sequence[Value]) -> Op:
    if row.name in SPECIAL:
        return SPECIAL[row.name](values, row.word)
    make = cast("Callable[..., Op]", OPS[f"array.{row.name}"])
    if row.name.startswith("reduce_"):
        return make(*values, (0,))
    if row.name.startswith(("cumulative_", "arg")):
        return make(*values, 0)
    return make(*values)


def evaluated(row: Row) -> object:
    """The result as nested lists; a vector without elements has a named size, as in a model."""
    inputs = operands(row)
    sizes = [(symbol("E"),) if given.array.size == 0 else given.array.shape for given in inputs]
    block = Block([TensorType(one.dtype, size) for one, size in zip(inputs, sizes, strict=True)])
    op = Builder(block, HERE).place(build(row, block.arguments))
    Builder(block, HERE).place(Return(op.results))
    results = Evaluation({"E": 0}).run(block, [given.array for given in inputs])
    which = 1 if row.name == "argsort" else 0
    type = array.tensor_type(op.results[which])
    return decode(results[which], type.dtype).tolist()


@together("row", ROWS, ids=lambda row: f"{row.name} {row.word} {row.dtype.name} {row.operands}")
def test_a_row_is_what_the_operation_computes(row: Row) -> None:
    if row.result == "fails":
        with pytest.raises(CallError):
            evaluated(row)
        return
    (expected,) = read_values(row.result)
    assert same(evaluated(row), expected)


def same(found: object, wanted: object) -> bool:
    """Equal, NaN to NaN; where a zero is written with its sign, that sign."""
    if isinstance(wanted, list):
        items = cast("list[object]", wanted)
        assert isinstance(found, list)
        mine = cast("list[object]", found)
        return len(mine) == len(items) and all(map(same, mine, items))
    assert isinstance(found, int | float)
    assert isinstance(wanted, int | float)
    if isinstance(wanted, float) and not wanted:
        return not found and bool(np.signbit(found) == np.signbit(wanted))
    return found == wanted or (found != found and wanted != wanted)


def test_the_page_has_rows_for_each_kind_of_number() -> None:
    kinds = {row.dtype.kind for row in ROWS}
    assert kinds == {"float", "int", "uint", "bool"}
    assert len(ROWS) > 100
