"""Calls of compiled examples: sizes and arguments that go in, results as the evaluator holds them."""

from __future__ import annotations

import numpy as np

from dlc.dialects.measured import measuring
from dlc.ir.types import BF16
from dlc.runtime.arrays.tensor import Tensor
from tests.op_examples.example import Example, Input, Numbers


def given_dims(example: Example) -> dict[str, int]:
    """The dims that neither an input tells nor the call measures."""
    sizes = [size for given in example.inputs for size in given.type.shape]
    told = {str(size) for size in sizes} | set(measuring(example.module()))
    return {name: value for name, value in example.dims.items() if name not in told}


def as_argument(given: Input) -> Numbers | Tensor:
    """An input as a call takes it."""
    return Tensor.from_bits(given.array, "bf16") if given.dtype is BF16 else given.array


def stored(result: object) -> Numbers:
    """A result as the evaluator holds it: bf16 as its bits, also where ml_dtypes names the dtype."""
    if isinstance(result, Tensor):
        return result.bits
    array = np.asarray(result)
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array
