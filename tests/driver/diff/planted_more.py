"""More mistakes: bounds, tails, layouts, constants, operands, barriers of a GPU.

As those of `planted`, each says what `dlc diff` must name.
"""

from __future__ import annotations

from dlc.dialects import array, nn, scalar
from dlc.lowering.math import exponential
from dlc.passes.graph import algebra, canonicalize
from tests.driver.diff.planted import SQUARE, differentiated
from tests.driver.diff.planting import (
    Planted,
    as_other,
    derivative,
    drop_second,
    expansion,
    folds_to_source,
    instruction,
    lowered,
    model,
    reuse_too_early,
    rule,
    scaled_result,
    with_attribute,
    with_little_shared_memory,
    with_long_tails,
    with_operands_swapped,
    without_barriers,
)

MORE: tuple[Planted, ...] = (
    *[
        Planted(
            f"{name} is left out",
            model(f"  let y = a + {call}\n"),
            folds_to_source(cls),
            "graph",
            "canonicalize",
            cls.name,
        )
        for name, call, cls in (
            ("exp", "exp(x)", array.Exp),
            ("sqrt", "sqrt(x * x + 1.0)", array.Sqrt),
            ("abs", "abs(x)", array.Abs),
            ("floor", "floor(x * 3.0)", array.Floor),
        )
    ],
    Planted(
        "a minimum is a maximum",
        model("  let y = minimum(a, x)\n"),
        rule(canonicalize, array.Minimum, lambda op, emit: emit(array.Maximum(*op.operands))),
        "graph",
        "canonicalize",
        "array.minimum",
    ),
    Planted(
        "a reverse is dropped",
        model("  let y = a + flip(x, axis=1)\n"),
        folds_to_source(array.Reverse),
        "graph",
        "canonicalize",
        "array.reverse",
    ),
    Planted(
        "a product is a sum",
        model("  let y = a * x\n"),
        rule(algebra, array.Multiply, lambda op, emit: emit(array.Add(*op.operands))),
        "graph",
        "algebra",
        "array.multiply",
    ),
    *[
        Planted(
            f"gradient of {formula}",
            differentiated(formula),
            derivative(cls, lambda self, emit, x, y: y),
            "graph",
            "autodiff",
            cls.name,
        )
        for formula, cls in (
            ("cos(t)", array.Cos),
            ("log(t)", array.Log),
            ("sqrt(t)", array.Sqrt),
            ("rsqrt(t)", array.Rsqrt),
            ("erf(t)", array.Erf),
            ("atan(t)", array.Atan),
        )
    ],
    Planted(
        "gradient of a power",
        differentiated("(t + 1.0) ** exp(t)"),
        drop_second(array.Power),
        "graph",
        "autodiff",
        "array.power",
    ),
    Planted(
        "a quotient is lowered swapped",
        model("  let y = a / (x * x + 1.0)\n"),
        lowered(array.Divide, with_operands_swapped),
        "kernel",
        "lower_to_kernels",
        "array.divide",
    ),
    Planted(
        "a minimum is lowered as a maximum",
        model("  let y = minimum(a, x)\n"),
        lowered(array.Minimum, as_other(array.Maximum)),
        "kernel",
        "lower_to_kernels",
        "array.minimum",
    ),
    Planted(
        "a product of matrices is off by one percent",
        model("  let y = a @ x\n", SQUARE),
        lowered(array.MatMul, scaled_result),
        "kernel",
        "lower_to_kernels",
        "array.matmul",
    ),
    Planted(
        "a power is lowered swapped",
        model("  let y = (a + 1.0) ** (x * 0.5)\n"),
        lowered(array.Power, with_operands_swapped),
        "kernel",
        "lower_to_kernels",
        "array.power",
    ),
    Planted(
        "the epsilon of a root mean square",
        model("  let y = rms_norm(a * 0.1)\n"),
        with_attribute(nn.RMSNorm, "eps", 1e-2),
        "kernel",
        "lower_to_kernels",
        "nn.rms_norm",
    ),
    Planted(
        "a sum is a product",
        model("  let y = a + x * x\n"),
        lowered(array.Add, as_other(array.Multiply)),
        "kernel",
        "lower_to_kernels",
        "array.add",
    ),
    Planted(
        "a constant of exp is off by 0.1 per mille",
        model("  let y = exp(x) + a\n"),
        expansion(scalar.Exp, lambda x: exponential.exp(x) * 1.0001),
        "loop",
        "lower_to_loops",
        "kernel.generic",
    ),
    Planted(
        "sigmoid is exp",
        model("  let y = sigmoid(x * 2.0) + a\n"),
        expansion(scalar.Sigmoid, exponential.exp),
        "loop",
        "lower_to_loops",
        "kernel.generic",
    ),
    *[
        Planted(
            f"{old} is {new}",
            model(f"  let y = {formula}\n"),
            instruction(cls, old, new),
            "machine code",
            "code generation",
            "array.",
        )
        for old, new, formula, cls in (
            ("fadd", "fsub", "a + x * x", scalar.Add),
            ("fmul", "fadd", "a * x", scalar.Multiply),
            ("fdiv", "fmul", "a / (x * x + 2.0)", scalar.Divide),
            ("minimum", "maximum", "minimum(a, x)", scalar.Minimum),
        )
    ],
    *[
        Planted(
            f"a {what} of {name} is left out" if what == "barrier" else f"{name}: {what}",
            text,
            plant,
            "loop",
            "lower_to_simt",
            op,
            "cuda:sm_80",
        )
        for what, plant in (
            ("barrier", without_barriers),
            ("half of its shared memory", with_little_shared_memory),
        )
        for name, op, text in (
            (
                "a sum",
                "array.reduce_sum",
                "dlc 1\nexport fn f(x: f32[3, 2000]) -> f32[3] = sum(sigmoid(x), axis=1) * 2.0\n",
            ),
            (
                "a softmax",
                "softmax",
                "dlc 1\nexport fn f(x: f32[3, 2000]) -> f32[3, 2000] = softmax(x * 2.0) + 1.0\n",
            ),
        )
    ],
    Planted(
        "a constant of exp for a GPU",
        model("  let y = exp(x) + a\n"),
        expansion(scalar.Exp, lambda x: exponential.exp(x) * 1.0001),
        "loop",
        "lower_to_simt",
        "kernel.generic",
        "cuda:sm_80",
    ),
    Planted(
        "a tail mask of a GPU is left out",
        model("  let y = x * 3.0 + a\n"),
        with_long_tails,
        "loop",
        "lower_to_simt",
        "array.",
        "cuda:sm_80",
    ),
    Planted(
        "memory of a GPU is reused too early",
        model("  let b = a @ x\n  let c = b @ x\n  let d = c @ x\n  let y = b + c @ d\n", SQUARE),
        reuse_too_early,
        "plan",
        "plan_memory",
        "array.matmul",
        "cuda:sm_80",
    ),
)
