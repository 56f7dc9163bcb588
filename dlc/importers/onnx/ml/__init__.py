"""Operators of the domain ai.onnx.ml, which exporters of classical learning write, on numbers."""

from __future__ import annotations

from dlc.importers.onnx.ml import features, linear, svm, trees
from dlc.importers.onnx.node_context import Importer

IMPORTERS: dict[str, Importer] = {
    **features.IMPORTERS,
    **linear.IMPORTERS,
    **svm.IMPORTERS,
    **trees.IMPORTERS,
}
"""The importer of each operator, by its name."""
WAYS_OUT = {
    "ZipMap": "it makes a dictionary for each row, and dlc has tensors only: export the model without it, "
    "with skl2onnx by to_onnx(model, options={'zipmap': False})",
}
"""What helps where an operator is not imported."""
