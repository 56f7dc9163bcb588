"""Mistakes of every level of the compiler, to be planted, found and taken away again.

Each says what `dlc diff` must name: the level, the pass and the operation.
"""

from __future__ import annotations

from dlc.dialects import array, nn, scalar
from dlc.lowering.math import exponential
from dlc.passes.graph import algebra, canonicalize
from tests.driver.diff.planting import (
    Planted,
    always_in_place,
    as_other,
    derivative,
    drop_second,
    expansion,
    folds_to_source,
    forget_transpose,
    instruction,
    lowered,
    merge_all_equal,
    misplaced_rows,
    model,
    reuse_too_early,
    rule,
    scaled_result,
    swapped,
    with_attribute,
    with_branches_swapped,
    with_operands_swapped,
)

SQUARE = "x: f32[6, 6]"
GRADIENT = "  let y = grad(fn (t) => sum({}), wrt=t)(x)\n"


def differentiated(formula: str) -> str:
    """A model with the gradient of a formula in t."""
    return (
        "dlc 1\n"
        f"fn total(t: f32[4, 6]) -> f32 = sum({formula})\n"
        "export fn f(x: f32[4, 6]) -> f32[4, 6] = grad(total, wrt=t)(sigmoid(x) + 0.5) * 2.0\n"
    )


