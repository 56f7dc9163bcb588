"""Random numbers. Each draw takes a key of its own; `site` names it, so that others may come before."""

from __future__ import annotations

from typing import Final

from dlc.dialects import array, rng
from dlc.dialects.array import show
from dlc.dialects.array.shape import transpose
from dlc.dialects.nn import functions
from dlc.frontend.builtins.axes import one_axis
from dlc.frontend.builtins.registry import builtin
from dlc.frontend.elaboration.keys import random_key
from dlc.frontend.elaboration.tensors import as_tensor, dtype_of, tensor_type, unify
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import F32, DType, TensorType

GROUP: Final = "random numbers"


@builtin(
    "uniform(shape: shape = none, low: any = 0, high: any = 1, dtype: dtype = f32, "
    "site: text = none)",
    GROUP,
    "Numbers between low and high, each as likely, high excluded.",
    "uniform([2, 3])",
    "f32[2, 3]",
)
def uniform(
    at: Trace, shape: Shape | None, low: Datum, high: Datum, dtype: DType, site: str | None
) -> Datum:
    unit = at(rng.Uniform(random_key(at, site), shape or (), dtype))
    if low == 0 and high == 1:
        return unit
    start, end = unify(at, (as_tensor(at, low, dtype), as_tensor(at, high, dtype)))
    width = at(array.Subtract(end, start))
    scaled = at(array.Multiply(*unify(at, (unit, width))))
    return at(array.Add(*unify(at, (scaled, start))))


@builtin(
    "normal(shape: shape = none, mean: any = 0, scale: any = 1, dtype: dtype = f32, "
    "site: text = none)",
    GROUP,
    "Numbers of the normal distribution.",
    "normal([2, 3])",
    "f32[2, 3]",
)
def normal(
    at: Trace, shape: Shape | None, mean: Datum, scale: Datum, dtype: DType, site: str | None
) -> Datum:
    drawn = at(rng.Normal(random_key(at, site), shape or (), dtype))
    if scale != 1:
        drawn = at(array.Multiply(*unify(at, (drawn, as_tensor(at, scale, dtype)))))
    if mean != 0:
        drawn = at(array.Add(*unify(at, (drawn, as_tensor(at, mean, dtype)))))
    return drawn


@builtin(
    "bernoulli(p: any, shape: shape = none, site: text = none)",
    GROUP,
    "true with probability p, at each place of a shape, or of p.",
    "bernoulli(0.5, [4])",
    "bool[4]",
)
def bernoulli(at: Trace, p: Datum, shape: Shape | None, site: str | None) -> Datum:
    chance = as_tensor(at, p, None if isinstance(p, Value) else F32)
    if shape is not None:
        whole = array.fill(at, 0, TensorType(dtype_of(chance), shape))
        chance, _ = unify(at, (chance, whole))
    return at(rng.Bernoulli(random_key(at, site), chance))


@builtin(
    "randint(low: any, high: any, shape: shape = none, dtype: dtype = i32, site: text = none)",
    GROUP,
    "Whole numbers from low to high - 1, each as likely.",
    "randint(0, 6, [3])",
    "i32[3]",
)
def randint(
    at: Trace, low: Datum, high: Datum, shape: Shape | None, dtype: DType, site: str | None
) -> Datum:
    ends = (as_tensor(at, low, dtype), as_tensor(at, high, dtype))
    return at(rng.RandInt(random_key(at, site), *ends, shape or ()))


@builtin(
    "categorical(logits: float, axis: axis = -1, site: text = none)",
    GROUP,
    "For each row of logits a class, an i32, with probability `softmax(logits)`.",
    "categorical([[0.0, -inf]])",
    "[0]",
)
def categorical(at: Trace, logits: Value, axis: int, site: str | None) -> Datum:
    return at(rng.Categorical(random_key(at, site), logits, one_axis(at, logits, axis)))


@builtin(
    "permutation(n: size, dtype: dtype = i32, site: text = none)",
    GROUP,
    "The numbers 0 to n - 1 in random order.",
    "permutation(5)",
    "i32[5]",
)
def permutation(at: Trace, n: Size, dtype: DType, site: str | None) -> Datum:
    return at(rng.Permutation(random_key(at, site), n, dtype))


@builtin(
    "dropout(x: float, rate: number = 0.5, site: text = none)",
    GROUP,
    "Where `training` is true each element is 0 with probability `rate` and the others grow by "
    "1 / (1 - rate); elsewhere x itself.",
    "dropout([1, 2], 0.5)",
    "[1.0, 2.0]",
)
def dropout(at: Trace, x: Value, rate: float, site: str | None) -> Datum:
    if not 0 <= rate <= 1:
        raise at.fail("D0320", f"a rate lies from 0 to 1, found {rate}")
    if not at.training or rate == 0:
        return x
    return functions.dropout(at, x, random_key(at, site), float(rate))


@builtin(
    "shuffle(x: tensor, axis: axis = 0, site: text = none)",
    GROUP,
    "The parts of x along an axis in random order.",
    "shuffle([[1, 2], [3, 4]])",
    "i32[2, 2]",
)
def shuffle(at: Trace, x: Value, axis: int, site: str | None) -> Datum:
    place = one_axis(at, x, axis)
    type = tensor_type(x)
    if not type.rank:
        raise at.fail("D0305", f"{show(x)} has no parts to shuffle")
    order = at(rng.Permutation(random_key(at, site), type.shape[place]))
    taken = at(array.Gather(x, (order,), (place,)))
    # The gathered axis came first: bring it back.
    back = (*range(1, place + 1), 0, *range(place + 1, type.rank))
    return transpose(at, taken, back)
