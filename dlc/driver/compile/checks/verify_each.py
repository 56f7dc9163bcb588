"""Checking every pass: the module is still right, and every function still gives the same numbers.

Functions are evaluated in NumPy at small sizes on random inputs, before the first pass and after each
one; once they have a plan, in its memory. A pass may reorder sums and drop the sign of zero; more than
rounding is an error. What the ranks of a mesh run is evaluated on all of them. Where kernels become loops,
each is compared with some tiles of its loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

import numpy as np

from dlc.dialects import comm, func, kernel, mem, weight
from dlc.driver.compile.build_artifact import EntryPoint
from dlc.driver.compile.checks.random_calls import USUAL_SIZE, RandomArrays, usual_sizes
from dlc.driver.source.weight_sources import Array
from dlc.errors import DlcError, NumbersDiffer
from dlc.errors.options import option
from dlc.evaluation.compare_levels import Compared, compare_loops, planned_copy
from dlc.evaluation.plan import MISUSE, PlanRun
from dlc.evaluation.ranks import evaluate_ranks
from dlc.ir.attributes import decode
from dlc.ir.core import Evaluation, Op
from dlc.ir.fingerprint import fingerprint
from dlc.ir.passes import PASSES
from dlc.ir.types import DType, TensorType
from dlc.ir.verify import verify
from dlc.passes.sharding.partition import (
    Splits,
    ranks_by_dim,
    read_mesh,
    read_splits,
    weight_splits,
)
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated

TOLERANCE: Mapping[str, float] = {"f64": 1e-9, "f32": 1e-3, "f16": 3e-2, "bf16": 1e-1}
"""The tolerance of results, relative to the largest; other dtypes must agree exactly."""

KERNEL_TOLERANCE: Mapping[str, float] = {"f64": 1e-12, "f32": 2e-5, "f16": 4e-3, "bf16": 4e-2}
"""The same for a kernel of a user in place of one, whose sums may have another order."""

LOOPS = "lower_to_loops"
"""The pass that turns kernels into loops."""

PARTITION = "partition"


class _Meshed(NamedTuple):
    """A function for a mesh: its axes, its splits, whole inputs, whole weights with their splits, and what
    it gives. `dims` are the sizes that a rank has."""

    axes: Mapping[str, int]
    splits: Sequence[Splits]
    inputs: Sequence[Array]
    weights: Mapping[str, tuple[Array, Splits]]
    dims: Mapping[str, int]
    expected: Sequence[Array]


@dataclass(slots=True)
class EachPass:
    """Hang `before` and `after` on a pass manager.

    `skipped` names functions that cannot be evaluated on random inputs (an index out of range, say),
    with the reason: of those only the form is checked.
    """

    skipped: dict[str, str] = field(default_factory=dict[str, str])
    compared: dict[str, Compared] = field(default_factory=dict[str, Compared])
    """The loops of each function that were checked."""
    _expected: dict[str, Sequence[tuple[Array, ...]]] | None = None
    """What each function gives, on each rank of a mesh for one that ranks run."""
    _plans: dict[str, mem.Program] = field(default_factory=dict[str, mem.Program])
    _meshed: dict[str, _Meshed] = field(default_factory=dict[str, "_Meshed"])
    """What is to be compared when functions for a mesh have become programs of its ranks."""
    _arrays: RandomArrays = field(default_factory=RandomArrays)
    _seen: object = None
    """The fingerprint of the module when its functions were compared last."""

    def before(self, name: str, module: Op) -> None:
        """Note what every function gives, before the first pass."""
        if name == LOOPS:
            programs = [op for op in _functions(module) if _has_kernels(op)]
            self._plans = {program.sym_name: planned_copy(program) for program in programs}
        if self._expected is None:
            self._expected = {}
            for function in _functions(module):
                try:
                    self._expected[function.sym_name] = _evaluated(function, module, self._arrays)
                except DlcError as error:
                    self.skipped[function.sym_name] = str(error)
        if name == LOOPS:
            derived = [op for op in module.regions[0] if isinstance(op, weight.Derived)]
            together = any(map(_has_collectives, derived))
            for program in _functions(module):
                if together or _has_collectives(program):
                    self.skipped[program.sym_name] = "what ranks send each other is not a loop"
                    self._expected.pop(program.sym_name, None)
        if name == PARTITION:
            for op in _functions(module):
                if isinstance(op, func.Func) and read_mesh(op) and op.sym_name in self._expected:
                    try:
                        self._meshed[op.sym_name] = _meshed(op, module, self._arrays)
                    except DlcError as error:  # at sizes that the mesh divides
                        self.skipped[op.sym_name] = str(error)
                        del self._expected[op.sym_name]

    def after(self, name: str, module: Op) -> None:
        """Verify the module and compare. Raises ModelError, or NumbersDiffer naming the pass."""
        verify(module)
        assert self._expected is not None
        now = fingerprint(module)
        if now == self._seen:  # the pass has left everything as it was
            return
        self._seen = now
        for function in _functions(module) if name == PARTITION else ():
            self._compare_ranks(function)
        for function in _functions(module):
            expected = self._expected.get(function.sym_name)
            if expected is None:
                continue
            try:
                self._look(name, function, module, expected)
            except MISUSE as error:
                raise NumbersDiffer(
                    f"pass {name} leaves @{function.sym_name} with wrong use of memory: {error}",
                    code="D0951",
                    place=function.location.place,
                    help="please report the model",
                ) from error

    def notes(self) -> tuple[str, ...]:
        """What was not compared, for the user, with the reason."""
        asked = option("verify_each", True)
        lines = [
            f"{asked}: {name} was not evaluated: {why.splitlines()[0]}"
            for name, why in self.skipped.items()
        ]
        for name, compared in self.compared.items():
            if count := len(compared.left_out):
                lines.append(
                    f"{asked}: {count} of {compared.kernels + count} kernels of {name} were not compared "
                    f"with their loops, as a tile takes too long: {compared.left_out[0]}"
                    + (" …" if count > 1 else "")
                )
        return tuple(lines)

    def _compare_ranks(self, function: EntryPoint) -> None:
        """Compare what the ranks of a mesh compute; from then on no evaluation runs them alone."""
        meshed = self._meshed.pop(function.sym_name, None)
        if meshed is None or self._expected is None or not isinstance(function, func.Func):
            return
        del self._expected[function.sym_name]
        self.skipped[function.sym_name] = "the ranks of a mesh run it"
        axes, splits, inputs, weights, dims, expected = meshed
        found = evaluate_ranks(function.body, Mesh(axes), splits, inputs, dims, weights)
        compare(PARTITION, function, expected, found)

    def _look(
        self, name: str, function: EntryPoint, module: Op, expected: Sequence[Sequence[Array]]
    ) -> None:
        planned = self._plans.get(function.sym_name) if name == LOOPS else None
        if planned is None:
            for one, other in zip(
                expected, _evaluated(function, module, self._arrays), strict=True
            ):
                compare(name, function, one, other)
        elif isinstance(function, mem.Program):
            self.compared[function.sym_name] = _loops_compared(
                planned, function, module, self._arrays
            )


def _loops_compared(
    planned: mem.Program, program: mem.Program, module: Op, arrays: RandomArrays
) -> Compared:
    """Compare the kernels of a plan with their loops. Raises NumbersDiffer naming the kernel."""
    with np.errstate(all="ignore"):
        at, inputs = arrays.call(program, module)
        return compare_loops(planned, program, inputs, at, compare_kernel)


def compare_kernel(
    op: kernel.Kernel, expected: Array, found: Array, slack: Array, dtype: DType
) -> None:
    """Raises NumbersDiffer (D0951) where loops write something else than the kernel computes."""
    left, right = (decode(each, dtype).astype(np.float64) for each in (expected, found))
    with np.errstate(all="ignore"):
        excess = np.abs(left - right) / slack
    same = (left == right) | (np.isnan(left) & np.isnan(right)) | np.isinf(slack)
    most = float(np.where(same, 0.0, np.where(np.isnan(excess), np.inf, excess)).max(initial=0.0))
    if most > 1:
        apart = distance(expected, found, dtype)
        raise NumbersDiffer(
            f"the loops of {op.name} are off by {apart:.3g} of its largest element, "
            f"{most:.3g} times as much as rounding explains",
            code="D0951",
            place=op.location.place,
            help="please report the model",
        )


def compare(
    name: str, function: EntryPoint, expected: Sequence[Array], found: Sequence[Array]
) -> None:
    """Raises NumbersDiffer (D0951) where results differ by more than rounding."""
    types = function.function_type.results
    way_out = "" if PASSES[name].required else f"{option('disable', name)} leaves the pass out; "
    for index, (type, one, other) in enumerate(zip(types, expected, found, strict=True)):
        assert isinstance(type, TensorType)
        apart = distance(one, other, type.dtype)
        if apart > TOLERANCE.get(type.dtype.name, 0.0):
            raise NumbersDiffer(
                f"pass {name} changes result {index} of {function.sym_name} by {apart:.3g} of its "
                "largest element",
                code="D0951",
                place=function.location.place,
                help=f"{way_out}please report the model",
            )


def distance(one: Array, other: Array, dtype: DType) -> float:
    """The largest difference relative to the largest finite element; infinite for other NaNs."""
    if one.shape != other.shape:
        return float("inf")
    left = decode(one, dtype).astype(np.float64)
    right = decode(other, dtype).astype(np.float64)
    finite = np.isfinite(left)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        return float("inf")
    left, right = left[finite], right[finite]
    if left.size == 0:
        return 0.0
    apart = np.abs(left - right).max()
    if dtype.is_float:
        apart = apart / max(1.0, float(np.abs(left).max()))
    return float("inf") if np.isnan(apart) else float(apart)


def _functions(module: Op) -> list[EntryPoint]:
    return [op for op in module.regions[0] if isinstance(op, func.Func | mem.Program)]


def _meshed(function: func.Func, module: Op, arrays: RandomArrays) -> _Meshed:
    ranks = ranks_by_dim(function)
    parts = {
        name: (-(-low // ranks[name]), None if high is None else high // ranks[name])
        for name, (low, high) in function.bounds.items()
    }
    dims = usual_sizes(parts, USUAL_SIZE)
    at = Evaluation(
        {name: size * ranks[name] for name, size in dims.items()}, arrays.weights(module)
    )
    inputs, splits = arrays.inputs(function, at), weight_splits(module)
    weights = {name: (whole, splits.get(name, {})) for name, whole in at.weights.items()}
    with np.errstate(all="ignore"):
        expected = at.run(function.body, inputs)
    return _Meshed(read_mesh(function), read_splits(function), inputs, weights, dims, expected)


def _has_kernels(function: EntryPoint) -> TypeGuard[mem.Program]:
    """Whether a function is a plan whose kernels are not loops yet."""
    kernels = any(isinstance(op, kernel.Kernel) for op in function.walk())
    return isinstance(function, mem.Program) and kernels


def _has_collectives(op: Op) -> bool:
    return any(isinstance(inner, comm.Collective | comm.Rank) for inner in op.walk())


def _evaluated(function: EntryPoint, module: Op, arrays: RandomArrays) -> list[tuple[Array, ...]]:
    """The results of a function; on each rank, for the same inputs, where the ranks of a mesh run it."""

    def results(ranks: SimulatedRanks | None = None) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            at, inputs = arrays.call(function, module, ranks=ranks)
            if isinstance(function, func.Func):
                return at.run(function.body, inputs)
            return PlanRun(function, inputs, at).run()

    mesh = read_mesh(module)
    # The stages of a pipeline, which send and receive, are different programs.
    if not mesh or any(isinstance(op, comm.Send | comm.Recv) for op in module.walk()):
        return [results()]
    return run_simulated(Mesh(mesh), results)
