"""The results of a call, their names, and the files that they can go into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from numpy.typing import ArrayLike

from dlc.driver.run.pictures import PICTURES
from dlc.errors import UsageError
from dlc.errors.suggest import did_you_mean
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Entry, Output
from dlc.runtime.calling.entry import EntryPoint

TEXT = ".txt"
ENDINGS = (".npy", ".safetensors", TEXT, *PICTURES)
"""Of files that results are written to."""


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a call: each with its declaration, in order."""

    entry: str
    values: tuple[tuple[Output, Tensor], ...]

    @property
    def named(self) -> dict[str, Tensor]:
        """The results by what they are called."""
        names = _names(self.entry, [output for output, _ in self.values])
        return dict(zip(names, [value for _, value in self.values], strict=True))


def results_of(point: EntryPoint, result: object, changed: Sequence[object]) -> Results:
    """What a call returned, in the order of the declared results, then the arrays that it changed."""
    found = cast("tuple[ArrayLike, ...]", result if isinstance(result, tuple) else (result,))
    arrays = (*found, *cast("Sequence[ArrayLike]", changed))
    pairs = zip(outputs_of(point.entry), arrays, strict=True)
    return Results(point.name, tuple([(output, Tensor(value)) for output, value in pairs]))


def outputs_of(entry: Entry) -> list[Output]:
    """What a call gives: its results, then its `inout` parameters by their names."""
    changed = {output.updates: output for output in entry.outputs if output.hidden}
    inouts = [changed[name]._replace(name=name) for name in entry.inouts]
    return [*[output for output in entry.outputs if not output.hidden], *inouts]


def named_values(values: Mapping[str, Tensor]) -> Results:
    """Arrays by name as results of nothing in particular."""
    return Results("values", tuple([(Output(n, v.dtype), v) for n, v in values.items()]))


def _names(entry: str, outputs: Sequence[Output]) -> list[str]:
    """The name of each result: its own, or that of the entry point."""
    return [output.name or entry for output in outputs]


def check_files(entry: Entry, files: Mapping[str, str]) -> None:
    """Whether results of these names can go to these files.

    Raises UsageError: D0906 for results that do not exist, D0909 for other endings and for numbers that
    are not text.
    """
    outputs = outputs_of(entry)
    names = _names(entry.name, outputs)
    for name, path in files.items():
        other = next((n for n in files if n != name and files[n] == path), None)
        if other is not None:
            raise UsageError(
                f"{name} and {other} would both be written to {path}",
                code="D0906",
                help="name a file for each",
            )
        if name not in names:
            raise UsageError(
                f"{entry.name} has no result {name}",
                code="D0906",
                help=did_you_mean(name, names) or f"there are {', '.join(names)}",
            )
        ending = Path(path).suffix.lower()
        if ending not in ENDINGS:
            raise UsageError(
                f"{path}: results are not written to {Path(path).suffix or 'files without ending'}",
                code="D0909",
                help="use .npy, .safetensors, .txt for text, or a picture such as .png",
            )
        output = outputs[names.index(name)]
        if ending == TEXT and (output.dtype != "u8" or not 1 <= len(output.shape) <= 2):
            raise UsageError(
                f"{path}: {name} is not text, which is u8 with one axis, or with two for one text a line",
                code="D0909",
                help="use .npy or .safetensors",
            )
