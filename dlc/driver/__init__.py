"""The whole way from a model to an artifact or a result, and every stop between them.

Each name loads on first use, so that a command pays only for what it does: running an artifact loads
nothing of the compiler.
"""

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

__all__ = [
    "Asked",
    "Checked",
    "CompileRequest",
    "CompileResult",
    "Decided",
    "Entry",
    "Finding",
    "GradientRow",
    "Gradients",
    "Imported",
    "Inspection",
    "ModelMemory",
    "PlacedInstance",
    "Ranking",
    "Request",
    "Results",
    "Settings",
    "Shown",
    "Timing",
    "Watch",
    "as_data",
    "as_text",
    "automatic",
    "call",
    "check_gradients",
    "check_last_step",
    "check_model",
    "comparison_data",
    "comparison_text",
    "decisions_data",
    "decisions_of",
    "decisions_text",
    "documentation",
    "evaluate_model",
    "examine",
    "fits_data",
    "fits_text",
    "format_path",
    "import_model",
    "inspect_file",
    "largest_fits",
    "list_entries",
    "load_model",
    "make_artifact",
    "make_model",
    "make_trained",
    "measure",
    "memory_data",
    "memory_of",
    "memory_text",
    "named_values",
    "new_model",
    "optimise_file",
    "place_instance",
    "plan_training",
    "ranking_text",
    "read_labels",
    "run_model",
    "save_results",
    "show_stage",
    "top_labels",
    "write_curve",
    "write_memory",
    "write_text",
]

_HOMES = {
    "auto": ("automatic",),
    "bench": ("Timing", "measure"),
    "calls": ("Request", "call", "load_model"),
    "check": ("Checked", "check_model", "format_path"),
    "curve": ("write_curve",),
    "doctor": ("Finding", "examine"),
    "importing": ("Imported", "import_model"),
    "gradcheck": ("GradientRow", "Gradients", "check_gradients"),
    "inspect": ("Inspection", "inspect_file"),
    "instances": ("PlacedInstance", "place_instance"),
    "make": (
        "CompileResult",
        "CompileRequest",
        "evaluate_model",
        "make_artifact",
        "make_model",
        "run_model",
    ),
    "memory.asked": ("Asked", "ModelMemory", "memory_of"),
    "memory.compare": ("comparison_data", "comparison_text"),
    "memory.files": ("write_memory",),
    "memory.largest": ("fits_data", "fits_text", "largest_fits"),
    "memory.report": ("memory_data", "memory_text"),
    "new": ("new_model",),
    "opt": ("optimise_file",),
    "outputs": (
        "Ranking",
        "as_data",
        "as_text",
        "ranking_text",
        "read_labels",
        "save_results",
        "top_labels",
        "write_text",
    ),
    "reference": ("Entry", "documentation", "list_entries"),
    "results": ("Results", "named_values"),
    "settings": ("Settings",),
    "show": ("Shown", "show_stage"),
    "train": ("check_last_step", "make_trained", "plan_training"),
    "watch": ("Watch",),
    "why": ("Decided", "decisions_data", "decisions_of", "decisions_text"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a checker knows the names, and that there are no others

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'dlc.driver' has no attribute {name!r}")
        found: object = getattr(import_module(f"dlc.driver.{_HOME[name]}"), name)
        globals()[name] = found
        return found
