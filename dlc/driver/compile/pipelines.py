"""Pipelines: the passes that lead from level to level, as rows with the reasons for their order.

A row names the pass with its options, the lowest `-O` level at which it runs, and what it runs for. The
reasons are checked for every pipeline when this module is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from dlc.ir.passes import Order, Pass, check_order
from dlc.lowering.cpu.kernel_to_loop import lower_to_loops
from dlc.lowering.gpu.horizontal_fusion import bundle_calls
from dlc.lowering.gpu.kernel_to_simt import lower_to_simt
from dlc.lowering.graph_to_kernel.attention_gradient import fuse_attention_gradients
from dlc.lowering.graph_to_kernel.decompose import decompose
from dlc.lowering.graph_to_kernel.lower import lower_to_kernels
from dlc.lowering.kernel_code.alignment import ACCESS
from dlc.lowering.kernel_to_both import lower_to_both
from dlc.passes.graph.algebra import algebra
from dlc.passes.graph.autodiff import autodiff
from dlc.passes.graph.canonicalize import canonicalize
from dlc.passes.graph.cse import cse
from dlc.passes.graph.dce import dce
from dlc.passes.graph.device_placement import place
from dlc.passes.graph.fold_scales import fold_scales
from dlc.passes.graph.fold_weights import fold_weights
from dlc.passes.graph.layout import layout
from dlc.passes.graph.sink_weight_gradients import defer_sums
from dlc.passes.kernel.collapse import collapse
from dlc.passes.kernel.elide_narrowing import keep_wide
from dlc.passes.kernel.fold_operands import as_stored, keep_blanks, take_operands
from dlc.passes.kernel.fuse import fuse
from dlc.passes.kernel.hoist import hoist
from dlc.passes.kernel.materialize_padding import add_borders
from dlc.passes.kernel.multi_output_fusion import merge_maps, scalars_first
from dlc.passes.kernel.pack import pack
from dlc.passes.kernel.prepare import make_prepare
from dlc.passes.kernel.split_k import split_products
from dlc.passes.kernel.two_stage_reduction import split_folds
from dlc.planning.kernel_to_plan import plan_memory
from dlc.planning.memory_passes.cluster_updates import gather_updates
from dlc.planning.memory_passes.concat_elimination import join_pieces
from dlc.planning.memory_passes.fuse_updates import join_updates
from dlc.planning.memory_passes.recompute import recompute
from dlc.planning.memory_passes.release import release
from dlc.planning.memory_passes.reorder import reorder
from dlc.planning.memory_passes.slice_forwarding import see_parts


class Device(Flag):
    """What a model is compiled for: a processor, a GPU, or both, each for a part of it."""

    CPU = auto()
    CUDA = auto()
    HETERO = auto()
    ALL = CPU | CUDA | HETERO


@dataclass(frozen=True, slots=True)
class Step:
    """A row of a pipeline: a pass, the lowest `-O` level at which it runs, and for which devices."""

    run: Pass[...]
    level: int = 0
    on: Device = Device.ALL


SIMPLIFY = (
    Step(canonicalize, level=1),
    Step(algebra, level=2),
    Step(layout, level=2),
    Step(fold_scales, level=2),
    Step(canonicalize, level=2),
    Step(cse, level=1),
    Step(algebra, level=2),
    Step(defer_sums, level=2),
    Step(canonicalize, level=2),
    Step(fold_weights, level=2),
    Step(dce, level=1),
)
"""A simpler graph; at -O1 only what changes no bit but the sign of zero."""

FUSE = (
    Step(fuse, level=1),
    Step(dce, level=1),
    Step(collapse, level=1),
    Step(canonicalize, level=1),
    Step(cse, level=1),
    Step(fuse, level=1),
    Step(canonicalize, level=1),
    Step(keep_wide, level=1),
    Step(dce, level=1),
)
"""Larger kernels."""

PIPELINE = {
    "graph": (
        Step(place),
        Step(autodiff),
        Step(place),
        *SIMPLIFY,
    ),
    "kernel": (
        Step(fuse_attention_gradients, level=2, on=Device.CUDA),
        Step(fuse_attention_gradients.using(gpu_only=True), level=2, on=Device.HETERO),
        Step(decompose),
        *SIMPLIFY,
        Step(lower_to_kernels),
        Step(take_operands, level=2, on=Device.CUDA),
        Step(take_operands.using(gpu_only=True), level=2, on=Device.HETERO),
        Step(as_stored, level=2, on=Device.CPU | Device.HETERO),
        # Pictures of convolutions get zeros around them; writing these is one more kernel.
        Step(add_borders, on=Device.CPU | Device.HETERO),
        Step(lower_to_kernels, on=Device.CPU | Device.HETERO),
        *FUSE,
        # What is computed when weights are loaded; for processors, packing finds most of it.
        Step(pack, on=Device.CPU | Device.HETERO),
        Step(make_prepare),
        Step(lower_to_kernels),
        *FUSE,
        Step(keep_blanks, level=2, on=Device.CUDA),
        Step(keep_blanks.using(gpu_only=True), level=2, on=Device.HETERO),
        Step(split_folds, level=2, on=Device.CUDA),
        Step(split_folds.using(gpu_only=True), level=2, on=Device.HETERO),
        Step(split_products, level=2, on=Device.CUDA),
        Step(split_products.using(gpu_only=True), level=2, on=Device.HETERO),
        Step(hoist, level=1),
        Step(dce, level=1),
        Step(join_updates, level=1, on=Device.CPU),
        Step(scalars_first, level=2, on=Device.CUDA | Device.HETERO),
        Step(release, level=1),
        Step(recompute, level=1),
        Step(dce, level=1),
        Step(merge_maps, level=2, on=Device.CUDA),
        Step(merge_maps.using(gpu_only=True), level=2, on=Device.HETERO),
        Step(reorder, level=1),
        # Beside a processor, updates wait for copies and not for launches: they stay where they are.
        Step(gather_updates, level=2, on=Device.CUDA),
        Step(see_parts, level=1, on=Device.CPU),
        Step(see_parts.using(unit=ACCESS), level=1, on=Device.CUDA | Device.HETERO),
        Step(join_pieces, level=1, on=Device.CPU),
        Step(join_pieces.using(unit=ACCESS), level=1, on=Device.CUDA | Device.HETERO),
        Step(place),
    ),
    "plan": (Step(plan_memory),),
    "loop": (
        Step(lower_to_loops, on=Device.CPU),
        Step(lower_to_simt, on=Device.CUDA),
        Step(lower_to_both, on=Device.HETERO),
        Step(bundle_calls, level=2, on=Device.CUDA),
    ),
}
"""By level of the IR, highest first, the passes that lead to it from the one before."""

STAGES = tuple(PIPELINE)
"""The levels of IR, highest first."""

REASONS = (
    Order(place, autodiff, "autodiff turns a transfer into one the other way"),
    Order(
        autodiff,
        place,
        "derivatives combine values of several devices, and place cuts these edges, too",
    ),
    Order(place, plan_memory, "plan_memory gives each device an arena of its own"),
    Order(
        fuse_attention_gradients, decompose, "decompose would remove the ops that this pass matches"
    ),
    Order(autodiff, decompose, "decompose would remove the ops whose derivatives autodiff knows"),
    Order(canonicalize, algebra, "algebra matches constants as right operands only"),
    Order(cse, fuse, "cse cannot see equal producers inside different kernels"),
    Order(collapse, fuse, "fuse matches kernels whose domains are equal"),
    Order(decompose, lower_to_kernels, "lower_to_kernels has kernels for primitives only"),
    Order(fuse, keep_wide, "keep_wide matches values that never leave their kernel"),
    Order(fuse, pack, "pack matches operands that one formula computes from a weight"),
    Order(cse, recompute, "cse would merge the clones with their originals"),
    Order(fuse, recompute, "fuse could round a clone in another way than its original"),
    Order(fuse, join_updates, "fuse matches kernels of one result only"),
    Order(pack, join_updates, "pack decides which products can have an update as their epilogue"),
    Order(
        join_updates, release, "release schedules a joined update when its last operand is there"
    ),
    Order(hoist, recompute, "recompute counts a hoisted value as live during the whole loop"),
    Order(release, recompute, "recompute needs no clone of a value that release frees early"),
    Order(recompute, reorder, "reorder schedules the clones, too"),
    Order(reorder, plan_memory, "plan_memory keeps the order of the ops"),
    Order(reorder, gather_updates, "reorder would schedule the updates as early as it can"),
    Order(gather_updates, plan_memory, "plan_memory makes a wave of kernels that are neighbours"),
    Order(lower_to_simt, bundle_calls, "bundle_calls matches the calls that lower_to_simt makes"),
    Order(
        reorder, join_pieces, "join_pieces compares live ranges, which follow from the last order"
    ),
    Order(reorder, see_parts, "see_parts compares live ranges, which follow from the last order"),
    Order(
        see_parts, join_pieces, "join_pieces moves a piece together with the views of its slices"
    ),
    Order(join_pieces, plan_memory, "plan_memory gives pieces and their whole one allocation"),
    Order(recompute, plan_memory, "plan_memory reuses the memory that recompute frees"),
    Order(lower_to_kernels, take_operands, "take_operands matches products as kernels"),
    Order(lower_to_kernels, as_stored, "as_stored matches products as kernels"),
    Order(
        as_stored, fuse, "fuse can append the producer of an operand once no transpose follows it"
    ),
    Order(as_stored, pack, "pack can make panels of the array that was transposed"),
    Order(lower_to_kernels, add_borders, "add_borders matches convolutions as kernels"),
    Order(add_borders, fuse, "fuse lets the producer of a picture write it with its padding"),
    Order(add_borders, pack, "pack generates convolutions for pictures that have their padding"),
    Order(
        take_operands,
        fuse,
        "fuse can append the producer of an operand once no transpose follows it",
    ),
    Order(pack, hoist, "most kernels that hoist moves out of a loop pack weights"),
    Order(pack, make_prepare, "make_prepare collects the derived weights that pack makes"),
    Order(
        make_prepare, plan_memory, "plan_memory also plans the function that make_prepare writes"
    ),
    Order(fuse, split_folds, "fuse would merge the two stages of a reduction"),
    Order(fuse, merge_maps, "fuse matches kernels of one result only"),
    Order(scalars_first, release, "release schedules an update behind the scalars that it reads"),
    Order(recompute, merge_maps, "recompute clones kernels of one result only"),
    Order(merge_maps, plan_memory, "plan_memory gives the results of kernels their memory"),
    Order(merge_maps, reorder, "reorder schedules a merged kernel as one"),
    Order(split_folds, plan_memory, "plan_memory gives partial results their memory"),
    Order(fuse, split_products, "split_products moves whole epilogues into the second stage"),
    Order(
        fuse,
        keep_blanks,
        "lower_to_kernels would make a kernel of constants whose elements are equal",
    ),
    Order(split_products, plan_memory, "plan_memory gives partial sums their memory"),
    Order(lower_to_kernels, fuse, "fuse matches kernels only"),
    Order(lower_to_kernels, plan_memory, "plan_memory gives results of kernels their memory"),
    Order(fuse, plan_memory, "plan_memory need not hold a value that fuse removes"),
    Order(plan_memory, lower_to_loops, "lower_to_loops must know where arrays are in memory"),
    Order(plan_memory, lower_to_simt, "lower_to_simt must know where arrays are in memory"),
    Order(
        plan_memory,
        lower_to_both,
        "lower_to_both lowers a kernel for the device that its arrays are on",
    ),
)


def pipeline(
    first: str, last: str, level: int, device: Device = Device.CPU
) -> tuple[Pass[...], ...]:
    """The passes from a stage (those of the stage itself included) to a later one.

    What is given at graph level may come from anywhere, so the graph passes run on it.
    """
    stages = STAGES[STAGES.index(first) : STAGES.index(last) + 1]
    return tuple(
        step.run
        for stage in (stages if first == "graph" else stages[1:])
        for step in PIPELINE[stage]
        if step.level <= level and device in step.on
    )


for _level in range(4):
    for _device in (Device.CPU, Device.CUDA, Device.HETERO):
        check_order(pipeline("graph", "loop", _level, _device), REASONS)
