"""Random programs on random meshes: what simulated ranks compute is what one computes, derivatives too.

The programs are those of `texts`, in f64. A mesh has one or two axes of 2 or 3 ranks; each splits an axis
of about half of the inputs and results that it divides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

import numpy as np

from benchmarks.fuzz.cases import Kind, Outcome
from benchmarks.fuzz.closeness import judge
from benchmarks.fuzz.shaken import evaluated
from benchmarks.fuzz.texts import ENTRIES, Array, Case, functions_of, random_case
from dlc.dialects import func
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.builtin import Module
from dlc.evaluation.ranks import evaluate_ranks
from dlc.ir.clone import clone_block
from dlc.ir.core import Builder, Evaluation, Value
from dlc.ir.dims import names
from dlc.ir.passes import Context
from dlc.passes.sharding.bucket import bucket
from dlc.passes.sharding.partition import Splits, partition, set_mesh
from dlc.runtime.ranks.mesh import Mesh

DTYPE, EPS = "f64", float(np.finfo(np.float64).eps)


def start() -> Callable[[int], Outcome]:
    """What tries one program."""
    return lambda seed: check(random_case(seed))


def check(case: Case) -> Outcome:
    """Compare what ranks compute with what one computes."""
    random = Random(~case.seed)
    functions = functions_of(case.text(DTYPE))
    at = random.randrange(2) if case.program.dims else 0
    given, sizes = case.arrays(at, DTYPE), case.sizes(at)
    count, unstable = 0, ""
    for name in ENTRIES[: case.order + 1]:
        function = functions[name]
        mesh = Mesh(
            {axis: random.choice((2, 2, 3)) for axis in ("data", "model")[: random.randint(1, 2)]}
        )
        values = [*function.body.arguments, *function.results_returned]
        along = {dim: random.choice(list(mesh.axes)) for dim in sizes}
        splits = _random_splits(random, mesh, values, sizes, along)
        local = {dim: sizes[dim] // mesh.axes[axis] for dim, axis in along.items()}
        found = _on_mesh(function, mesh, splits, given, sizes, local)
        whole = evaluated(function.body, given, sizes)

        def shaken(shake: int, function: func.Func = function) -> Sequence[Array]:
            return evaluated(function.body, given, sizes, None, shake, EPS)

        outcome = judge(found, whole, shaken, EPS)
        count += 1
        if outcome.verdict == "wrong":
            what = f"{name} on {dict(mesh.axes)} with {splits} at {sizes}: {outcome.what}"
            return Outcome("wrong", f"{what}\n{case.text(DTYPE)}")
        if outcome.verdict == "unstable":
            unstable = outcome.what
    return Outcome("unstable", unstable, count) if unstable else Outcome("agreed", "", count)


def _random_splits(
    random: Random,
    mesh: Mesh,
    values: Sequence[Value],
    sizes: Mapping[str, int],
    along: Mapping[str, str],
) -> list[Splits]:
    """The splits of arguments, then of results; a named size is split along one axis of the mesh."""
    found: list[dict[str, int]] = [{} for _ in values]
    at = Evaluation(sizes)
    for axis, ranks in mesh.axes.items():
        for value, splits in zip(values, found, strict=True):
            shape = tensor_type(value).shape
            possible = [
                k
                for k, size in enumerate(shape)
                if at.size(size) % ranks == 0
                and at.size(size)
                and k not in splits.values()
                and all(along[name] == axis and sizes[name] % ranks == 0 for name in names(size))
            ]
            if possible and random.random() < 0.5:
                splits[axis] = random.choice(possible)
    return list(found)


def _on_mesh(
    function: func.Func,
    mesh: Mesh,
    splits: Sequence[Splits],
    given: Sequence[Array],
    sizes: Mapping[str, int],
    local: Mapping[str, int],
) -> list[Array]:
    """The results of a copy of the function that ranks run together."""
    module = Module.empty(function.location)
    copy = func.Func(clone_block(function.body), function.sym_name, function.function_type)
    copy.attributes |= {k: v for k, v in function.attributes.items() if k.startswith("dlc.")}
    Builder(module.body, function.location).place(copy)
    set_mesh(copy, mesh.axes, splits)
    before = copy.bounds
    context = Context()
    partition.run(module, context)
    bucket.run(module, context)
    # A named size that is split stands for the part that a rank has.
    own = {dim: local[dim] if copy.bounds[dim] != before[dim] else sizes[dim] for dim in sizes}
    return evaluate_ranks(copy.body, mesh, splits, given, own)


KIND = Kind("random programs on meshes of simulated ranks", start)
