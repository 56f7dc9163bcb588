"""The kernel of a convolution in Winograd's form, transformed and in panels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.kernel.generic import Access, Kernel, array_type
from dlc.dialects.kernel.products import panel_count
from dlc.dialects.kernel.winograd import POINTS, WINDOW, transforms
from dlc.ir.core import Array, Evaluation, Value
from dlc.ir.define import attribute, op, operands
from dlc.ir.types import F32, TensorType


@op("kernel.winograd_kernel")
class WinogradKernel(Kernel):
    """G w Gᵀ of each channel and output of a kernel w `[3, 3, c, o]`, in panels of `columns` outputs.

    The result is `[(tile + 2)², p, c, columns]`, with zeros beyond the last output. It is computed in f64
    and rounded once, since all sums of a place share the error of its factors.
    """

    inputs: Sequence[Value] = operands(doc="the kernel")
    outs: Sequence[Value] = operands()
    tile: int = attribute(doc="m: 2 or 4")
    columns: int = attribute()

    def reads(self, number: int) -> Access:
        return Access.UNIT_STRIDE

    @property
    def places(self) -> int:
        """Places of a transformed tile."""
        return (self.tile + WINDOW - 1) ** 2

    @property
    def channels(self) -> tuple[int, int]:
        """Input and output channels."""
        *_, channels, outputs = array_type(self.inputs[0]).shape
        assert isinstance(channels, int)
        assert isinstance(outputs, int)
        return channels, outputs

    def result_types(self) -> tuple[TensorType, ...]:
        type = array_type(self.inputs[0])
        is_kernel = type.dtype is F32 and type.shape[:2] == (WINDOW, WINDOW) and type.is_static
        if not is_kernel or type.rank != 4 or self.tile not in POINTS or self.columns < 1:
            raise self.fail(f"{self.name} takes kernels of 3 x 3 in f32, found {type}")
        channels, outputs = self.channels
        panels = panel_count(outputs, self.columns)
        return (TensorType(F32, (self.places, panels, channels, self.columns)),)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        (result,) = self.result_types()
        places, panels, channels, columns = at.shape(result.shape)
        matrix, kernel = transforms(self.tile).kernel, inputs[0].astype(np.float64)
        whole = np.einsum("ih,jw,hwco->ijco", matrix, matrix, kernel).astype(np.float32)
        beyond = panels * columns - whole.shape[-1]
        padded = np.pad(whole, [(0, 0), (0, 0), (0, 0), (0, beyond)])
        split = padded.reshape(places, channels, panels, columns)
        return np.ascontiguousarray(split.transpose(0, 2, 1, 3))
