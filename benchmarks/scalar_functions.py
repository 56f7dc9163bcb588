"""A scalar operation as a function of NumPy arrays: evaluated, or compiled for registers and run."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.codegen.link.image import link
from dlc.codegen.llvm.loop import function_text
from dlc.codegen.llvm.target_machine import compile_object
from dlc.dialects import loop, scalar, vec
from dlc.ir.core import Block, Builder, Evaluation, Op, Value
from dlc.ir.location import UnknownLocation
from dlc.ir.types import INDEX, POINTER, DType, VectorType
from dlc.lowering.math import EXPANSIONS
from dlc.runtime.cpu.executable_memory import LoadedImage, load_image
from dlc.target.cpu import CpuTarget

Array: TypeAlias = NDArray[np.generic]
Body: TypeAlias = Callable[[Builder, Sequence[Value]], Value]
Expansions: TypeAlias = dict[type[Op], Callable[[Builder, Op], Value]]

HERE = UnknownLocation("written for a measurement")
EIGHT_WORDS = 64


def expanded(make: Callable[..., Op], expansions: Expansions = EXPANSIONS) -> Body:
    """What an operation expands to; `make` builds the operation from its operands."""

    def body(emit: Builder, operands: Sequence[Value]) -> Value:
        op = make(*operands)
        op.location = emit.location
        result = expansions[type(op)](emit, op)
        op.erase()
        return result

    return body


def evaluated(body: Body, dtypes: Sequence[DType]) -> Callable[..., Array]:
    """The body as its operations' `evaluate` computes it."""
    block = Block(dtypes)
    emit = Builder(block, HERE)
    emit.place(loop.Yield((body(emit, block.arguments),)))

    def run(*arrays: Array) -> Array:
        (result,) = Evaluation().run(block, arrays)
        return np.broadcast_to(result, arrays[0].shape)

    return run


class Compiled:
    """The body compiled for registers of `lanes` elements, or for scalars if that is 1.

    `text` is its LLVM text. An operation that would need a function of a library fails to link.
    """

    def __init__(
        self, body: Body, dtypes: Sequence[DType], lanes: int, target: CpuTarget | None = None
    ) -> None:
        self.lanes = lanes
        function, self.result = _kernel(body, dtypes, lanes)
        self.text = function_text(function, "kernel")
        image = link({"kernel": compile_object(self.text, target or CpuTarget.named("host"))})
        assert not image.imports, f"the code calls {image.imports}"
        self._image: LoadedImage = load_image(
            image.code, hashlib.sha256(image.code).digest(), image.imports
        )
        prototype = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
        )
        self._enter = prototype(self._image.base + image.entries["kernel"])

    def __call__(self, *arrays: Array) -> Array:
        """The results for arrays of one length."""
        (size,) = arrays[0].shape
        rounded = -(-size // self.lanes) * self.lanes
        padded = [np.concatenate([a, np.ones(rounded - size, a.dtype)]) for a in arrays]
        out = np.empty(rounded, self.result.numpy)
        self.run(*padded, out)
        return out[:size]

    def run(self, *arrays: Array) -> None:
        """Write the results to the last array; every length is the same multiple of `lanes`."""
        places = np.array([a.ctypes.data for a in arrays], np.int64)
        fault = np.zeros(EIGHT_WORDS, np.int64)
        self._enter(places.ctypes.data, 0, arrays[0].size, fault.ctypes.data)


def _kernel(body: Body, dtypes: Sequence[DType], lanes: int) -> tuple[loop.Func, DType]:
    """A kernel that takes a pointer for each operand and one for the results."""
    block = Block([INDEX, INDEX, *(POINTER for _ in dtypes), POINTER])
    first, last, *sources, target = block.arguments
    emit = Builder(block, HERE)
    step = emit(scalar.Constant(lanes, INDEX))
    inner = Block([INDEX])
    inside = Builder(inner, HERE)
    (place,) = inner.arguments
    operands = [
        inside(_load(source, place, dtype, lanes))
        for source, dtype in zip(sources, dtypes, strict=True)
    ]
    result = body(inside, operands)
    inside.place((vec if lanes > 1 else loop).Store(result, target, place))
    inside.place(loop.Yield(()))
    emit.place(loop.For(first, last, step, (), inner))
    emit.place(loop.Return())
    function = loop.Func(block, "kernel")
    function.location = HERE
    return function, scalar.element(result.type)


def _load(source: Value, place: Value, dtype: DType, lanes: int) -> Op:
    if lanes == 1:
        return loop.Load(source, place, dtype)
    return vec.Load(source, place, VectorType(dtype, lanes))
