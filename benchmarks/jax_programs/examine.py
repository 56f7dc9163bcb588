"""What becomes of a program in dlc: its values and its gradients, at each of its sizes."""

from __future__ import annotations

import importlib
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

import dlc
from benchmarks.jax_programs.program import Draws, Function, Made, Program, Tree, load_programs
from benchmarks.stablehlo_suite import comparing

Array: TypeAlias = Any
# JAX is not installed where types are checked.
jax: Any = importlib.import_module("jax")
jnp: Any = jax.numpy

FAINT = 1e-3
"""Errors are relative to no less than this part of the largest element of all results: a gradient of 0, as
by the bias of keys, is what rounding leaves of it."""
LIMIT = 1e-5
"""The most that such an error may be where a program does not run in f64."""
CHECKS: tuple[str, ...] = ("values", "traced gradient", "own gradient")
"""Values of the program; those of its gradient, which JAX traced into a program; dlc's own gradient of the
program, through `dlc.to_jax`: all against JAX."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check gave: `agrees`, `wrong`, `refused`, `broken` or `none`, and the largest error.

    The error is relative to the largest element of a result.
    """

    verdict: str
    error: float = 0.0
    why: str = ""


def examine(name: str) -> dict[str, Finding]:
    """Every check of a program: values at all sizes, gradients at one."""
    warnings.simplefilter("ignore")
    program = load_programs()[name]
    checks: dict[str, Callable[[Program], Finding]] = {
        "values": _values,
        "traced gradient": _traced_gradient,
        "own gradient": _own_gradient,
    }
    return {check: _guarded(checks[check], program) for check in CHECKS}


def _guarded(check: Callable[[Program], Finding], program: Program) -> Finding:
    try:
        return check(program)
    except dlc.InternalError as error:
        return Finding("broken", why=str(error))
    except dlc.DlcError as error:
        return Finding("refused", why=str(error))
    except Exception as error:  # noqa: BLE001 - whatever else it is, it is a mistake
        return Finding("broken", why=f"{type(error).__name__}: {error}")


def _values(program: Program) -> Finding:
    """The worst finding of all sizes; a dynamic program is imported once."""
    worst, imported = Finding("agrees"), None
    for size in program.sizes:
        function, arguments = made(program, size)
        if imported is None or program.dynamic is None:
            imported = Imported(function, arguments, program.dynamic)
        worst = _worse(worst, _finding(imported(arguments), function, arguments))
    return worst


def _traced_gradient(program: Program) -> Finding:
    if not (program.has_gradient and program.traces_gradient):
        return Finding("none")
    function, arguments = made(program, program.gradient_size)
    gradient = _gradient_of(function, arguments)
    return _finding(Imported(gradient, arguments)(arguments), gradient, arguments)


def _own_gradient(program: Program) -> Finding:
    if not (program.has_gradient and program.traces_gradient):
        return Finding("none")
    function, arguments = made(program, program.gradient_size)
    imported = Imported(function, arguments, program.dynamic)
    got = _leaves(_gradient_of(imported.in_jax, arguments)(*arguments))
    return _finding(got, _gradient_of(function, arguments), arguments)


def made(program: Program, size: int) -> Made:
    """The function and its arguments, as arrays of JAX."""
    function, arguments = program.make(size, Draws())
    return function, jax.tree.map(jnp.asarray, arguments)


class Imported:
    """A function, exported by JAX and compiled by dlc."""

    def __init__(
        self, function: Function, arguments: Sequence[Tree], dynamic: Sequence[str] | None = None
    ) -> None:
        shapes = _symbolic(arguments, dynamic) if dynamic else arguments
        exported = jax.export.export(jax.jit(function))(*shapes)
        self._kept = exported.module_kept_var_idx
        self._out = exported.out_tree
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "program.mlir")
            path.write_text(exported.mlir_module(), encoding="utf-8")
            self.model = dlc.compile(path, threads=1)

    def __call__(self, arguments: Sequence[Tree]) -> list[Array]:
        returned = self.model(*self._inputs(arguments))
        results = cast("Sequence[Array]", returned) if isinstance(returned, tuple) else [returned]
        return [np.asarray(each) for each in results]

    def in_jax(self, *arguments: Tree) -> Tree:
        """The same as a function of JAX, with the arguments and results of the original."""
        (entry,) = self.model.entry_points.values()
        returned = dlc.to_jax(entry)(*self._inputs(arguments))
        return jax.tree.unflatten(self._out, jax.tree.leaves(returned))

    def _inputs(self, arguments: Sequence[Tree]) -> list[Array]:
        leaves = jax.tree.leaves(arguments)
        return [leaves[k] for k in self._kept]


