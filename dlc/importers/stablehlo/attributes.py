"""Types and attributes of MLIR as plain values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from dlc.importers.stablehlo.facts import (
    Array,
    Attribute,
    ConvNumbers,
    Declared,
    DotNumbers,
    Elements,
    IndexNumbers,
)
from dlc.ir.attributes import encode
from dlc.ir.types import BF16, BOOL, LANGUAGE_DTYPES, DType

if TYPE_CHECKING:
    from jaxlib.mlir import ir

DTYPES: dict[str, DType] = {dtype.text: dtype for dtype in LANGUAGE_DTYPES}
"""The dtypes of dlc by MLIR's spelling of them."""


def declared(type: ir.Type) -> Declared:
    """A type of MLIR; one that is not a ranked tensor has no dtype."""
    from jaxlib.mlir import ir

    if not isinstance(type, ir.RankedTensorType):
        return Declared(None, (), str(type))
    shape = tuple(
        [
            None if type.is_dynamic_dim(axis) else type.get_dim_size(axis)
            for axis in range(type.rank)
        ]
    )
    return Declared(DTYPES.get(str(type.element_type)), shape, str(type))


def plain(attribute: ir.Attribute) -> Attribute:
    """An attribute of MLIR as a plain value; as its text where it is none that the importer needs."""
    from jaxlib.mlir import ir

    match attribute:
        case ir.BoolAttr() | ir.IntegerAttr() | ir.FloatAttr() | ir.StringAttr():
            return attribute.value
        case ir.FlatSymbolRefAttr():
            return attribute.value
        case ir.DenseElementsAttr():
            return elements(attribute)
        case ir.DenseI64ArrayAttr() | ir.DenseBoolArrayAttr():
            return tuple(attribute)
        case ir.ArrayAttr():
            return tuple([plain(part) for part in attribute])
        case ir.DictAttr():
            return tuple([(each.name, plain(each.attr)) for each in attribute])
        case ir.TypeAttr():
            return declared(attribute.value)
        case _:
            return _of_stablehlo(attribute)


def _of_stablehlo(attribute: ir.Attribute) -> Attribute:
    from jaxlib.mlir.dialects import chlo, stablehlo

    for kind in (
        stablehlo.ComparisonDirectionAttr,
        chlo.ComparisonDirectionAttr,
        stablehlo.ComparisonTypeAttr,
        stablehlo.RngAlgorithmAttr,
        stablehlo.FftTypeAttr,
        stablehlo.TransposeAttr,
    ):
        if kind.isinstance(attribute):
            return kind(attribute).value
    if stablehlo.DotDimensionNumbers.isinstance(attribute):
        dot = stablehlo.DotDimensionNumbers(attribute)
        return DotNumbers(
            tuple(dot.lhs_batching_dimensions),
            tuple(dot.rhs_batching_dimensions),
            tuple(dot.lhs_contracting_dimensions),
            tuple(dot.rhs_contracting_dimensions),
        )
    if stablehlo.ConvDimensionNumbers.isinstance(attribute):
        return _convolution(attribute)
    if stablehlo.GatherDimensionNumbers.isinstance(attribute):
        gather = stablehlo.GatherDimensionNumbers(attribute)
        return IndexNumbers(
            tuple(gather.offset_dims),
            tuple(gather.collapsed_slice_dims),
            tuple(gather.operand_batching_dims),
            tuple(gather.start_indices_batching_dims),
            tuple(gather.start_index_map),
            gather.index_vector_dim,
        )
    if stablehlo.ScatterDimensionNumbers.isinstance(attribute):
        scatter = stablehlo.ScatterDimensionNumbers(attribute)
        return IndexNumbers(
            tuple(scatter.update_window_dims),
            tuple(scatter.inserted_window_dims),
            tuple(scatter.input_batching_dims),
            tuple(scatter.scatter_indices_batching_dims),
            tuple(scatter.scattered_dims_to_operand_dims),
            scatter.index_vector_dim,
        )
    return str(attribute)


def _convolution(attribute: ir.Attribute) -> ConvNumbers:
    from jaxlib.mlir.dialects import stablehlo

    numbers = stablehlo.ConvDimensionNumbers(attribute)
    return ConvNumbers(
        (
            numbers.input_batch_dimension,
            numbers.input_feature_dimension,
            *numbers.input_spatial_dimensions,
        ),
        (
            numbers.kernel_output_feature_dimension,
            numbers.kernel_input_feature_dimension,
            *numbers.kernel_spatial_dimensions,
        ),
        (
            numbers.output_batch_dimension,
            numbers.output_feature_dimension,
            *numbers.output_spatial_dimensions,
        ),
    )


def elements(attribute: ir.DenseElementsAttr) -> Attribute:
    """The elements of a constant; as its text where dlc has no such dtype."""
    type = declared(attribute.type)
    dtype = type.dtype
    if dtype is None:
        return str(type.text)
    shape = tuple([size or 0 for size in type.shape])
    if dtype is BF16:
        return Elements(
            _brain_floats(attribute).reshape(() if attribute.is_splat else shape), shape
        )
    raw = np.array(attribute)
    raw = raw.astype(np.bool_) if dtype is BOOL else raw.view(dtype.numpy)
    if attribute.is_splat and raw.size:
        return Elements(raw.ravel()[0].reshape(()), shape)
    return Elements(np.ascontiguousarray(raw).reshape(shape), shape)


_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|-?\d+\.?\d*(?:[eE][-+]?\d+)?")


def _brain_floats(attribute: ir.DenseElementsAttr) -> Array:
    """The bits of a constant of bf16, which MLIR's bindings give as text only."""
    text = str(attribute).removeprefix("dense<").rpartition(">")[0].rpartition(">")[0]
    if text.startswith('"0x'):
        return np.frombuffer(bytes.fromhex(text.strip('"')[2:]), np.uint16)
    bits = [
        int(number, 16)
        if number.startswith("0x")
        else int(encode(np.array(number, np.float32), BF16))
        for number in _NUMBER.findall(text)
    ]
    return np.array(bits, np.uint16)
