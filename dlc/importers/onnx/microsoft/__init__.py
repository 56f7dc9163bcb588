"""Operators of the domain com.microsoft, which ONNX Runtime's optimizer and quantiser write."""

from __future__ import annotations

from dlc.importers.onnx.microsoft import attention, blocks, fused, quantized
from dlc.importers.onnx.node_context import Importer

IMPORTERS: dict[str, Importer] = {
    **attention.IMPORTERS,
    **blocks.IMPORTERS,
    **fused.IMPORTERS,
    **quantized.IMPORTERS,
}
"""The importer of each operator, by its name."""
