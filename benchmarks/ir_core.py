"""What the IR core costs for each operation: `python -m benchmarks.ir_core [OPERATIONS]`.

The module is a stack of layers on symbolic batch sizes (products, a bias, activations, a reduction), 400
operations to a function. The cyclic garbage collector rests, as it does while compiling. Each step is
done several times and the least processor time counts.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from dlc.dialects import array, func
from dlc.dialects.builtin import Module
from dlc.ir.core import Block, Builder
from dlc.ir.dims import symbol
from dlc.ir.location import FileLocation
from dlc.ir.types import F32, TensorType
from dlc.ir.verify import verify
from dlc.text.ir.parser import parse_op
from dlc.text.ir.printer import print_module

LIMITS = {"create": 10.0, "print": 10.0, "parse": 50.0, "verify": 5.0}
"""Microseconds for each operation that must not be exceeded."""
REPEATS = 3
OPERATIONS_OF_A_LAYER = 8
OPERATIONS_OF_A_FUNCTION = 50 * OPERATIONS_OF_A_LAYER

Result = TypeVar("Result")


def build(operations: int) -> Module:
    """A module of at least `operations` operations."""
    module = Module.empty(FileLocation("stack.dlm", 1, 1))
    for number in range(-(-operations // OPERATIONS_OF_A_FUNCTION)):
        module.body.append(_function(f"stack{number}"))
    return module


def _function(name: str) -> func.Func:
    batch = symbol("B")
    x_type, w_type = TensorType(F32, (batch, 64)), TensorType(F32, (64, 64))
    body = Block((x_type, w_type, w_type), ("x", "w", "bias"))
    x, w, _ = body.arguments
    emit = Builder(body, FileLocation("stack.dlm", 3, 5, 12))
    for line in range(OPERATIONS_OF_A_FUNCTION // OPERATIONS_OF_A_LAYER):
        emit = emit.at(FileLocation("stack.dlm", line + 3, 5, 12))
        turned = emit(array.Transpose(w, (1, 0)))
        product = emit(array.MatMul(x, turned), "product")
        gate = emit(array.Sigmoid(product))
        swish = emit(array.Multiply(product, gate), "swish")
        total = emit(array.ReduceSum(swish, (1,)))
        spread = emit(array.Broadcast(total, x_type.shape, (0,)))
        moved = emit(array.Subtract(swish, spread))
        x = emit(array.Add(moved, x), "x")
    emit.place(func.Return((x,)))
    function = func.Func(body, name, func.signature(body, (x,)))
    function.location = emit.location
    function.attributes["dlc.dims"] = ("B = 1..1024",)
    return function


def measure(operations: int) -> dict[str, float]:
    """Microseconds for each operation of creating, printing, parsing and verifying a module."""
    gc.disable()
    seconds: dict[str, float] = {}
    module = _timed(seconds, "create", lambda: build(operations))
    text = _timed(seconds, "print", lambda: print_module(module))
    parsed = _timed(seconds, "parse", lambda: parse_op(text, "stack.dlir", Module))
    _timed(seconds, "verify", lambda: verify(module))
    count = sum(1 for _ in module.walk())
    located = print_module(module, locations=True)
    _timed(seconds, "print with locations", lambda: print_module(module, locations=True))
    _timed(seconds, "parse with locations", lambda: parse_op(located, "stack.dlir", Module))
    gc.enable()
    assert print_module(parsed) == text
    return {step: spent / count * 1e6 for step, spent in seconds.items()}


def _timed(seconds: dict[str, float], step: str, run: Callable[[], Result]) -> Result:
    start = time.process_time()
    result = run()
    best = time.process_time() - start
    for _ in range(REPEATS - 1):
        start = time.process_time()
        result = run()
        best = min(best, time.process_time() - start)
    seconds[step] = best
    return result


def main(arguments: Sequence[str]) -> int:
    """Print a line for each step; the exit status says whether all limits were kept."""
    operations = int(arguments[0]) if arguments else 100_000
    kept = True
    for step, spent in measure(operations).items():
        limit = LIMITS.get(step)
        kept = kept and (limit is None or spent <= limit)
        bound = "" if limit is None else f"   limit {limit:4.0f} µs"
        print(f"{step:<22}{spent:6.2f} µs/op{bound}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