def _symbolic(arguments: Sequence[Tree], dynamic: Sequence[str]) -> list[Tree]:
    """The shapes of the arguments, with names for the sizes that calls choose."""
    scope = jax.export.SymbolicScope()
    return [
        jax.export.symbolic_args_specs(argument, shapes, scope=scope)
        for argument, shapes in zip(arguments, dynamic, strict=True)
    ]


def _gradient_of(function: Function, arguments: Sequence[Tree]) -> Function:
    """The gradient of one number by all float leaves of the arguments.

    The number is the sum of all float results, each element weighed by another factor.
    """

    def total(floats: Sequence[Array], arguments: Sequence[Tree]) -> Array:
        given = iter(floats)
        leaves, tree = jax.tree.flatten(tuple(arguments))
        leaves = [next(given) if _is_float(leaf) else leaf for leaf in leaves]
        results = [
            each
            for each in jax.tree.leaves(function(*jax.tree.unflatten(tree, leaves)))
            if _is_float(each)
        ]
        return sum(
            (
                each * jnp.cos(1.0 + jnp.arange(each.size, dtype=each.dtype)).reshape(each.shape)
            ).sum()
            for each in results
        )

    def gradient(*arguments: Tree) -> Tree:
        floats = [leaf for leaf in jax.tree.leaves(arguments) if _is_float(leaf)]
        return jax.grad(total)(floats, arguments)

    return gradient


def _finding(got: Sequence[Array], function: Function, arguments: Sequence[Tree]) -> Finding:
    """Results of dlc against those of JAX."""
    wanted = _leaves(jax.jit(function)(*arguments))
    wrong = comparing.difference(got, wanted)
    if wrong is not None:
        return Finding("wrong", why=wrong)
    least = FAINT * max([_largest(each) for each in wanted], default=0.0)
    errors = [_error(one, other, least) for one, other in zip(got, wanted, strict=True)]
    error = max(errors, default=0.0)
    near = comparing.within_roundings(got, wanted) or _as_near(
        got, wanted, error, function, arguments
    )
    return Finding("agrees" if near else "wrong", error, "" if near else "other floats")


def _as_near(
    got: Sequence[Array],
    wanted: Sequence[Array],
    error: float,
    function: Function,
    arguments: Sequence[Tree],
) -> bool:
    """Whether results are as near to f64 as those of JAX, or within `LIMIT` where it has none."""
    try:
        precise = _precise(function, arguments)
    except TypeError:  # a program may insist on f32
        return error <= LIMIT
    return comparing.as_near_to_f64(got, wanted, lambda: precise)


def _error(got: Array, wanted: Array, least: float) -> float:
    """The largest error, relative to the largest element, or to `least` where that is more."""
    if not _is_float(wanted) or not wanted.size:
        return 0.0
    apart = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max()
    return float(apart / max(_largest(wanted), least, 1e-30))


def _largest(result: Array) -> float:
    return float(np.abs(result.astype(np.float64)).max(initial=0)) if _is_float(result) else 0.0


def _precise(function: Function, arguments: Sequence[Tree]) -> list[Array]:
    """What JAX computes in f64."""
    given = [[np.asarray(leaf) for leaf in jax.tree.leaves(each)] for each in arguments]
    with jax.enable_x64(True):
        wide = [
            jax.tree.unflatten(jax.tree.structure(argument), [_widened(leaf) for leaf in leaves])
            for argument, leaves in zip(arguments, given, strict=True)
        ]
        return _leaves(jax.jit(function)(*wide))


def _widened(leaf: Array) -> Array:
    return jnp.asarray(leaf.astype(np.float64) if _is_float(leaf) else leaf)


def _worse(one: Finding, other: Finding) -> Finding:
    """What is wrong comes first, then the larger error."""
    return max(one, other, key=lambda each: (each.verdict != "agrees", each.error))


def _is_float(leaf: Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _leaves(tree: Tree) -> list[Array]:
    return [np.asarray(each) for each in jax.tree.leaves(tree)]
