"""Results for people (as NumPy prints them), for programs (as plain data) and in files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dlc.driver.calls import Results
from dlc.driver.pictures import PICTURES, write_picture
from dlc.errors import UsageError
from dlc.runtime import safetensors
from dlc.runtime.atomic import write_file
from dlc.runtime.files import map_file
from dlc.runtime.manifest import Output
from dlc.runtime.tensor import Tensor
from dlc.runtime.weight_files import nearest

JSON = dict[str, object]


def result_names(results: Results) -> list[str]:
    """What each result is called: by its own name, or by that of the entry point."""
    return [output.name or results.entry for output, _ in results.values]


def as_text(results: Results) -> str:
    """Each result as `NAME: type` and NumPy's print of it."""
    return "\n".join(
        f"{name}: {type_text(value)}\n{value.values()}"
        for name, (_, value) in zip(result_names(results), results.values, strict=True)
    )


def type_text(value: Tensor) -> str:
    """The type of an array as the language writes it."""
    sizes = ", ".join(map(str, value.shape))
    return f"{value.dtype}[{sizes}]" if value.shape else value.dtype


def as_data(results: Results) -> JSON:
    """The results as what JSON can say; NaN and infinities are texts."""
    return {
        "entry": results.entry,
        "results": {
            name: {"dtype": value.dtype, "shape": list(value.shape), "values": plain(value)}
            for name, (_, value) in zip(result_names(results), results.values, strict=True)
        },
    }


def plain(value: Tensor) -> object:
    """Nested lists of numbers, with texts for NaN and infinities."""
    numbers = value.values()
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        boxed = np.array([_spelled(float(x)) for x in numbers.reshape(-1)], object)
        return cast("object", boxed.reshape(numbers.shape).tolist())
    return value.tolist()


def _spelled(number: float) -> float | str:
    return number if np.isfinite(number) else str(number)


def save_results(results: Results, files: Mapping[str, str]) -> None:
    """Write results to files by name: `.npy`, `.safetensors` or a picture.

    Raises UsageError: D0906 for results that do not exist, D0909 for other endings.
    """
    names = result_names(results)
    found = dict(zip(names, results.values, strict=True))
    for name, path in files.items():
        if name not in found:
            near = nearest(name, names)
            raise UsageError(
                f"{results.entry} has no result {name}",
                code="D0906",
                help=f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}",
            )
        _save(name, found[name], path)


def _save(name: str, result: tuple[Output, Tensor], path: str) -> None:
    _, value = result
    suffix = Path(path).suffix.lower()
    if suffix == ".npy":
        stream = io.BytesIO()
        np.save(stream, value.values(), allow_pickle=False)
        write_file(path, [stream.getvalue()])
    elif suffix == ".safetensors":
        safetensors.write(path, {name: value})
    elif suffix in PICTURES:
        write_picture(path, value.values())
    else:
        raise UsageError(
            f"{path}: results are not written to {suffix or 'files without ending'}",
            code="D0909",
            help="use .npy, .safetensors or a picture such as .png",
        )


def named_values(values: Mapping[str, Tensor]) -> Results:
    """Arrays by name as results of nothing in particular."""
    return Results("values", tuple([(Output(n, v.dtype), v) for n, v in values.items()]))


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all. Raises UsageError (D0502) where that cannot be done."""
    write_file(path, [text.encode()])


def top_labels(results: Results, path: str, count: int) -> list[list[tuple[str, float]]]:
    """For each row of the first result that has one number for each label: the best labels.

    `path` is a text file with one label a line. Raises UsageError (D0910) where no result fits.
    """
    labels = str(map_file(path), "utf-8", "replace").splitlines()
    for _, value in results.values:
        if value.ndim >= 1 and value.shape[-1] == len(labels):
            rows = cast("NDArray[np.float64]", value.values()).reshape(-1, len(labels))
            return [_best(row, labels, count) for row in rows]
    raise UsageError(
        f"{path} has {len(labels)} labels, and no result of {results.entry} has as many numbers",
        code="D0910",
        help="the file has one label a line, for the last axis of a result",
    )


def _best(row: NDArray[np.float64], labels: Sequence[str], count: int) -> list[tuple[str, float]]:
    order = np.argsort(-row, kind="stable")[:count]
    return [(str(labels[k]), float(row[k])) for k in order.tolist()]
