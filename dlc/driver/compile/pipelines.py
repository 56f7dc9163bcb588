"""Pipelines: the passes that lead from level to level, as rows with the reasons for their order.

A row names the pass with its options, the lowest `-O` level at which it runs, and what it runs for. The
reasons are checked for every pipeline when this module is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from dlc.ir.passes import Order, Pass, check_order
from dlc.lowering.cpu.kernel_to_loop import lower_to_loops
from dlc.lowering.gpu.horizontal_fusion import fuse_horizontally
from dlc.lowering.gpu.kernel_to_simt import lower_to_simt
from dlc.lowering.graph_to_kernel.attention_gradient import fuse_attention_gradients
from dlc.lowering.graph_to_kernel.decompose import decompose, decompose_caches
from dlc.lowering.graph_to_kernel.lower import lower_to_kernels
from dlc.lowering.kernel_to_hetero import lower_to_hetero
from dlc.passes.graph.algebra import algebra
from dlc.passes.graph.autodiff import autodiff
from dlc.passes.graph.canonicalize import canonicalize
from dlc.passes.graph.check_first import check_first
from dlc.passes.graph.cse import cse
from dlc.passes.graph.dce import dce
from dlc.passes.graph.device_placement import place
from dlc.passes.graph.distribute import distribute
from dlc.passes.graph.fold_dequantize import fold_dequantize
from dlc.passes.graph.fold_scales import fold_scales
from dlc.passes.graph.fold_weights import fold_weights
from dlc.passes.graph.layout import layout
from dlc.passes.graph.mixed_precision import mixed_precision
from dlc.passes.graph.pad_windows import pad_windows
from dlc.passes.graph.products_to_float import products_to_float
from dlc.passes.graph.sink_weight_gradients import sink_weight_gradients
from dlc.passes.kernel.collapse import collapse
from dlc.passes.kernel.elide_narrowing import elide_narrowing
from dlc.passes.kernel.fold_bf16 import fold_bf16
from dlc.passes.kernel.fold_integers import fold_integers
from dlc.passes.kernel.fold_operands import constant_padding, fold_operands, fold_transposes
from dlc.passes.kernel.fuse import fuse
from dlc.passes.kernel.hoist import hoist
from dlc.passes.kernel.materialize_padding import materialize_padding
from dlc.passes.kernel.multi_output_fusion import fuse_outputs, scalars_first
from dlc.passes.kernel.pack import pack
from dlc.passes.kernel.prepare import make_prepare
from dlc.passes.kernel.split_k import split_k
from dlc.passes.kernel.two_stage_reduction import split_reductions
from dlc.passes.kernel.winograd_gradient import winograd_gradient
from dlc.passes.sharding.bucket import bucket
from dlc.passes.sharding.partition import partition
from dlc.planning.kernel_to_plan import plan_memory
from dlc.planning.memory_passes.cluster_updates import cluster_updates
from dlc.planning.memory_passes.concat_elimination import eliminate_concats
from dlc.planning.memory_passes.fuse_updates import fuse_updates
from dlc.planning.memory_passes.overlap import overlap
from dlc.planning.memory_passes.recompute import recompute
from dlc.planning.memory_passes.release import release
from dlc.planning.memory_passes.reorder import reorder
from dlc.planning.memory_passes.row_bands import row_bands
from dlc.planning.memory_passes.slice_forwarding import forward_slices
from dlc.target.gpu import ACCESS


class Device(Flag):
    """The devices that a model is compiled for: a CPU, a GPU, or both, each for a part of it."""

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
    Step(sink_weight_gradients, level=2),
    Step(canonicalize, level=2),
    Step(distribute.using(products_widen=True), level=2, on=Device.CPU),
    Step(fold_weights.using(products_widen=True), level=2, on=Device.CPU),
    Step(distribute, level=2, on=Device.CUDA | Device.HETERO),
    Step(fold_weights, level=2, on=Device.CUDA | Device.HETERO),
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
    Step(elide_narrowing, level=1),
    Step(dce, level=1),
)
"""Larger kernels."""

PIPELINE = {
    "graph": (
        Step(place),
        Step(mixed_precision),
        Step(autodiff),
        Step(place),
        Step(partition),
        Step(fold_dequantize, level=2, on=Device.CPU),
        # On GPUs products of integers are kernels of their formula.
        Step(products_to_float, level=1, on=Device.CPU),
        *SIMPLIFY,
        Step(bucket, level=1),
    ),
    "kernel": (
        Step(fuse_attention_gradients, level=2, on=Device.CUDA),
        Step(fuse_attention_gradients.using(gpu_only=True), level=2, on=Device.HETERO),
        Step(decompose_caches, on=Device.CUDA | Device.HETERO),
        Step(decompose),
        *SIMPLIFY,
        # A GPU goes on to the end of a call that has failed.
        Step(check_first, on=Device.CPU),
        Step(winograd_gradient, on=Device.CPU | Device.HETERO),
        # Transposes of the pictures cancel those of the derivative.
        Step(canonicalize, level=2, on=Device.CPU | Device.HETERO),
        Step(pad_windows, level=1, on=Device.CPU),
        Step(lower_to_kernels),
        Step(fold_operands, level=2, on=Device.CUDA),
        Step(fold_operands.using(gpu_only=True), level=2, on=Device.HETERO),
        Step(fold_transposes, level=2, on=Device.CPU | Device.HETERO),
        Step(fold_integers, level=2, on=Device.CPU),
        Step(fold_bf16, level=2, on=Device.CPU | Device.HETERO),
        # Pictures of convolutions get zeros around them; writing these is one more kernel.
        Step(materialize_padding, on=Device.CPU | Device.HETERO),
        Step(lower_to_kernels, on=Device.CPU | Device.HETERO),
        *FUSE,
        # What is computed when weights are loaded; for processors, packing finds most of it.
        Step(pack, on=Device.CPU | Device.HETERO),
        Step(distribute, level=2, on=Device.CPU | Device.HETERO),
        Step(fold_weights, level=2, on=Device.CPU | Device.HETERO),
        Step(make_prepare),
        Step(lower_to_kernels),
        *FUSE,
        Step(constant_padding, level=1),
        Step(split_reductions, level=2, on=Device.CUDA),
        Step(split_reductions.using(gpu_only=True), level=2, on=Device.HETERO),
        Step(split_k, level=2, on=Device.CUDA),
        Step(split_k.using(gpu_only=True), level=2, on=Device.HETERO),
        Step(hoist, level=1),
        Step(dce, level=1),
        Step(fuse_updates, level=1, on=Device.CPU),
        Step(scalars_first, level=2, on=Device.CUDA | Device.HETERO),
        Step(release, level=1),
        Step(recompute, level=1),
        Step(dce, level=1),
        Step(fuse_outputs, level=2, on=Device.CUDA),
        Step(fuse_outputs.using(gpu_only=True), level=2, on=Device.HETERO),
        Step(reorder, level=1),
        # Beside a processor, updates wait for copies and not for launches: they stay where they are.
        Step(cluster_updates, level=2, on=Device.CUDA),
        Step(forward_slices, level=1, on=Device.CPU),
        Step(forward_slices.using(unit=ACCESS), level=1, on=Device.CUDA | Device.HETERO),
        Step(eliminate_concats, level=1, on=Device.CPU),
        Step(row_bands, level=1, on=Device.CPU),
        Step(eliminate_concats.using(unit=ACCESS), level=1, on=Device.CUDA | Device.HETERO),
        Step(overlap, level=1, on=Device.CPU),
        Step(place),
    ),
    "plan": (Step(plan_memory),),
    "loop": (
        Step(lower_to_loops, on=Device.CPU),
        Step(lower_to_simt, on=Device.CUDA),
        Step(lower_to_hetero, on=Device.HETERO),
        Step(fuse_horizontally, level=2, on=Device.CUDA),
    ),
}
"""By level of the IR, highest first, the passes that lead to it from the one before."""

STAGES = tuple(PIPELINE)
"""The levels of IR, highest first."""

REASONS = (
    Order(fold_dequantize, products_to_float, "products_to_float finds fast products of integers"),
    Order(distribute, fold_weights, "fold_weights takes the loops that distribute makes"),
    Order(pack, distribute, "distribute finds the panels of a loop's weights"),
    Order(mixed_precision, autodiff, "autodiff differentiates the conversions, too"),
    Order(place, autodiff, "autodiff turns a transfer into one the other way"),
    Order(
        autodiff,
        place,
        "derivatives combine values of several devices, and place cuts these edges, too",
    ),
    Order(
        products_to_float,
        fold_weights,
        "fold_weights would hide from what integers a weight was computed",
    ),
    Order(autodiff, partition, "partition places what a derivative computes, too"),
    Order(partition, bucket, "bucket groups the collectives that partition inserts"),
    Order(cse, bucket, "cse would find no equal collectives in buckets"),
    Order(reorder, overlap, "reorder would run what waits for a collective as early as it can"),
    Order(overlap, plan_memory, "plan_memory keeps an array while it is under way"),
    Order(place, plan_memory, "plan_memory gives each device an arena of its own"),
    Order(
        fuse_attention_gradients, decompose, "decompose would remove the ops that this pass matches"
    ),
    Order(decompose_caches, decompose, "decompose finds the attention that this pass makes"),
    Order(autodiff, decompose, "decompose would remove the ops whose derivatives autodiff knows"),
    Order(canonicalize, algebra, "algebra matches constants as right operands only"),
    Order(cse, fuse, "cse cannot see equal producers inside different kernels"),
    Order(collapse, fuse, "fuse matches kernels whose domains are equal"),
    Order(layout, winograd_gradient, "winograd_gradient matches pictures with channels last"),
    Order(
        winograd_gradient, lower_to_kernels, "lower_to_kernels would make a product of the gradient"
    ),
    Order(decompose, lower_to_kernels, "lower_to_kernels has kernels for primitives only"),
    Order(
        decompose, check_first, "decompose writes the gathers and loops whose indices are checked"
    ),
    Order(pad_windows, lower_to_kernels, "lower_to_kernels makes formulas of windows"),
    Order(check_first, lower_to_kernels, "lower_to_kernels would hide which index a kernel checks"),
    Order(
        check_first, plan_memory, "plan_memory puts the checks before the function that they are of"
    ),
    Order(fuse, elide_narrowing, "elide_narrowing matches values that never leave their kernel"),
    Order(fuse, pack, "pack matches operands that one formula computes from a weight"),
    Order(cse, recompute, "cse would merge the clones with their originals"),
    Order(fuse, recompute, "fuse could round a clone in another way than its original"),
    Order(fuse, fuse_updates, "fuse matches kernels of one result only"),
    Order(pack, fuse_updates, "pack decides which products can have an update as their epilogue"),
    Order(
        fuse_updates, release, "release schedules a joined update when its last operand is there"
    ),
    Order(hoist, recompute, "recompute counts a hoisted value as live during the whole loop"),
    Order(release, recompute, "recompute needs no clone of a value that release frees early"),
    Order(recompute, reorder, "reorder schedules the clones, too"),
    Order(reorder, plan_memory, "plan_memory keeps the order of the ops"),
    Order(reorder, cluster_updates, "reorder would schedule the updates as early as it can"),
    Order(cluster_updates, plan_memory, "plan_memory makes a wave of kernels that are neighbours"),
    Order(
        lower_to_simt,
        fuse_horizontally,
        "fuse_horizontally matches the calls that lower_to_simt makes",
    ),
    Order(
        reorder,
        eliminate_concats,
        "eliminate_concats compares live ranges, which follow from the last order",
    ),
    Order(
        reorder,
        forward_slices,
        "forward_slices compares live ranges, which follow from the last order",
    ),
    Order(
        forward_slices,
        eliminate_concats,
        "eliminate_concats moves a piece together with the views of its slices",
    ),
    Order(
        eliminate_concats, plan_memory, "plan_memory gives pieces and their whole one allocation"
    ),
    Order(
        eliminate_concats,
        row_bands,
        "eliminate_concats compares live ranges of whole pictures only",
    ),
    Order(row_bands, plan_memory, "plan_memory gives bands and their whole one allocation"),
    Order(recompute, plan_memory, "plan_memory reuses the memory that recompute frees"),
    Order(lower_to_kernels, fold_operands, "fold_operands matches products as kernels"),
    Order(lower_to_kernels, fold_transposes, "fold_transposes matches products as kernels"),
    Order(lower_to_kernels, fold_integers, "fold_integers matches products as kernels"),
    Order(lower_to_kernels, fold_bf16, "fold_bf16 matches products as kernels"),
    Order(fold_bf16, fuse, "fuse would hide that an operand is cast from bf16"),
    Order(fold_bf16, pack, "pack makes panels of the pairs"),
    Order(fold_integers, fuse, "fuse would hide that an operand is cast from integers"),
    Order(fold_integers, pack, "pack makes panels of the integers"),
    Order(
        fold_transposes,
        fuse,
        "fuse can append the producer of an operand once no transpose follows it",
    ),
    Order(fold_transposes, pack, "pack can make panels of the array that was transposed"),
    Order(
        lower_to_kernels, materialize_padding, "materialize_padding matches convolutions as kernels"
    ),
    Order(
        materialize_padding, fuse, "fuse lets the producer of a picture write it with its padding"
    ),
    Order(
        materialize_padding,
        pack,
        "pack generates convolutions for pictures that have their padding",
    ),
    Order(
        fold_operands,
        fuse,
        "fuse can append the producer of an operand once no transpose follows it",
    ),
    Order(pack, hoist, "most kernels that hoist moves out of a loop pack weights"),
    Order(pack, make_prepare, "make_prepare collects the derived weights that pack makes"),
    Order(
        make_prepare, plan_memory, "plan_memory also plans the function that make_prepare writes"
    ),
    Order(fuse, split_reductions, "fuse would merge the two stages of a reduction"),
    Order(fuse, fuse_outputs, "fuse matches kernels of one result only"),
    Order(scalars_first, release, "release schedules an update behind the scalars that it reads"),
    Order(recompute, fuse_outputs, "recompute clones kernels of one result only"),
    Order(fuse_outputs, plan_memory, "plan_memory gives the results of kernels their memory"),
    Order(fuse_outputs, reorder, "reorder schedules a merged kernel as one"),
    Order(split_reductions, plan_memory, "plan_memory gives partial results their memory"),
    Order(fuse, split_k, "split_k moves whole epilogues into the second stage"),
    Order(
        fuse,
        constant_padding,
        "lower_to_kernels would make a kernel of constants whose elements are equal",
    ),
    Order(split_k, plan_memory, "plan_memory gives partial sums their memory"),
    Order(lower_to_kernels, fuse, "fuse matches kernels only"),
    Order(lower_to_kernels, plan_memory, "plan_memory gives results of kernels their memory"),
    Order(fuse, plan_memory, "plan_memory need not hold a value that fuse removes"),
    Order(plan_memory, lower_to_loops, "lower_to_loops must know where arrays are in memory"),
    Order(plan_memory, lower_to_simt, "lower_to_simt must know where arrays are in memory"),
    Order(
        plan_memory,
        lower_to_hetero,
        "lower_to_hetero lowers a kernel for the device that its arrays are on",
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
