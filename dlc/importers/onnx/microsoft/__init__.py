"""Operators of the domain com.microsoft, which ONNX Runtime's optimizer and quantiser write."""

from __future__ import annotations

from dlc.importers.onnx.microsoft import attention, blocks, fused, quantized, quantized_lstm
from dlc.importers.onnx.node_context import Importer

IMPORTERS: dict[str, Importer] = {
    **attention.IMPORTERS,
    **blocks.IMPORTERS,
    **fused.IMPORTERS,
    **quantized.IMPORTERS,
    **quantized_lstm.IMPORTERS,
}
"""The importer of each operator, by its name."""
