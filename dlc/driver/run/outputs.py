"""Results for people (as NumPy prints them), for programs (as plain data) and in files."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dlc.driver.run.pictures import write_picture
from dlc.driver.run.results import TEXT, Results
from dlc.driver.run.seen import Seen
from dlc.errors import UsageError, visible
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.system.atomic_write import write_file
from dlc.runtime.system.mapped_files import map_file

JSON = dict[str, object]


class Ranking(NamedTuple):
    """The result of this name, and the best labels of each of its rows with their numbers."""

    result: str
    rows: list[list[tuple[str, float]]]


def as_text(results: Results, best: Ranking | None = None) -> str:
    """Each result as `NAME: type` and NumPy's print of it, or the best labels of its rows."""
    return "\n".join(
        f"{visible(name)}: {type_text(value)}\n"
        + (_ranked_text(best, value) if best and best.result == name else f"{value.values()}")
        for name, value in results.named.items()
    )


def seen_text(values: Mapping[str, Seen]) -> str:
    """Inner values, each with its type, how often it was computed, and whether NumPy computed it again."""
    return "\n".join(
        f"{visible(name)}: {seen_type(seen)}{_source_note(seen)}\n{seen.value.values()}"
        for name, seen in values.items()
    )


def seen_type(seen: Seen) -> str:
    """`f32[4, 8], 5 steps`: the type of a step, and the loops around it."""
    type = type_text(Tensor.from_bits(seen.value.bits[(0,) * len(seen.loops)], seen.value.dtype))
    return type + (f", {' by '.join(map(str, seen.loops))} steps" if seen.loops else "")


def _source_note(seen: Seen) -> str:
    return ", recomputed" if seen.source == "recomputed" else ""


def ranking_text(results: Results, best: Ranking) -> str:
    """The result with the best labels alone."""
    value = results.named[best.result]
    return f"{visible(best.result)}: {type_text(value)}\n{_ranked_text(best, value)}"


def _ranked_text(best: Ranking, value: Tensor) -> str:
    """A line for each label, under the place of its row where there are several axes."""
    lines: list[str] = []
    for place, row in zip(np.ndindex(value.shape[:-1]), best.rows, strict=True):
        if place:
            lines.append(f"[{', '.join(map(str, place))}]")
        lines += [f"{score:10.4f}  {visible(label)}" for label, score in row]
    return "\n".join(lines)


def type_text(value: Tensor) -> str:
    """The type of an array as the language writes it."""
    sizes = ", ".join(map(str, value.shape))
    return f"{value.dtype}[{sizes}]" if value.shape else value.dtype


def as_data(
    results: Results, seen: Mapping[str, Seen] | None = None, best: Ranking | None = None
) -> JSON:
    """The results as what JSON can say, NaN and infinities as texts; `values` and `labels` if any."""
    data: JSON = {"entry": results.entry, "results": _described(results.named)}
    if seen:
        data["values"] = {name: _seen_data(one) for name, one in seen.items()}
    if best is not None:
        data["labels"] = [
            [{"label": label, "score": score} for label, score in row] for row in best.rows
        ]
    return data


def _described(values: Mapping[str, Tensor]) -> JSON:
    return {name: _tensor_data(value) for name, value in values.items()}


def _tensor_data(value: Tensor) -> JSON:
    return {"dtype": value.dtype, "shape": list(value.shape), "values": plain(value)}


def _seen_data(seen: Seen) -> JSON:
    """An inner value; `loops` are the first axes of its shape, one for each loop around it."""
    return {**_tensor_data(seen.value), "loops": list(seen.loops), "source": seen.source}


def plain(value: Tensor) -> object:
    """Nested lists of numbers, with texts for NaN and infinities."""
    numbers = value.values()
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        boxed = np.array([_spelled(float(x)) for x in numbers.reshape(-1)], object)
        return cast("object", boxed.reshape(numbers.shape).tolist())
    return value.tolist()


def _spelled(number: float) -> float | str:
    return number if np.isfinite(number) else str(number)


def save_values(values: Mapping[str, Seen], path: str) -> None:
    """Write inner values to an `.npz`; one in loops with a first axis for the steps of each loop.

    Values of bf16 are written as f32. A value whose shape differs between steps is written as it was last.
    """
    arrays = {name: seen.value.values() for name, seen in values.items()}
    stream = io.BytesIO()
    cast("Callable[..., None]", np.savez)(stream, **arrays)
    write_file(Path(path), [stream.getvalue()])


def save_results(results: Results, files: Mapping[str, str]) -> None:
    """Write results to files by name: `.npy`, `.safetensors`, `.txt` or a picture.

    `check_files` says what can go where.

    Raises UsageError: D0502 for a file that cannot be written, D0908 for an array that is not a picture.
    """
    for name, path in files.items():
        _save(name, results.named[name], path)


def _save(name: str, value: Tensor, path: str) -> None:
    match Path(path).suffix.lower():
        case ".npy":
            stream = io.BytesIO()
            np.save(stream, value.values(), allow_pickle=False)
            write_file(path, [stream.getvalue()])
        case ".safetensors":
            safetensors.write(path, {name: value})
        case ending if ending == TEXT:
            rows = np.atleast_2d(value.bits)
            write_file(path, [row.tobytes() + b"\n" for row in rows])
        case _:
            write_picture(path, value.values())


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all. Raises UsageError (D0502) where that cannot be done."""
    write_file(path, [text.encode()])


def read_labels(path: str) -> list[str]:
    """One label a line, from a text file. Raises UsageError (D0501) if it cannot be read."""
    return str(map_file(path), "utf-8", "replace").splitlines()


def top_labels(results: Results, labels: Sequence[str] | None, count: int) -> Ranking:
    """For each row of the first result that has one number for each label: the best labels.

    Without labels these are the places in the rows of the first result of floats.

    Raises UsageError (D0910) where no result fits.
    """
    for name, value in results.named.items():
        if _is_ranked(value, labels):
            rows = cast("NDArray[np.float64]", value.values()).reshape(-1, value.shape[-1])
            return Ranking(name, [_best(row, labels, count) for row in rows])
    if labels is None:
        raise UsageError(
            f"no result of {results.entry} has rows of floats, of which the highest could be shown",
            code="D0910",
            help="leave --top out: all results are shown then",
        )
    raise UsageError(
        f"there are {len(labels)} labels, and no result of {results.entry} has as many numbers",
        code="D0910",
        help="the file has one label a line, for the last axis of a result",
    )


def _is_ranked(value: Tensor, labels: Sequence[str] | None) -> bool:
    """Whether the numbers along the last axis are those of the labels."""
    if value.ndim < 1 or value.shape[-1] == 0:
        return False
    if labels is None:
        return DTYPES[value.dtype].kind == "f"
    return value.shape[-1] == len(labels)


def _best(
    row: NDArray[np.float64], labels: Sequence[str] | None, count: int
) -> list[tuple[str, float]]:
    """The highest first, NaN above all, the first of equals first: as `top_k` has them."""
    rising = np.argsort(row[::-1], kind="stable")
    order: list[int] = (len(row) - 1 - rising[::-1])[:count].tolist()
    return [(str(k) if labels is None else labels[k], float(row[k])) for k in order]
