"""The whole way from a model to an artifact or a result, and every stop between them.

Each name loads on first use, so that a command pays only for what it does: running an artifact loads
nothing of the compiler.
"""

# Used elsewhere, through `__getattr__`.
# pyright: reportUnusedImport=false

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc.driver.auto import automatic
    from dlc.driver.bench import Timing, measure
    from dlc.driver.calls import Request, call, load_model
    from dlc.driver.check import Checked, check_model, format_path
    from dlc.driver.curve import write_curve
    from dlc.driver.doctor import Finding, examine
    from dlc.driver.gradcheck import GradientRow, Gradients, check_gradients
    from dlc.driver.importing import Imported, import_model
    from dlc.driver.inspect import Inspection, inspect_file
    from dlc.driver.instances import PlacedInstance, place_instance
    from dlc.driver.make import (
        CompileRequest,
        CompileResult,
        evaluate_model,
        make_artifact,
        make_model,
        run_model,
    )
    from dlc.driver.memory.asked import Asked, ModelMemory, memory_of
    from dlc.driver.memory.compare import comparison_data, comparison_text
    from dlc.driver.memory.files import write_memory
    from dlc.driver.memory.largest import fits_data, fits_text, largest_fits
    from dlc.driver.memory.report import memory_data, memory_text
    from dlc.driver.new import new_model
    from dlc.driver.opt import optimise_file
    from dlc.driver.outputs import (
        Ranking,
        as_data,
        as_text,
        ranking_text,
        read_labels,
        save_results,
        top_labels,
        write_text,
    )
    from dlc.driver.reference import Entry, documentation, list_entries
    from dlc.driver.results import Results, named_values
    from dlc.driver.settings import Settings
    from dlc.driver.show import Shown, show_stage
    from dlc.driver.train import check_last_step, make_trained, plan_training
    from dlc.driver.watch import Watch
    from dlc.driver.why import Decided, decisions_data, decisions_of, decisions_text

_NAMES = {
    "dlc.driver.auto": ("automatic",),
    "dlc.driver.bench": ("Timing", "measure"),
    "dlc.driver.calls": ("Request", "call", "load_model"),
    "dlc.driver.check": ("Checked", "check_model", "format_path"),
    "dlc.driver.curve": ("write_curve",),
    "dlc.driver.doctor": ("Finding", "examine"),
    "dlc.driver.gradcheck": ("GradientRow", "Gradients", "check_gradients"),
    "dlc.driver.importing": ("Imported", "import_model"),
    "dlc.driver.inspect": ("Inspection", "inspect_file"),
    "dlc.driver.instances": ("PlacedInstance", "place_instance"),
    "dlc.driver.make": (
        "CompileResult",
        "CompileRequest",
        "evaluate_model",
        "make_artifact",
        "make_model",
        "run_model",
    ),
    "dlc.driver.memory.asked": ("Asked", "ModelMemory", "memory_of"),
    "dlc.driver.memory.compare": ("comparison_data", "comparison_text"),
    "dlc.driver.memory.files": ("write_memory",),
    "dlc.driver.memory.largest": ("fits_data", "fits_text", "largest_fits"),
    "dlc.driver.memory.report": ("memory_data", "memory_text"),
    "dlc.driver.new": ("new_model",),
    "dlc.driver.opt": ("optimise_file",),
    "dlc.driver.outputs": (
        "Ranking",
        "as_data",
        "as_text",
        "ranking_text",
        "read_labels",
        "save_results",
        "top_labels",
        "write_text",
    ),
    "dlc.driver.reference": ("Entry", "documentation", "list_entries"),
    "dlc.driver.results": ("Results", "named_values"),
    "dlc.driver.settings": ("Settings",),
    "dlc.driver.show": ("Shown", "show_stage"),
    "dlc.driver.train": ("check_last_step", "make_trained", "plan_training"),
    "dlc.driver.watch": ("Watch",),
    "dlc.driver.why": ("Decided", "decisions_data", "decisions_of", "decisions_text"),
}
"""The names of each module: what is imported above, where only a checker reads it."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # a checker knows the names, and that there are no others

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'dlc.driver' has no attribute {name!r}")
        value: object = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
