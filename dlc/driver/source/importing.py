"""From a model of another tool to model text and a weight file beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlc.driver.source.dim_bounds import narrow
from dlc.driver.source.import_request import shape_of, value_of
from dlc.errors import DlcError, UsageError, render
from dlc.export.model_text import write_model
from dlc.importers.imported import ImportedModel
from dlc.importers.onnx import read_onnx
from dlc.importers.stablehlo.opening import read_mlir
from dlc.importers.torch.exporting import read_pt2
from dlc.ir.dims import Bounds, Shape
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.system.atomic_write import check_writable, write_file
from dlc.runtime.system.mapped_files import map_file

_MADE = "made"
"""The free text by which a weight file is known as one that an import wrote."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The files that were written."""

    text: Path
    weights: Path | None
    """None for a model without weights."""
    parameters: int
    renamed: Mapping[str, str]
    """The renamed inputs, results and sizes."""
    remarks: tuple[str, ...] = ()
    """Declarations of the file that its nodes contradict, and sizes that they decide, as they are shown."""


def import_model(
    path: str | Path,
    out: str | Path | None = None,
    *,
    dims: Bounds | None = None,
    shapes: Mapping[str, str] | None = None,
    fixed: Mapping[str, str] | None = None,
) -> Imported:
    """Write the `.dlm` of an `.onnx`, `.pt2` or `.mlir` file, and its weights beside it under its name.

    `dims` gives bounds to sizes that the file only names, `shapes` other shapes to its inputs, such as
    `{"image": "B,3,32*H,32*W"}`, `fixed` values to inputs that decide shapes, such as `{"axes": "[1]"}`:
    they are inputs no longer. Raises Unsupported, before anything is written, with every operator
    that is not imported; UsageError: D0924 where the weights would replace what another program wrote,
    D0906 and D0930 for bounds of sizes that are not there or do not allow them.
    """
    path = Path(path)
    target = _target(path, out)
    new_shapes = {name: shape_of(name, text) for name, text in (shapes or {}).items()}
    values = {name: value_of(name, text) for name, text in (fixed or {}).items()}
    weights = target.with_suffix(".safetensors")
    check_writable(target)
    bounds = dims or {}
    model = _read(path, new_shapes, bounds, values)
    narrow(model.module, {name: bounds[name] for name in bounds if name not in model.settled})
    docs = f"{path.stem}, imported from {path.name}."
    written = write_model(model, target.stem, weights.name, docs)
    tensors = {
        name: Tensor.from_bits(weight.array, weight.dtype.name)
        for name, weight in written.weights.items()
    }
    if tensors:
        _check_own(weights)
        safetensors.write(weights, tensors, {_MADE: "dlc import"})
    write_file(target, [written.text.encode()])
    count = sum(weight.array.size for weight in written.weights.values())
    texts = {path.name: model.listing}
    remarks = tuple(render(warning, texts) for warning in model.warnings)
    return Imported(target, weights if tensors else None, count, model.renamed, remarks)


def _target(path: Path, out: str | Path | None) -> Path:
    """Where the text goes: `out`, or the name of the file in this folder. Raises UsageError (D0903)."""
    if path.suffix not in (".onnx", ".pt2", ".mlir"):
        name = path.name or repr(str(path))
        raise UsageError(
            f"{name} is not an ONNX file, a program of PyTorch or a module of StableHLO",
            code="D0903",
            help="dlc import takes .onnx, .pt2 and .mlir files",
        )
    target = Path(path.with_suffix(".dlm").name) if out is None else Path(out)
    if target.suffix != ".dlm":
        raise UsageError(
            f"{target.name} is not a name for model text, which ends in .dlm", code="D0903"
        )
    return target


def _read(
    path: Path,
    shapes: Mapping[str, Shape],
    bounds: Bounds,
    fixed: Mapping[str, NDArray[np.generic]],
) -> ImportedModel:
    """The model in a file. Raises UsageError (D0919) for options that only an `.onnx` has."""
    if path.suffix == ".onnx":
        return read_onnx(path, shapes=shapes, bounds=bounds, fixed=fixed)
    if shapes or fixed:
        raise UsageError(
            f"--{'shape' if shapes else 'fix'} is for an .onnx file, not for {path.name}",
            code="D0919",
            help="export the module once more, with the sizes that are wanted",
        )
    return read_mlir(path) if path.suffix == ".mlir" else read_pt2(path)


def _check_own(weights: Path) -> None:
    """Refuse to replace a weight file that no import has written: nobody named it."""
    if not weights.exists():
        return
    try:
        own = _MADE in safetensors.metadata(map_file(weights), str(weights))
    except DlcError:
        own = False
    if not own:
        other = weights.with_name(f"new-{weights.stem}.dlm")
        raise UsageError(
            f"the weights would replace {weights}, which was not written by an import",
            code="D0924",
            help=f"name the new model otherwise, such as {other}",
        )
