"""Evaluating what JAX traced, with NumPy: without a compilation for each operation and shape.

JAX's own derivative rules are what is wanted of it; XLA would take a hundred times as long to compile a
program as to run it. What has no line here is computed by JAX, operation by operation.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

# JAX is not installed where types are checked.
core: Any = importlib.import_module("jax.extend.core")

Array: TypeAlias = Any
Jaxpr: TypeAlias = Any
Parameters: TypeAlias = Mapping[str, Any]
Run: TypeAlias = Callable[[Parameters, list[Array]], Array]
"""Computes what one operation of JAX gives for some operands."""


SUMS = ("conv_general_dilated", "cumsum", "dot_general", "reduce_sum", "scatter-add")
"""Sums whose terms are products of elements: with magnitudes for operands they give that of the terms."""


class Rounding:
    """Random rounding of every result that is not exact, by up to `eps` of itself.

    There is none without a stream of numbers. A sum is changed by up to `eps` of the sum of its terms'
    magnitudes, which bounds the running error of a sum in any order (Higham, Accuracy and Stability of
    Numerical Algorithms, 2nd ed., 3.3 and 4.2).
    """

    eps = 0.0
    stream: Any = None

    @classmethod
    def of(cls, equation: Jaxpr, given: list[Array], results: Sequence[Array]) -> Sequence[Array]:
        """The results of an operation, rounded at random."""
        if cls.stream is None or equation.primitive.name in EXACT:
            return results
        terms = results
        if equation.primitive.name in SUMS:
            terms = _one(equation, [abs(x) if x.dtype.kind == "f" else x for x in given])
        return [cls._changed(array, size) for array, size in zip(results, terms, strict=True)]

    @classmethod
    def _changed(cls, array: Array, size: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        noise = cls.stream.uniform(-cls.eps, cls.eps, array.shape)
        return (array + noise * size).astype(array.dtype)


def evaluate(jaxpr: Jaxpr, constants: Sequence[Array], arguments: Sequence[Array]) -> list[Array]:
    """The results of a traced function."""
    known: dict[Any, Array] = {}

    def read(atom: Jaxpr) -> Array:
        return (
            np.asarray(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else known[atom]
        )

    known.update(zip(jaxpr.constvars, constants, strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))
    for equation in jaxpr.eqns:
        given = [read(atom) for atom in equation.invars]
        results = Rounding.of(equation, given, _one(equation, given))
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _one(equation: Jaxpr, given: list[Array]) -> Sequence[Array]:
    name, parameters = equation.primitive.name, equation.params
    if name in NUMPY:
        made = NUMPY[name](parameters, given)
        return [np.asarray(made, equation.outvars[0].aval.dtype)]
    several = REGIONS.get(name) or SEVERAL.get(name)
    if several is not None:
        return several(parameters, given)
    if name in CALLS:
        return _closed(parameters[CALLS[name]], given)
    made = equation.primitive.bind(*given, **parameters)
    made = made if equation.primitive.multiple_results else [made]
    return [np.asarray(each) for each in made]


CALLS = {
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr",
    "remat2": "jaxpr",
}
"""What calls a function, and the parameter that has it. What else has one, as `reduce`, is not a call."""


def _closed(jaxpr: Jaxpr, given: Sequence[Array]) -> list[Array]:
    if hasattr(jaxpr, "jaxpr"):
        return evaluate(jaxpr.jaxpr, jaxpr.consts, given)
    return evaluate(jaxpr, (), given)


def _scan(p: Parameters, given: list[Array]) -> list[Array]:
    constants, carried = p["num_consts"], p["num_carry"]
    state, walked = given[constants : constants + carried], given[constants + carried :]
    length = p["length"]
    rows: list[list[Array]] = []
    for k in reversed(range(length)) if p["reverse"] else range(length):
        made = _closed(p["jaxpr"], [*given[:constants], *state, *[x[k] for x in walked]])
        state = made[:carried]
        rows.append(made[carried:])
    if p["reverse"]:
        rows.reverse()
    return [*state, *[np.stack(each) for each in zip(*rows, strict=True)]]


def _while(p: Parameters, given: list[Array]) -> list[Array]:
    a, b = p["cond_nconsts"], p["body_nconsts"]
    for_condition, for_body, state = given[:a], given[a : a + b], given[a + b :]
    while bool(_closed(p["cond_jaxpr"], [*for_condition, *state])[0]):
        state = _closed(p["body_jaxpr"], [*for_body, *state])
    return state


def _cond(p: Parameters, given: list[Array]) -> list[Array]:
    index, *rest = given
    return _closed(p["branches"][min(max(int(index), 0), len(p["branches"]) - 1)], rest)


REGIONS: dict[str, Callable[[Parameters, list[Array]], list[Array]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}


def _split(p: Parameters, given: list[Array]) -> list[Array]:
    return np.split(given[0], np.cumsum(p["sizes"])[:-1], p["axis"])


def _unstack(p: Parameters, given: list[Array]) -> list[Array]:
    return list(np.moveaxis(given[0], p["axis"], 0))


def _total(x: Array) -> Array:
    """Integers in the total order of numbers."""
    if x.dtype.kind != "f":
        return x
    bits: Array = x.astype(np.float64).view(np.int64)
    flipped: Array = bits ^ np.iinfo(np.int64).max
    return np.choose(bits < 0, (bits, flipped))


def _top_k(p: Parameters, given: list[Array]) -> list[Array]:
    """The largest first, of equal ones the first: NaN above all numbers, -0 below 0."""
    (x,), axis = given, p["axis"]
    rising = np.argsort(np.flip(_total(x), axis), axis, kind="stable")
    order = np.take(x.shape[axis] - 1 - np.flip(rising, axis), range(p["k"]), axis)
    return [np.take_along_axis(x, order, axis), order.astype(np.int32)]


def _sort(p: Parameters, given: list[Array]) -> list[Array]:
    axis, keys = p["dimension"], given[: p["num_keys"]]
    order = np.lexsort(keys[::-1], axis)
    return [np.take_along_axis(x, order, axis) for x in given]


SEVERAL: dict[str, Callable[[Parameters, list[Array]], list[Array]]] = {
    "split": _split,
    "unstack": _unstack,
    "top_k": _top_k,
    "sort": _sort,
}
"""What has several results."""


def _slices(
    p: Parameters, whole: Array, indices: Array, sizes: Sequence[int], dropped: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice | int, ...] | None]]:
    """For each index vector its place among them, and the slice of `whole` at it; None for one outside.

    Axes that are `dropped` from slices are indexed by their only number.
    """
    numbers, clipped = p["dimension_numbers"], p["mode"].name == "CLIP"
    indexed = getattr(numbers, "start_index_map", None) or numbers.scatter_dims_to_operand_dims
    batch = getattr(numbers, "start_indices_batching_dims", None)
    batch = numbers.scatter_indices_batching_dims if batch is None else batch
    for place in np.ndindex(*indices.shape[:-1]):
        start = [0] * whole.ndim
        for axis, number in zip(indexed, indices[place], strict=True):
            start[axis] = int(number)
        for axis, other in zip(numbers.operand_batching_dims, batch, strict=True):
            start[axis] = place[other]
        last = [extent - size for extent, size in zip(whole.shape, sizes, strict=True)]
        if clipped:
            start = [min(max(k, 0), most) for k, most in zip(start, last, strict=True)]
        if all(0 <= k <= most for k, most in zip(start, last, strict=True)):
            yield (
                place,
                tuple(
                    k if axis in dropped else slice(k, k + sizes[axis])
                    for axis, k in enumerate(start)
                ),
            )
        else:
            yield place, None


def _in_front(rank: int, inner: Sequence[int]) -> list[int]:
    """The axes of a batch, then the `inner` ones of its slices."""
    return [*[axis for axis in range(rank) if axis not in inner], *inner]


def _gather(p: Parameters, x: Array, indices: Array) -> Array:
    numbers, sizes, missing = p["dimension_numbers"], p["slice_sizes"], p["fill_value"]
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [size for axis, size in enumerate(sizes) if axis not in dropped]
    found = np.full((*indices.shape[:-1], *kept), 0 if missing is None else missing, x.dtype)
    for place, part in _slices(p, x, indices, sizes, dropped):
        if part is not None:
            found[place] = x[part]
    return found.transpose(np.argsort(_in_front(found.ndim, numbers.offset_dims)))


def _scatter(combine: Callable[[Array, Array], Array]) -> Run:
    def run(p: Parameters, given: list[Array]) -> Array:
        target, indices, updates = given
        numbers, found = p["dimension_numbers"], target.copy()
        dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        rows = updates.transpose(_in_front(updates.ndim, numbers.update_window_dims))
        kept = iter(rows.shape[indices.ndim - 1 :])
        sizes = [1 if axis in dropped else next(kept) for axis in range(target.ndim)]
        for place, part in _slices(p, target, indices, sizes, dropped):
            if part is not None:
                found[part] = combine(found[part], rows[place])
        return found

    return run


def _dot(p: Parameters, x: Array, y: Array) -> Array:
    (contract_x, contract_y), (batch_x, batch_y) = p["dimension_numbers"]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    of_x = [next(letters) for _ in range(x.ndim)]
    of_y = [next(letters) for _ in range(y.ndim)]
    for one, other in (
        *zip(contract_x, contract_y, strict=True),
        *zip(batch_x, batch_y, strict=True),
    ):
        of_y[other] = of_x[one]
    free_x = [c for k, c in enumerate(of_x) if k not in (*contract_x, *batch_x)]
    free_y = [c for k, c in enumerate(of_y) if k not in (*contract_y, *batch_y)]
    result: list[str] = [*[of_x[k] for k in batch_x], *free_x, *free_y]
    return np.einsum(f"{''.join(of_x)},{''.join(of_y)}->{''.join(result)}", x, y)


def _broadcast(p: Parameters, x: Array) -> Array:
    shape = [1] * len(p["shape"])
    for axis, size in zip(p["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), p["shape"])


def _reshape(p: Parameters, x: Array) -> Array:
    if p["dimensions"] is not None:
        x = np.transpose(x, p["dimensions"])
    return np.reshape(x, p["new_sizes"])


def _slice(p: Parameters, x: Array) -> Array:
    steps = p["strides"] or [1] * x.ndim
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], steps))]


def _iota(p: Parameters) -> Array:
    shape = [1] * len(p["shape"])
    shape[p["dimension"]] = -1
    numbers = np.arange(p["shape"][p["dimension"]], dtype=p["dtype"]).reshape(shape)
    return np.broadcast_to(numbers, p["shape"])


def _pad(p: Parameters, x: Array, value: Array) -> Array:
    if any(low < 0 or high < 0 or inner for low, high, inner in p["padding_config"]):
        low = [max(-row[0], 0) for row in p["padding_config"]]
        shape = [
            size + max(row[2], 0) * max(size - 1, 0)
            for size, row in zip(x.shape, p["padding_config"], strict=True)
        ]
        wide = np.full(shape, value, x.dtype)
        wide[tuple(slice(None, None, row[2] + 1) for row in p["padding_config"])] = x
        high = [size + min(row[1], 0) for size, row in zip(shape, p["padding_config"], strict=True)]
        x = wide[tuple(map(slice, low, high))]
    around = [(max(low, 0), max(high, 0)) for low, high, _ in p["padding_config"]]
    return np.pad(x, around, constant_values=value)


def _round(p: Parameters, x: Array) -> Array:
    if p["rounding_method"].name == "TO_NEAREST_EVEN":
        return np.rint(x)
    whole = np.trunc(x)  # adding a half first would round the number below it up
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


def _quotient(p: Parameters, given: list[Array]) -> Array:
    x, y = given
    if x.dtype.kind == "f":
        return x / y
    return (x - np.fmod(x, y)) // y  # exact beyond 2**53, too


def _convolution(p: Parameters, x: Array, kernel: Array) -> Array:
    """One without groups: products with all windows."""
    assert p["feature_group_count"] == p["batch_group_count"] == 1
    numbers, whole = p["dimension_numbers"], [(0, 0, 0)] * 2
    around = [
        (low, high, step - 1)
        for (low, high), step in zip(p["padding"], p["lhs_dilation"], strict=True)
    ]
    between = [(0, 0, step - 1) for step in p["rhs_dilation"]]
    x = _pad({"padding_config": [*whole, *around]}, x.transpose(numbers.lhs_spec), 0)
    kernel = _pad({"padding_config": [*whole, *between]}, kernel.transpose(numbers.rhs_spec), 0)
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2:], axes)
    windows = windows[:, :, *[slice(None, None, step) for step in p["window_strides"]]]
    inner = tuple(range(-len(axes), 0))
    found = np.tensordot(windows, kernel, ((1, *inner), (1, *axes)))
    return np.moveaxis(found, -1, 1).transpose(np.argsort(numbers.out_spec))


def _power(x: Array, n: int) -> Array:
    """By whole powers, as XLA does: repeated products."""
    made = np.ones_like(x)
    for _ in range(abs(n)):
        made = made * x
    return 1 / made if n < 0 else made


def _axes(function: Callable[..., Array]) -> Run:
    return lambda p, given: function(given[0], axis=tuple(p["axes"]))


def _elements(function: Callable[..., Array]) -> Run:
    return lambda p, given: function(*given)


def _chosen(p: Parameters, which: Array, *cases: Array) -> Array:
    number = which.astype(np.intp)
    return np.choose(number, cases)


def _along(function: Callable[..., Array]) -> Run:
    def run(p: Parameters, given: list[Array]) -> Array:
        axis, x = p["axis"], given[0]
        if p["reverse"]:
            return np.flip(function(np.flip(x, axis), axis=axis), axis)
        return function(x, axis=axis)

    return run


NUMPY: dict[str, Run] = {
    "add": _elements(np.add),
    "add_any": _elements(np.add),
    "sub": _elements(np.subtract),
    "mul": _elements(np.multiply),
    "div": _quotient,
    "rem": _elements(np.fmod),
    "neg": _elements(np.negative),
    "sign": _elements(np.sign),
    "floor": _elements(np.floor),
    "ceil": _elements(np.ceil),
    "abs": _elements(np.abs),
    "exp": _elements(np.exp),
    "expm1": _elements(np.expm1),
    "log": _elements(np.log),
    "log1p": _elements(np.log1p),
    "sin": _elements(np.sin),
    "cos": _elements(np.cos),
    "tan": _elements(np.tan),
    "tanh": _elements(np.tanh),
    "sinh": _elements(np.sinh),
    "cosh": _elements(np.cosh),
    "asin": _elements(np.arcsin),
    "acos": _elements(np.arccos),
    "atan": _elements(np.arctan),
    "asinh": _elements(np.arcsinh),
    "acosh": _elements(np.arccosh),
    "atanh": _elements(np.arctanh),
    "atan2": _elements(np.arctan2),
    "sqrt": _elements(np.sqrt),
    "rsqrt": lambda p, given: 1 / np.sqrt(given[0]),
    "square": _elements(np.square),
    "logistic": lambda p, given: 1 / (1 + np.exp(-given[0])),
    "pow": _elements(np.power),
    "integer_pow": lambda p, given: _power(given[0], p["y"]),
    "max": _elements(np.maximum),
    "min": _elements(np.minimum),
    "eq": _elements(np.equal),
    "ne": _elements(np.not_equal),
    "lt": _elements(np.less),
    "le": _elements(np.less_equal),
    "gt": _elements(np.greater),
    "ge": _elements(np.greater_equal),
    "and": _elements(np.bitwise_and),
    "or": _elements(np.bitwise_or),
    "xor": _elements(np.bitwise_xor),
    "not": _elements(np.invert),
    "is_finite": _elements(np.isfinite),
    "select_n": lambda p, given: _chosen(p, *given),
    "clamp": lambda p, given: np.clip(given[1], given[0], given[2]),
    "convert_element_type": lambda p, given: given[0],
    "stop_gradient": lambda p, given: given[0],
    "copy": lambda p, given: given[0],
    "reduce_sum": _axes(np.sum),
    "reduce_max": _axes(np.max),
    "reduce_min": _axes(np.min),
    "reduce_prod": _axes(np.prod),
    "reduce_and": _axes(np.bitwise_and.reduce),
    "reduce_or": _axes(np.bitwise_or.reduce),
    "argmax": lambda p, given: np.argmax(given[0], p["axes"][0]),
    "argmin": lambda p, given: np.argmin(given[0], p["axes"][0]),
    "cumsum": _along(np.cumsum),
    "cumprod": _along(np.cumprod),
    "cummax": _along(np.maximum.accumulate),
    "cummin": _along(np.minimum.accumulate),
    "dot_general": lambda p, given: _dot(p, *given),
    "broadcast_in_dim": lambda p, given: _broadcast(p, *given),
    "reshape": lambda p, given: _reshape(p, given[0]),
    "squeeze": lambda p, given: np.squeeze(given[0], tuple(p["dimensions"])),
    "transpose": lambda p, given: np.transpose(given[0], p["permutation"]),
    "rev": lambda p, given: np.flip(given[0], tuple(p["dimensions"])),
    "concatenate": lambda p, given: np.concatenate(given, p["dimension"]),
    "slice": lambda p, given: _slice(p, *given),
    "pad": lambda p, given: _pad(p, *given),
    "iota": lambda p, given: _iota(p, *given),
    "stack": lambda p, given: np.stack(given, p["axis"]),
    "gather": lambda p, given: _gather(p, *given),
    "scatter": _scatter(lambda old, new: new),
    "scatter-add": _scatter(np.add),
    "scatter-mul": _scatter(np.multiply),
    "conv_general_dilated": lambda p, given: _convolution(p, *given),
    "erf": lambda p, given: np.vectorize(math.erf, [np.float64])(given[0]),
    "round": lambda p, given: _round(p, *given),
}

EXACT = frozenset(
    {
        *CALLS,
        *REGIONS,
        *SEVERAL,
        *(
            "abs",
            "broadcast_in_dim",
            "clamp",
            "concatenate",
            "copy",
            "cummax",
            "cummin",
            "dynamic_slice",
        ),
        *(
            "gather",
            "max",
            "min",
            "neg",
            "pad",
            "reduce_max",
            "reduce_min",
            "reshape",
            "rev",
            "scatter",
        ),
        *("select_n", "sign", "slice", "squeeze", "stack", "stop_gradient", "transpose"),
    }
)
"""What rounds nothing by itself. The derivative of a maximum asks which operand equals the result."""
