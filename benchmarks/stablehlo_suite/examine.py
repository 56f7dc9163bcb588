"""What becomes of a case in dlc."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

import dlc
from benchmarks.stablehlo_suite import cases, comparing
from benchmarks.stablehlo_suite.cases import Case, NotMade

Array: TypeAlias = Any

UNSTABLE = re.compile(r"sort_multiple_arrays_.*_isstable_False_num_keys_(\d+)")
"""Sorts of several vectors by the first ones, where JAX leaves the order of equal keys open."""
APPROXIMATE = "approx_top_k"
"""The largest elements, of which JAX does not say which place it names where several are equal."""
VERDICTS = ("agrees", "nearer", "wrong", "broken", "refused", "not made")
"""`nearer` is not within a few roundings of JAX, but as near to one in f64; `broken` is neither a
result nor a refusal; `not made` what JAX itself does not export."""


@dataclass(frozen=True, slots=True)
class Task:
    """A case by name, of the suite with or without types of 64 bits."""

    name: str
    x64: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case of a primitive, and why; `is_text` unless the module was bytecode."""

    name: str
    primitive: str
    verdict: str
    why: str = ""
    is_text: bool = True


def examine(task: Task) -> Outcome:
    """Run a case by dlc and compare it with JAX."""
    warnings.simplefilter("ignore")
    primitive = cases.primitive_of(task.name, x64=task.x64)
    try:
        case = cases.kept_case(task.name, x64=task.x64)
    except NotMade as error:
        return Outcome(task.name, primitive, "not made", str(error))
    verdict, why = _verdict(task, case)
    return Outcome(task.name, primitive, verdict, why, case.is_text)


def _verdict(task: Task, case: Case) -> tuple[str, str]:
    try:
        got = _results(case)
    except dlc.InternalError as error:
        return "broken", str(error)
    except dlc.DlcError as error:
        return "refused", str(error)
    except Exception as error:  # noqa: BLE001 - whatever else it is, it is a mistake
        return "broken", f"{type(error).__name__}: {error}"
    if _is_open(task.name, case, got):
        return "agrees", ""
    wrong = comparing.difference(got, case.wanted)
    if wrong is not None:
        return "wrong", wrong
    if comparing.within_roundings(got, case.wanted):
        return "agrees", ""
    try:
        near = comparing.as_near_to_f64(
            got, case.wanted, lambda: cases.precise_results(task.name, x64=task.x64)
        )
    except Exception:  # noqa: BLE001 - JAX does not compute every case in f64
        near = comparing.within_roundings_of_largest(got, case.wanted)
    return ("nearer", "") if near else ("wrong", "other floats")


def _is_open(name: str, case: Case, got: Sequence[Array]) -> bool:
    """Whether results are equal but for an order that JAX leaves open."""
    unstable = UNSTABLE.fullmatch(name)
    if unstable:
        return comparing.equal_but_for_order(got, case.wanted, int(unstable[1]))
    return name.startswith(APPROXIMATE) and comparing.picks_equal_elements(
        case.inputs[0], got, case.wanted
    )


def _results(case: Case) -> Sequence[Array]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "case.mlir")
        path.write_bytes(case.module)
        model = dlc.compile(path, threads=1)
    returned = model(*case.inputs)
    results = cast("Sequence[Array]", returned) if isinstance(returned, tuple) else [returned]
    return [np.asarray(each) for each in results]
