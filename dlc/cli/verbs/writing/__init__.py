"""Verbs for those who write models."""

# `dlc.cli.app` imports the verb that runs; this is the order of the help.
# pyright: reportUnusedImport=false

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc.cli.verbs.writing import new, check, fmt, importing as import_, stubs, lsp
