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
    **dict.fromkeys(("mm", "bmm", "mv"), "a @ b"),
    "addmm": "a @ b + c",
    "outer": "a[:, new] * b",
    "tensordot": 'einsum("ij, jk -> ik", a, b)',
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b",
    **dict.fromkeys(("div", "true_divide"), "a / b"),
    "floor_divide": "a // b",
    **dict.fromkeys(("remainder", "mod"), "a % b"),
    "fmod": "truncated_remainder(a, b)",
    **dict.fromkeys(("neg", "negative"), "-x"),
    "reciprocal": "1 / x",
    **dict.fromkeys(("eq", "equal"), "a == b"),
    **dict.fromkeys(("ne", "not_equal"), "a != b"),
    **dict.fromkeys(("lt", "less"), "a < b"),
    **dict.fromkeys(("le", "less_equal"), "a <= b"),
    **dict.fromkeys(("gt", "greater"), "a > b"),
    **dict.fromkeys(("ge", "greater_equal"), "a >= b"),
    "logical_and": "a and b",
    "logical_or": "a or b",
    "logical_not": "not a",
    "isinf": "abs(x) == inf",
    "isnan": "is_nan(x)",
    "isfinite": "is_finite(x)",
    "nan_to_num": "where(is_nan(x), 0, x)",
    "log2": "log(x) / log(2.0)",
    "log10": "log(x) / log(10.0)",
    "masked_fill": "where(mask, value, x)",
    "masked_select": "compress(x, mask)",
    "gather": "take_along(x, index, axis=1)",
    "index_select": "take(x, index, axis=1)",
    **dict.fromkeys(("narrow", "chunk"), "x[:, 2:5]"),
    "unbind": "x[0], x[1]",
    "randn": "normal([3, 4])",
    "randn_like": "normal(shape(x))",
    "rand": "uniform([3, 4])",
    "rand_like": "uniform(shape(x))",
    "randperm": "permutation(n)",
    "multinomial": "categorical(logits)",
    **dict.fromkeys(("ones_like", "zeros_like"), "ones(shape(x)) or zeros(shape(x))"),
    "full_like": "full(shape(x), value)",
    "empty": "zeros([3, 4])",
    "linspace": "low + (high - low) / (n - 1) * f32(arange(n))",
    "prod": "product(x)",
    **dict.fromkeys(("amax", "amin"), "max(x) or min(x)"),
    "swapaxes": "permute(x, [1, 0])",
    "interpolate": "resize(x, [2 * height, 2 * width])",
    "detach": "stop_gradient(x)",
    "no_grad": "stop_gradient(x)",
    "scaled_dot_product_attention": "attention(query, keys, values)",
    "print": "debug x, a statement that prints when the model runs",
    "var": "variance(x)",
    "std": "sqrt(variance(x))",
    "Sequential": "chain(Linear(4, 8), relu)",
    "ModuleList": "L * Block(...) for L equal layers, or [Block(4), Block(8)]",
    "Parameter": "param w: f32[4, 8] as a member of the module",
    "Module": "module Net(...) { ... }",
    **dict.fromkeys(
        ("ReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Softmax"), "the function: relu, gelu"
    ),
    **dict.fromkeys(
        ("CrossEntropyLoss", "NLLLoss", "nll_loss"), "mean(cross_entropy(logits, labels))"
    ),
    **dict.fromkeys(("MSELoss", "mse_loss"), "import nn (mse), and mse(x, y)"),
    **dict.fromkeys(("L1Loss", "l1_loss"), "import nn (mae), and mae(x, y)"),
    **dict.fromkeys(
        ("BCEWithLogitsLoss", "binary_cross_entropy_with_logits"),
        "import nn (bce), and bce(logits, target)",
    ),
    **dict.fromkeys(
        ("SmoothL1Loss", "smooth_l1_loss"), "import nn (smooth_l1), and smooth_l1(x, y)"
    ),
    **dict.fromkeys(
        ("KLDivLoss", "kl_div"), "import nn (kl_divergence), and kl_divergence(logits, target)"
    ),
    "LeakyReLU": "the function: leaky_relu",
    "embedding": "rows[ids], where rows is a param",
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
    "double": "f64(x)",
    "half": "f16(x)",
    "detach": "stop_gradient(x)",
    "item": "x",
    **dict.fromkeys(
        ("contiguous", "clone", "cpu", "cuda"), "x: values have no memory of their own"
    ),
    **dict.fromkeys(("to", "type"), "f32(x)"),
    "expand": "broadcast(x, [...])",
    "masked_fill": "where(mask, value, x)",
    "gather": "take_along(x, index, axis=1)",
    "prod": "product(x)",
    "std": "sqrt(variance(x))",
    "var": "variance(x)",
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
