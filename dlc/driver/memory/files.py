"""The memory of a model in files: a page, a picture, a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dlc.driver.memory.asked import ModelMemory
from dlc.driver.memory.page import html_page
from dlc.driver.memory.picture import svg_file
from dlc.driver.memory.trace import trace_file
from dlc.runtime.system.atomic_write import write_file

WRITERS: Mapping[str, Callable[[ModelMemory], str]] = {
    "html": html_page,
    "svg": svg_file,
    "trace": trace_file,
}
"""The files that can be written of a plan, by the option that asks for each."""


def write_memory(memory: ModelMemory, files: Mapping[str, str]) -> None:
    """Write these kinds of files. Raises UsageError (D0502) for one that cannot be written."""
    for kind, path in files.items():
        write_file(path, [WRITERS[kind](memory).encode()])
