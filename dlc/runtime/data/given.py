"""Examples passed as arrays from Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from dlc.errors import CallError, ModelError
from dlc.runtime.arrays import dlpack
from dlc.runtime.arrays.dtypes import BF16, DTYPES, DType, dtype_of
from dlc.runtime.arrays.masked import UNMASK, has_masked
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Input
from dlc.runtime.calling.arguments import as_array
from dlc.runtime.data.fields import Array, ArrayField, Field, Table
from dlc.runtime.data.fitting import Fitting, check_dtype, missing, one_number, refusal

NAME = "the arrays"
WAY_OUT = "give an array of numbers"


def given_table(arrays: Mapping[str, object], fitting: Fitting) -> Table:
    """A table of one array for each input, by name. Raises ModelError for arrays that do not fit."""
    fields: dict[str, Field] = {}
    for item in fitting.wanted:
        if item.name not in arrays:
            raise missing(NAME, item, item.name, arrays)
        array, have = stored(arrays[item.name], item, NAME)
        if array.ndim == 0:
            raise one_number(NAME, item.name, have.name)
        check_dtype(NAME, item.name, array, have, DTYPES[item.dtype])
        fields[item.name] = ArrayField(array, have, DTYPES[item.dtype])
    labels = {item.name: item.name for item in fitting.wanted}
    return Table(fields, fitting.check(NAME, fields, labels))


def stored(value: object, item: Input, name: str) -> tuple[Array, DType]:
    """The elements of a value, bf16 as bits, and their dtype; without a copy if the value is an array.

    Lists of Python numbers adapt to the dtype of the input. Raises ModelError (D0542) for other values,
    and for dtypes that dlc lacks.
    """
    if isinstance(value, Tensor):
        return value.bits, DTYPES[value.dtype]
    if not isinstance(value, np.ndarray | np.generic) and hasattr(value, "__dlpack__"):
        return dlpack.imported(cast("dlpack.Exporter", value))
    if has_masked(cast(object, value)):
        raise refusal(
            name,
            "D0542",
            f"{item.name} is a masked array, and what is masked has no number",
            f"put numbers there: {item.name}{UNMASK}",
        )
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(cast("Array", value))
        dtype = dtype_of(array)
        if dtype is None:
            raise refusal(
                name,
                "D0542",
                f"{item.name} is an array of {array.dtype}, which dlc does not have",
                f"save it as {item.dtype}",
            )
        return (array.view(np.uint16) if dtype is BF16 else array), dtype
    try:
        return as_array(value, item, name), DTYPES[item.dtype]
    except CallError as error:
        told = error.diagnostics[0]
        raise ModelError(told.message, code="D0542", help=told.help or WAY_OUT) from None
