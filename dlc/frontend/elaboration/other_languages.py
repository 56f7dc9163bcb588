"""Words of other languages and libraries, and how the same is written here: help for first texts."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

__all__ = ["attribute_help", "name_help", "parameter_help"]


def _of_nn(layer: str, *names: str) -> dict[str, str]:
    """Other names of a layer of the library."""
    return dict.fromkeys(names, f"{layer}, with import nn ({layer})")


_NAMES: Final = {
    "float": "f32(x)",
    "double": "f64(x)",
    "half": "f16(x)",
    "int": "i32(x)",
    "long": "i64(x)",
    "None": "none; a new axis is made by x[:, new]",
    "newaxis": "x[:, new]",
    "True": "true",
    "False": "false",
    "self": "the member alone: w for self.w",
    "range": "0..n behind `in`, or arange(n)",
    "matmul": "a @ b",
    "dot": "a @ b",
    "pow": "x ** y",
    "concatenate": "concat([a, b])",
    "expand_dims": "x[new, ..]",
    "unsqueeze": "x[new, ..]",
    "cat": "concat([a, b])",
    "mm": "a @ b",
    "bmm": "a @ b",
    "var": "variance(x)",
    "std": "sqrt(variance(x))",
    "Sequential": "chain(Linear(4, 8), relu)",
    "ModuleList": "L * Block(...) for L equal layers, or [Block(4), Block(8)]",
    "Parameter": "param w: f32[4, 8] as a member of the module",
    "Module": "module Net(...) { ... }",
    **dict.fromkeys(
        ("ReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Softmax"), "the function: relu, gelu"
    ),
    **dict.fromkeys(("CrossEntropyLoss", "NLLLoss"), "mean(cross_entropy(logits, labels))"),
    "MSELoss": "import nn (mse), and mse(x, y)",
    "BCEWithLogitsLoss": "import nn (bce), and bce(logits, target)",
    **_of_nn("BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"),
    **_of_nn("Dropout", "Dropout2d"),
    **_of_nn("InstanceNorm", "InstanceNorm2d"),
    **_of_nn("MaxPool", "MaxPool1d", "MaxPool2d", "MaxPool3d"),
    **_of_nn("AvgPool", "AvgPool1d", "AvgPool2d", "AvgPool3d"),
    **_of_nn("GlobalAvgPool", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d"),
    **_of_nn("unit_rows", "normalize"),
    **_of_nn("Attention", "MultiheadAttention"),
}
_ATTRIBUTES: Final = {
    "T": "transpose(x)",
    "dtype": "dtype_of(x)",
    "ndim": "rank(x)",
    "astype": "f32(x)",
    "float": "f32(x)",
    "long": "i64(x)",
    "int": "i32(x)",
    "dot": "x @ y",
    "matmul": "x @ y",
    "mm": "x @ y",
    "view": "reshape(x, [...])",
    "t": "transpose(x)",
    "unsqueeze": "x[new, ..]",
    "pow": "x ** y",
}
_PARAMETERS: Final = {"dim": "axis", "dims": "axis", "axes": "axis", "keepdim": "keepdims"}

DTYPE_NAMES = {
    **{f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    "bfloat16": "bf16",
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "int": "i32",
    "long": "i64",
    "byte": "u8",
}
"""Names of dtypes in other languages."""


def name_help(name: str) -> str | None:
    """The spelling in dlc of another language's name; None for an unknown one."""
    found = _NAMES.get(name)
    return None if found is None else f"write {found}"


def attribute_help(name: str, functions: Container[str]) -> str | None:
    """The spelling in dlc of `x.name` of a tensor; `functions` are those of the language by name."""
    found = _ATTRIBUTES.get(name)
    if found is None and name in functions:
        found = f"{name}(x)"
    return None if found is None else f"write {found}"


def parameter_help(name: str, names: Container[str]) -> str | None:
    """The parameter that others call by this name, if it is one of `names`."""
    found = _PARAMETERS.get(name)
    return found if found is not None and found in names else None
