"""Verbs that look things up."""

# `dlc.cli.app` imports the verb that runs; this is the order of the help.
# pyright: reportUnusedImport=false

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc.cli.verbs.lookup import doc, ops, explain, doctor, cache
