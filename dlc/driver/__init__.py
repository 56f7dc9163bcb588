"""The work behind each verb: from a model to an artifact, a result or a report.

Each name is imported on first use, so that a command loads only the modules that it needs: running an
artifact loads nothing of the compiler.
"""

# Used elsewhere, through `__getattr__`.
# pyright: reportUnusedImport=false

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dlc.first_use import imported

if TYPE_CHECKING:
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

else:  # a checker knows the names, and that there are no others

    def __getattr__(name: str) -> object:
        value = globals()[name] = imported(sys.modules[__name__], name)
        return value
