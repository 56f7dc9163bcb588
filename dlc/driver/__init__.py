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
    from dlc.driver.compile.run_passes import optimise_file
    from dlc.driver.compile.settings import Settings
    from dlc.driver.gradcheck.check import GradientRow, Gradients, check_gradients
    from dlc.driver.memory.asked import MemoryRequest, ModelMemory, memory_of
    from dlc.driver.memory.compare import comparison_data, comparison_text
    from dlc.driver.memory.files import write_memory
    from dlc.driver.memory.largest import fits_data, fits_text, largest_fits
    from dlc.driver.memory.report import memory_data, memory_text
    from dlc.driver.reference import Entry, documentation, list_entries
    from dlc.driver.report.bench import Timing, measure
    from dlc.driver.report.check import Checked, check_model
    from dlc.driver.report.doctor import Finding, examine
    from dlc.driver.report.format import format_path
    from dlc.driver.report.inspect import Inspection, inspect_file
    from dlc.driver.report.instances import PlacedInstance, place_instance
    from dlc.driver.report.loss_curve import write_curve
    from dlc.driver.report.show import Shown, show_stage
    from dlc.driver.report.why import Decided, decisions_data, decisions_of, decisions_text
    from dlc.driver.run.auto_device import automatic
    from dlc.driver.run.calls import CallRequest, call, load_model
    from dlc.driver.run.outputs import (
        Ranking,
        as_data,
        as_text,
        ranking_text,
        read_labels,
        save_results,
        top_labels,
        write_text,
    )
    from dlc.driver.run.request import (
        CompileRequest,
        CompileResult,
        evaluate_model,
        make_artifact,
        make_model,
        run_model,
    )
    from dlc.driver.run.results import Results, named_values
    from dlc.driver.run.train import check_last_step, make_trained, plan_training
    from dlc.driver.run.watch import Watch
    from dlc.driver.source.importing import Imported, import_model
    from dlc.driver.source.new import new_model

_NAMES = {
    "dlc.driver.run.auto_device": ("automatic",),
    "dlc.driver.report.bench": ("Timing", "measure"),
    "dlc.driver.run.calls": ("CallRequest", "call", "load_model"),
    "dlc.driver.report.check": ("Checked", "check_model"),
    "dlc.driver.report.format": ("format_path",),
    "dlc.driver.report.loss_curve": ("write_curve",),
    "dlc.driver.report.doctor": ("Finding", "examine"),
    "dlc.driver.gradcheck.check": ("GradientRow", "Gradients", "check_gradients"),
    "dlc.driver.source.importing": ("Imported", "import_model"),
    "dlc.driver.report.inspect": ("Inspection", "inspect_file"),
    "dlc.driver.report.instances": ("PlacedInstance", "place_instance"),
    "dlc.driver.run.request": (
        "CompileRequest",
        "CompileResult",
        "evaluate_model",
        "make_artifact",
        "make_model",
        "run_model",
    ),
    "dlc.driver.memory.asked": ("MemoryRequest", "ModelMemory", "memory_of"),
    "dlc.driver.memory.compare": ("comparison_data", "comparison_text"),
    "dlc.driver.memory.files": ("write_memory",),
    "dlc.driver.memory.largest": ("fits_data", "fits_text", "largest_fits"),
    "dlc.driver.memory.report": ("memory_data", "memory_text"),
    "dlc.driver.source.new": ("new_model",),
    "dlc.driver.compile.run_passes": ("optimise_file",),
    "dlc.driver.run.outputs": (
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
    "dlc.driver.run.results": ("Results", "named_values"),
    "dlc.driver.compile.settings": ("Settings",),
    "dlc.driver.report.show": ("Shown", "show_stage"),
    "dlc.driver.run.train": ("check_last_step", "make_trained", "plan_training"),
    "dlc.driver.run.watch": ("Watch",),
    "dlc.driver.report.why": ("Decided", "decisions_data", "decisions_of", "decisions_text"),
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