PLANTED: tuple[Planted, ...] = (
    Planted(
        "a transpose of a square is dropped",
        model("  let y = transpose(a) - x\n", SQUARE),
        folds_to_source(array.Transpose),
        "graph",
        "canonicalize",
        "array.transpose",
    ),
    Planted(
        "a difference is swapped",
        model("  let y = a - x * x\n"),
        rule(algebra, array.Subtract, swapped),
        "graph",
        "algebra",
        "array.subtract",
    ),
    Planted(
        "a quotient is swapped",
        model("  let y = a / (x * x + 1.0)\n"),
        rule(algebra, array.Divide, swapped),
        "graph",
        "algebra",
        "array.divide",
    ),
    Planted(
        "a maximum is a sum",
        model("  let y = maximum(a, x)\n"),
        rule(canonicalize, array.Maximum, lambda op, emit: emit(array.Add(*op.operands))),
        "graph",
        "canonicalize",
        "array.maximum",
    ),
    Planted(
        "a product of squares is swapped",
        model("  let y = a @ tanh(x)\n", SQUARE),
        rule(algebra, array.MatMul, swapped),
        "graph",
        "algebra",
        "array.matmul",
    ),
    Planted(
        "a sine is a cosine",
        model("  let y = a + sin(x)\n"),
        rule(canonicalize, array.Sin, lambda op, emit: emit(array.Cos(op.operands[0]))),
        "graph",
        "canonicalize",
        "array.sin",
    ),
    Planted(
        "tanh is left out",
        model("  let y = a + tanh(x)\n"),
        folds_to_source(array.Tanh),
        "graph",
        "canonicalize",
        "array.tanh",
    ),
    Planted(
        "a power is a square",
        model("  let y = (a + 1.0) ** 2.5\n"),
        rule(
            algebra,
            array.Power,
            lambda op, emit: emit(array.Multiply(op.operands[0], op.operands[0])),
        ),
        "graph",
        "algebra",
        "array.power",
    ),
    Planted(
        "gradient of exp",
        differentiated("exp(t)"),
        derivative(array.Exp, lambda self, emit, x, y: x),
        "graph",
        "autodiff",
        "array.exp",
    ),
    Planted(
        "gradient of tanh",
        differentiated("tanh(t)"),
        derivative(array.Tanh, lambda self, emit, x, y: y),
        "graph",
        "autodiff",
        "array.tanh",
    ),
    Planted(
        "gradient of sin",
        differentiated("sin(t)"),
        derivative(array.Sin, lambda self, emit, x, y: y),
        "graph",
        "autodiff",
        "array.sin",
    ),
    Planted(
        "gradient of a product",
        differentiated("t * exp(t)"),
        drop_second(array.Multiply),
        "graph",
        "autodiff",
        "array.multiply",
    ),
    Planted(
        "gradient of a quotient",
        differentiated("exp(t) / (t + 2.0)"),
        drop_second(array.Divide),
        "graph",
        "autodiff",
        "array.divide",
    ),
    Planted(
        "gradient of a difference",
        differentiated("(exp(t) - t * t) ** 2"),
        drop_second(array.Subtract),
        "graph",
        "autodiff",
        "array.subtract",
    ),
    Planted(
        "gradient of sigmoid",
        differentiated("sigmoid(t)"),
        derivative(array.Sigmoid, lambda self, emit, x, y: y),
        "graph",
        "autodiff",
        "array.sigmoid",
    ),
    Planted(
        "a difference is lowered swapped",
        model("  let y = a - x * x\n"),
        lowered(array.Subtract, with_operands_swapped),
        "kernel",
        "lower_to_kernels",
        "array.subtract",
    ),
    Planted(
        "a maximum is lowered as a minimum",
        model("  let y = maximum(a, x)\n"),
        lowered(array.Maximum, as_other(array.Minimum)),
        "kernel",
        "lower_to_kernels",
        "array.maximum",
    ),
    Planted(
        "a softmax is not 1 in sum",
        model("  let y = softmax(a * x)\n"),
        lowered(nn.Softmax, scaled_result),
        "kernel",
        "lower_to_kernels",
        "nn.softmax",
    ),
    Planted(
        "the epsilon of a normalization",
        model("  let y = layer_norm(a * 0.1)\n"),
        with_attribute(nn.LayerNorm, "eps", 1e-3),
        "kernel",
        "lower_to_kernels",
        "nn.layer_norm",
    ),
    Planted(
        "a transpose is lowered as a copy",
        model("  let y = transpose(a) - x\n", SQUARE),
        lowered(array.Transpose, lambda op, emit, right: (op.operands[0],)),
        "kernel",
        "lower_to_kernels",
        "array.transpose",
    ),
    Planted(
        "a select is swapped",
        model("  let y = where(x > 0.0, a, x * 2.0)\n"),
        lowered(array.Select, with_branches_swapped),
        "kernel",
        "lower_to_kernels",
        "array.select",
    ),
    Planted(
        "equal types count as equal inputs",
        model("  let y = a @ x + cumsum(x, axis=1)\n", SQUARE),
        merge_all_equal,
        "kernel",
        "fuse",
        "array.add",
    ),
    Planted(
        "a folded transpose is forgotten",
        model("  let y = a @ transpose(x)\n", SQUARE),
        forget_transpose,
        "kernel",
        "fold_transposes",
        "array.matmul",
    ),
    Planted(
        "memory is reused too early",
        model("  let b = a @ x\n  let c = b @ x\n  let d = c @ x\n  let y = b + c @ d\n", SQUARE),
        reuse_too_early,
        "plan",
        "plan_memory",
        "",
    ),
    Planted(
        "a kernel overwrites what it reads",
        model("  let y = cumsum(a @ x, axis=1) + transpose(a @ a)\n", SQUARE),
        always_in_place,
        "plan",
        "plan_memory",
        "",
    ),
    Planted(
        "a constant of exp",
        model("  let y = exp(x) + a\n"),
        expansion(scalar.Exp, lambda x: exponential.exp(x) * 1.001),
        "loop",
        "lower_to_loops",
        "kernel.generic",
    ),
    Planted(
        "tanh is sigmoid",
        model("  let y = tanh(x) + a\n"),
        expansion(scalar.Tanh, exponential.sigmoid),
        "loop",
        "lower_to_loops",
        "kernel.generic",
    ),
    Planted(
        "a tail is left out",
        model("  let y = x * 3.0 + a\n"),
        misplaced_rows,
        "loop",
        "lower_to_loops",
        "array.",
    ),
    Planted(
        "fsub is fadd",
        model("  let y = a - x * x\n"),
        instruction(scalar.Subtract, "fsub", "fadd"),
        "machine code",
        "code generation",
        "array.",
    ),
    Planted(
        "a maximum is a minimum",
        model("  let y = maximum(a, x)\n"),
        instruction(scalar.Maximum, "maximum", "minimum"),
        "machine code",
        "code generation",
        "array.maximum",
    ),
)
