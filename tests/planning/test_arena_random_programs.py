"""Random programs compute in their arena, bit for bit, what their graph says; their plans are right.

Elements are small whole numbers, which f32 holds exactly whatever the order of sums, so nothing is rounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random

import numpy as np
import pytest

from dlc.dialects import array, flow, mem
from dlc.dialects.array.elementwise import tensor_type
from dlc.driver.compile.build_artifact import interface_of
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.memory.asked import entry_plans
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.attributes import Dense
from dlc.ir.clone import clone_block
from dlc.ir.core import Array, Block, Builder, Evaluation, Op, Value
from dlc.ir.dims import symbol
from dlc.ir.passes import Context, Manager
from dlc.ir.types import F32, I64, TensorType
from dlc.planning.return_counts import return_counts
from dlc.runtime.model import Model
from tests.lowering.everywhere import HERE, Program, artifact_of, called, function_of, random_inputs

MOST = 7
"""The largest element of what sums may be made of."""
LONGEST = 96
"""The longest axis that concatenations make."""


def random_program(random: Random) -> Program:
    """Arithmetic, products, sums, parts, reshapes, concatenations along any axis, loops and branches."""

    def program(emit: Builder, *inputs: Value) -> Sequence[Value]:
        known = list(inputs)
        for _ in range(random.randint(6, 20)):
            known += random.choice(_STEPS)(emit, random, known)
        made = known[len(inputs) :]
        shown = [value for value in made if not value.uses or random.random() < 0.1]
        return shown[:8] or [emit(array.Negate(inputs[0]))]

    return program


def limited(emit: Builder, value: Value) -> Value:
    """The elements from -7 to 7, and those outside as the nearest of these."""
    type = tensor_type(value)
    below = emit(array.Minimum(value, array.fill(emit, MOST, type)))
    return emit(array.Maximum(below, array.fill(emit, -MOST, type)))


# Steps: each gives what it makes of what is known, or nothing where it cannot.


def element_wise(emit: Builder, random: Random, known: Sequence[Value]) -> Sequence[Value]:
    value = random.choice(known)
    if random.random() < 0.5:
        return [emit(array.Negate(value))]
    other = random.choice([each for each in known if each.type is value.type])
    return [limited(emit, emit(array.Add(value, other)))]


def transposed(emit: Builder, random: Random, known: Sequence[Value]) -> Sequence[Value]:
    value = random.choice(known)
    axes = list(range(tensor_type(value).rank))
    random.shuffle(axes)
    return [emit(array.Transpose(value, tuple(axes)))]


def reshaped(emit: Builder, random: Random, known: Sequence[Value]) -> Sequence[Value]:
    value = random.choice(known)
    size = tensor_type(value).size
    if not isinstance(size, int):
        return []
    rows = random.choice([rows for rows in range(1, size + 1) if size % rows == 0])
    return [emit(array.Reshape(value, (rows, size // rows)))]


def concatenated(emit: Builder, random: Random, known: Sequence[Value]) -> Sequence[Value]:
    value = random.choice(known)
    shape = tensor_type(value).shape
    axis = random.randrange(len(shape))

    def beside(other: Value) -> bool:
        others = tensor_type(other).shape
        return len(others) == len(shape) and all(
            one == two for k, (one, two) in enumerate(zip(others, shape, strict=True)) if k != axis
        )

    pieces = random.choices([each for each in known if beside(each)], k=random.randint(2, 3))
    length = sum((tensor_type(piece).shape[axis] for piece in pieces), 0)
    if isinstance(length, int) and length > LONGEST:
        return []
    return [emit(array.Concatenate(tuple(pieces), axis))]


def sliced(emit: Builder, random: Random, known: Sequence[Value]) -> Sequence[Value]:
    value = random.choice(known)
    parts = [
        (0, size, 1)
        if not isinstance(size, int) or random.random() < 0.4
        else (
            start := random.randrange(size),
            random.randint(start + 1, size),
            random.randint(1, 2),
        )
        for size in tensor_type(value).shape
    ]
    starts, limits, steps = zip(*parts, strict=True)
    return [emit(array.Slice(value, starts, limits, steps))]


def multiplied(emit: Builder, random: Random, known: Sequence[Value]) -> Sequence[Value]:
    value = random.choice(known)
    shape = tensor_type(value).shape
    if len(shape) != 2 or not isinstance(shape[1], int):
        return []
    columns = random.choice((16, 20, 24))
    numbers = np.random.default_rng(columns).integers(-2, 3, (shape[1], columns))
    weights = emit(array.Constant(Dense.of(numbers.astype(np.float32), F32)))
    return [limited(emit, emit(array.MatMul(value, weights)))]


def summed(emit: Builder, random: Random, known: Sequence[Value]) -> Sequence[Value]:
    value = random.choice(known)
    rank = tensor_type(value).rank
    return (
        [limited(emit, emit(array.ReduceSum(value, (random.randrange(rank),))))] if rank > 1 else []
    )


def running(emit: Builder, random: Random, known: Sequence[Value]) -> Sequence[Value]:
    """Running sums, which are not fused: what limits them may be written over them."""
    value = random.choice(known)
    axis = random.randrange(tensor_type(value).rank)
    return [limited(emit, emit(array.CumulativeSum(value, axis)))]


def walked(emit: Builder, random: Random, known: Sequence[Value]) -> Sequence[Value]:
    """A loop over an axis that carries one or two rows and stacks what it makes."""
    value = random.choice(known)
    shape = tensor_type(value).shape
    if len(shape) != 2:
        return []
    axis = random.randrange(2)
    row = TensorType(F32, (shape[1 - axis],))
    carried = random.randint(1, 2)
    body = Block([TensorType(I64), *[row] * (carried + 1)])
    inner, rows = Builder(body, HERE), list(body.arguments[1:])
    for _ in range(random.randint(1, 4)):
        rows += element_wise(inner, random, rows)
    following, stacked = (
        random.choices(rows, k=carried),
        random.choices(rows, k=random.randint(1, 2)),
    )
    inner.place(flow.Yield((*following, *stacked)))
    starts = tuple([array.fill(emit, number, row) for number in range(carried)])
    axes = tuple([random.randrange(2) for _ in stacked])
    backward = random.random() < 0.3
    return emit.all(flow.Scan(starts, (value,), (), body, shape[axis], (axis,), axes, backward))


def chosen(emit: Builder, random: Random, known: Sequence[Value]) -> Sequence[Value]:
    """A choice, by the sum of an array, between what two regions make of it."""
    value = random.choice(known)
    total = emit(array.ReduceSum(value, tuple(range(tensor_type(value).rank))))
    zero = array.fill(emit, 0, TensorType(F32, ()))
    regions: list[Block] = []
    for _ in range(2):
        regions.append(Block([tensor_type(value)]))
        inner, values = Builder(regions[-1], HERE), list(regions[-1].arguments)
        for _ in range(random.randint(0, 3)):
            values += element_wise(inner, random, values)
        inner.place(flow.Yield((random.choice(values),)))
    return emit.all(flow.If(emit(array.Compare(total, zero, "lt")), (value,), *regions))


_STEPS: Sequence[Callable[[Builder, Random, Sequence[Value]], Sequence[Value]]] = (
    *(element_wise, transposed, reshaped, sliced, summed, running, walked, chosen),
    *(concatenated, concatenated, multiplied, multiplied),
)

# Running them.


def whole_numbers(
    types: Sequence[TensorType], dims: Mapping[str, int], seed: int
) -> Sequence[Array]:
    inputs = [2 * each.astype(np.float64) for each in random_inputs(types, dims, seed)]
    return [np.rint(each).clip(-MOST, MOST).astype(np.float32) for each in inputs]


def assert_same(found: Sequence[Array], wanted: Sequence[Array], when: str) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=when)


def check_bit_for_bit(seed: int) -> Context:
    """Compare a plan evaluated, and machine code in memory that is lent, with the graph at several sizes.

    The plan of each size is checked, and lies at its bound at the largest.
    """
    random = Random(seed)
    least, rows = random.choice((0, 1)), random.choice((5, 18, symbol("T")))
    dims = {} if isinstance(rows, int) else {"T": (least, 40)}
    types = [TensorType(F32, (rows, 16)), TensorType(F32, (rows, 24)), TensorType(F32, (3, 4, 16))]
    module, function = function_of(random_program(random), types, dims)
    return_counts(function)
    graph, entry = clone_block(function.body), interface_of(function)
    visible = len(function.results_returned) - function.hidden_results
    at: Sequence[Mapping[str, int]] = [{"T": size} for size in (least, 1, 7, 40)] if dims else [{}]
    inputs = [whole_numbers(types, sizes, seed) for sizes in at]
    wanted = [Evaluation(sizes).run(graph, given) for sizes, given in zip(at, inputs, strict=True)]

    def evaluate(name: str, changed: Op) -> None:
        if name == "plan_memory":
            planned = next(op for op in changed.walk() if isinstance(op, mem.Program))
            for sizes, given, expected in zip(at, inputs, wanted, strict=True):
                assert_same(evaluate_plan(planned, given, sizes), expected, f"planned, at {sizes}")

    context = Context()
    Manager(context, after=evaluate).run(module, pipeline("graph", "loop", 2))
    artifact = artifact_of(module, entry, 2)
    (plan,) = entry_plans(artifact)
    for threads in (1, 2):
        model = Model(artifact, threads=threads)
        for sizes, given, expected in zip(at, inputs, wanted, strict=True):
            arena = model.f.new_arena(**sizes)
            assert_same(called(model, given, arena), expected[:visible], f"called, at {sizes}")
    found = [plan.at(sizes) for sizes in at]
    assert all(each.any_order_bound <= each.order_bound <= each.arena for each in found)
    assert found[-1].arena == found[-1].order_bound
    return context


def done(contexts: Sequence[Context]) -> Counter[str]:
    return Counter(each.what for context in contexts for each in context.log if each.kind == "did")


def test_random_programs_compute_bit_for_bit_what_their_graphs_say() -> None:
    did = done([check_bit_for_bit(seed) for seed in range(8)])
    assert did["run in another order"] and did["write in place"]


@pytest.mark.long
def test_three_hundred_random_programs_compute_bit_for_bit_what_their_graphs_say() -> None:
    did = done([check_bit_for_bit(seed) for seed in range(8, 308)])
    assert (
        did["run in another order"] and did["write the pieces in place"] and did["write in place"]
    )
