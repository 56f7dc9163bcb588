"""Reports of `dlc diff`: the fault, and a folder that reproduces it."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from dlc.driver.compile.settings import Settings
from dlc.driver.diff.case import Case, case_of
from dlc.driver.diff.reduce import REDUCED, reduce_case, text_of
from dlc.driver.diff.search import Fault, explained, find_fault
from dlc.driver.diff.tolerance import expectations
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from dlc.ir.core import Array
from dlc.runtime.system.atomic_write import make_folder, write_file
from dlc.runtime.system.counts import counted

INPUTS, WEIGHTS, REPORT = "inputs.npz", "weights.npz", "report.txt"
FEW = 3
"""Values that are named as those whose operations enlarge errors most."""


@dataclass(frozen=True, slots=True)
class Departed:
    """What was found: the fault, or None; the smaller model that shows it, and where that was written."""

    name: str
    entry: str
    fault: Fault | None
    reduced: str = ""
    command: str = ""
    folder: Path | None = None


def compare_levels(
    request: CompileRequest, call_request: CallRequest, *, folder: Path | None, reduce: bool = True
) -> Departed:
    """Evaluate a call at every level, and find and reduce the first fault.

    The smaller model, its inputs and the command that shows the fault again are written to `folder`. Raises
    what reading the model and its arguments raises.
    """
    case, model = case_of(request, call_request)
    with model.quoting():
        fault = find_fault(case, expectations(case))
    if fault is None:
        return Departed(model.name, case.entry, None)
    smaller = case
    if reduce:
        kind = fault.kind

        def shows(candidate: Case) -> bool:
            found = find_fault(candidate)
            return found is not None and found.kind == kind

        smaller = reduce_case(case, shows)
        fault = find_fault(smaller) or fault
    fault = explained(smaller, fault)
    departed = Departed(model.name, case.entry, fault)
    if smaller is case or folder is None:
        return departed
    return _written(departed, smaller, folder)


def _written(departed: Departed, case: Case, folder: Path) -> Departed:
    make_folder(folder)
    text = text_of(case)
    write_file(folder / REDUCED, [text.encode()])
    inputs = dict(zip(case.function(case.open()).input_names, case.inputs, strict=True))
    _save(folder / INPUTS, inputs)
    words = ["dlc", "diff", str(folder / REDUCED), "--inputs", str(folder / INPUTS)]
    if case.weights:
        _save(folder / WEIGHTS, case.weights)
        words += ["--weights", str(folder / WEIGHTS)]
    words += [f"--dim={name}={size}" for name, size in case.dims.items()]
    usual = Settings().flags
    words += [flag for flag in case.settings.flags if flag not in usual]
    command = shlex.join(words)
    written = Departed(departed.name, departed.entry, departed.fault, text, command, folder)
    write_file(folder / REPORT, [f"{text_of_departed(written)}\n".encode()])
    return written


def _save(path: Path, arrays: Mapping[str, Array]) -> None:
    stream = io.BytesIO()
    cast("Callable[..., None]", np.savez)(stream, **arrays)
    write_file(path, [stream.getvalue()])


def text_of_departed(departed: Departed) -> str:
    """What was found, for people."""
    fault = departed.fault
    if fault is None:
        return f"{departed.name}: {departed.entry} gives the same numbers at every level"
    lines = [
        f"{departed.name}: {departed.entry} departs at level {fault.level}, in {fault.pass_name}"
    ]
    rows = [("found", _found(fault)), ("value", _value(fault)), ("rewrite", _rewrite(fault))]
    grown = [f"{name} ({growth:.3g} times)" for name, growth in fault.contributors[:FEW]]
    rows.append(("error", f"grows most in {', '.join(grown)}" if grown else ""))
    if departed.folder is not None:
        lines_of = counted(departed.reduced.count("\n"), "line")
        rows.append(("reduced", f"{departed.folder / REDUCED}, {lines_of}"))
        rows.append(("again", departed.command))
    lines += [f"  {name:8} {text}" for name, text in rows if text]
    return "\n".join(lines)


def _found(fault: Fault) -> str:
    times = (
        f", {fault.excess:.3g} times what rounding explains" if np.isfinite(fault.excess) else ""
    )
    return f"{fault.what}{times}"


def _value(fault: Fault) -> str:
    named = f"{fault.value}, " if fault.value and fault.value != fault.op else ""
    at = f" at {fault.place}" if fault.place and fault.place != "-" else ""
    return f"{named}{fault.op}{at}" if fault.op else ""


def _rewrite(fault: Fault) -> str:
    if fault.rewrite is None:
        return ""
    number = "" if fault.number is None else f"{fault.number}: "
    return f"{number}{fault.rewrite.what} ({fault.rewrite.subject} at {fault.rewrite.place})"


def data_of_departed(departed: Departed) -> dict[str, object]:
    """The same for programs."""
    fault = departed.fault
    found: dict[str, object] = {"model": departed.name, "entry": departed.entry, "fault": None}
    if fault is None:
        return found
    rewrite = fault.rewrite
    found["fault"] = {
        "level": fault.level,
        "pass": fault.pass_name,
        "found": fault.what,
        "times_tolerance": fault.excess,
        "value": fault.value,
        "op": fault.op,
        "place": fault.place,
        "rewrite": None
        if rewrite is None
        else {
            "number": fault.number,
            "what": rewrite.what,
            "subject": rewrite.subject,
            "place": rewrite.place,
        },
        "contributors": [{"value": n, "growth": g} for n, g in fault.contributors[:FEW]],
    }
    if departed.folder is not None:
        found |= {"folder": str(departed.folder), "reduced": departed.reduced}
        found["command"] = departed.command
    return found
