"""Imported models as source models, which are opened like models that were read from text."""

from __future__ import annotations

from pathlib import Path

from dlc.driver.source.source_model import SourceModel
from dlc.importers.imported import ImportedModel
from dlc.ir.passes import Context


def source_of(imported: ImportedModel, name: str, folder: Path) -> SourceModel:
    """An imported model, whose messages show the lines of its listing."""
    return SourceModel(
        imported.module,
        Context(),
        name,
        {name: imported.listing},
        folder,
        arrays=imported.arrays,
        warnings=imported.warnings,
        settled=imported.settled,
    )
