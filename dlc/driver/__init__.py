"""The work behind each verb: from a model to an artifact, a result or a report.

Each name is imported on first use, so that a command loads only the modules that it needs: running an
artifact loads nothing of the compiler.
"""

# Used elsewhere, through `__getattr__`.
# pyright: reportUnusedImport=false

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from dlc.driver.compile.checks.own_kernels import read_kernels
    from dlc.driver.compile.cost_table import cost_table
    from dlc.driver.compile.op_counts import OpCounts
    from dlc.driver.compile.run_passes import optimise_file
    from dlc.driver.compile.settings import Settings
    from dlc.driver.diff.against import Comparison, compare_with, with_file
    from dlc.driver.diff.reduce_file import Reduced, reduce_file
    from dlc.driver.diff.report import (
        Departed,
        compare_levels,
        data_of_departed,
        text_of_departed,
    )
    from dlc.driver.editor.server import make_server
    from dlc.driver.gradcheck.check import GradientRow, Gradients, check_gradients
    from dlc.driver.memory.asked import MemoryRequest, ModelMemory, memory_of
    from dlc.driver.memory.compare import comparison_data, comparison_text
    from dlc.driver.memory.files import write_memory
    from dlc.driver.memory.largest import fits_data, fits_text, largest_fits
    from dlc.driver.memory.report import memory_data, memory_text
    from dlc.driver.profile.compare import profile_comparison_data, profile_comparison_text
    from dlc.driver.profile.data import profile_data, read_profile
    from dlc.driver.profile.events import trace_text
    from dlc.driver.profile.flame import flame_svg
    from dlc.driver.profile.measured import ProfileRequest, profile_model
    from dlc.driver.reference import Entry, documentation, list_entries
    from dlc.driver.report.bench import Timing, measure
    from dlc.driver.report.cached import (
        CacheEntry,
        cache_text,
        entries_text,
        entry_of,
        list_cache,
        prune_cache,
    )
    from dlc.driver.report.check import Checked, check_model
    from dlc.driver.report.doctor import Finding, examine
    from dlc.driver.report.format import format_path
    from dlc.driver.report.inspect import Inspection, inspect_file
    from dlc.driver.report.instances import PlacedInstance, place_instance
    from dlc.driver.report.loss_curve import write_curve
    from dlc.driver.report.page.page import write_page
    from dlc.driver.report.questions.registry import (
        Asked,
        Question,
        answer_question,
        check_is_no_question,
        question_of,
    )
    from dlc.driver.report.show import Shown, show_stage
    from dlc.driver.report.stubs import stubs
    from dlc.driver.report.why import Decided, decisions_data, decisions_of, decisions_text
    from dlc.driver.run.auto_device import automatic
    from dlc.driver.run.calls import CallRequest, call, load_model, random_indices_told
    from dlc.driver.run.inner_values import run_watched
    from dlc.driver.run.outputs import (
        Ranking,
        as_data,
        as_text,
        ranking_text,
        read_labels,
        save_results,
        save_values,
        seen_text,
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
    from dlc.driver.run.seen import Seen
    from dlc.driver.run.statistics import probe_data, probe_text
    from dlc.driver.run.train import check_last_step, make_trained, plan_training
    from dlc.driver.run.watch import Watch, beside
    from dlc.driver.scale.predict import Scaling, predict_scaling
    from dlc.driver.scale.programs import ScaleRequest
    from dlc.driver.scale.report import scaling_data, scaling_text
    from dlc.driver.source.importing import Imported, import_model
    from dlc.driver.source.new import new_model
    from dlc.driver.tune.tune import tune_costs


if not TYPE_CHECKING:  # a checker knows the names, and that there are no others

    def __getattr__(name: str) -> object:
        home = _home(name)
        if home is None:
            raise AttributeError(f"module 'dlc.driver' has no attribute {name!r}")
        value: object = getattr(home, name)
        globals()[name] = value
        return value


def _home(name: str) -> ModuleType | None:
    """The module that defines a name of this package; None for other names."""
    match name:
        case "cost_table":
            import dlc.driver.compile.cost_table as home
        case "OpCounts":
            import dlc.driver.compile.op_counts as home
        case "read_kernels":
            import dlc.driver.compile.checks.own_kernels as home
        case "optimise_file":
            import dlc.driver.compile.run_passes as home
        case "Settings":
            import dlc.driver.compile.settings as home
        case "Comparison" | "compare_with" | "with_file":
            import dlc.driver.diff.against as home
        case "Departed" | "compare_levels" | "data_of_departed" | "text_of_departed":
            import dlc.driver.diff.report as home
        case "Reduced" | "reduce_file":
            import dlc.driver.diff.reduce_file as home
        case "make_server":
            import dlc.driver.editor.server as home
        case "GradientRow" | "Gradients" | "check_gradients":
            import dlc.driver.gradcheck.check as home
        case "MemoryRequest" | "ModelMemory" | "memory_of":
            import dlc.driver.memory.asked as home
        case "comparison_data" | "comparison_text":
            import dlc.driver.memory.compare as home
        case "write_memory":
            import dlc.driver.memory.files as home
        case "fits_data" | "fits_text" | "largest_fits":
            import dlc.driver.memory.largest as home
        case "memory_data" | "memory_text":
            import dlc.driver.memory.report as home
        case "profile_comparison_data" | "profile_comparison_text":
            import dlc.driver.profile.compare as home
        case "profile_data" | "read_profile":
            import dlc.driver.profile.data as home
        case "trace_text":
            import dlc.driver.profile.events as home
        case "flame_svg":
            import dlc.driver.profile.flame as home
        case "ProfileRequest" | "profile_model":
            import dlc.driver.profile.measured as home
        case "Entry" | "documentation" | "list_entries":
            import dlc.driver.reference as home
        case "Timing" | "measure":
            import dlc.driver.report.bench as home
        case (
            "CacheEntry" | "cache_text" | "entries_text" | "entry_of" | "list_cache" | "prune_cache"
        ):
            import dlc.driver.report.cached as home
        case "Checked" | "check_model":
            import dlc.driver.report.check as home
        case "Finding" | "examine":
            import dlc.driver.report.doctor as home
        case "format_path":
            import dlc.driver.report.format as home
        case "Inspection" | "inspect_file":
            import dlc.driver.report.inspect as home
        case "PlacedInstance" | "place_instance":
            import dlc.driver.report.instances as home
        case "write_curve":
            import dlc.driver.report.loss_curve as home
        case "Asked" | "Question" | "answer_question" | "check_is_no_question" | "question_of":
            import dlc.driver.report.questions.registry as home
        case "write_page":
            import dlc.driver.report.page.page as home
        case "Shown" | "show_stage":
            import dlc.driver.report.show as home
        case "stubs":
            import dlc.driver.report.stubs as home
        case "Decided" | "decisions_data" | "decisions_of" | "decisions_text":
            import dlc.driver.report.why as home
        case "automatic":
            import dlc.driver.run.auto_device as home
        case "CallRequest" | "call" | "load_model" | "random_indices_told":
            import dlc.driver.run.calls as home
        case (
            "Ranking"
            | "as_data"
            | "as_text"
            | "ranking_text"
            | "read_labels"
            | "save_results"
            | "save_values"
            | "seen_text"
            | "top_labels"
            | "write_text"
        ):
            import dlc.driver.run.outputs as home
        case (
            "CompileRequest"
            | "CompileResult"
            | "evaluate_model"
            | "make_artifact"
            | "make_model"
            | "run_model"
        ):
            import dlc.driver.run.request as home
        case "Results" | "named_values":
            import dlc.driver.run.results as home
        case "probe_data" | "probe_text":
            import dlc.driver.run.statistics as home
        case "check_last_step" | "make_trained" | "plan_training":
            import dlc.driver.run.train as home
        case "run_watched":
            import dlc.driver.run.inner_values as home
        case "Seen":
            import dlc.driver.run.seen as home
        case "Watch" | "beside":
            import dlc.driver.run.watch as home
        case "Scaling" | "predict_scaling":
            import dlc.driver.scale.predict as home
        case "ScaleRequest":
            import dlc.driver.scale.programs as home
        case "scaling_data" | "scaling_text":
            import dlc.driver.scale.report as home
        case "Imported" | "import_model":
            import dlc.driver.source.importing as home
        case "new_model":
            import dlc.driver.source.new as home
        case "tune_costs":
            import dlc.driver.tune.tune as home
        case _:
            return None
    return home
