"""The order of passes at each optimisation level, and the reasons for it, which are checked."""

from __future__ import annotations

from dlc.ir.passes import Order, check_order
from dlc.lowering import (
    array_to_kernel,
    bundle_calls,
    decompose,
    fuse_attention_gradients,
    gather_updates,
    join_pieces,
    join_updates,
    kernel_to_both,
    kernel_to_loop,
    kernel_to_plan,
    kernel_to_simt,
    nn_to_kernel,
    order_to_kernel,
    pieces_to_kernel,
    random_to_kernel,
    recompute,
    release,
    reorder,
    see_parts,
    split_folds,
    split_products,
    windows_to_kernel,
)
from dlc.passes import (
    algebra,
    autodiff,
    borders,
    canonicalize,
    collapse,
    cse,
    dce,
    defer_sums,
    devices,
    fold_scales,
    fold_weights,
    fuse,
    hoist,
    keep_wide,
    layout,
    merge_maps,
    operands,
    pack,
    prepare,
)

STAGES = ("graph", "kernel", "plan", "loop")
"""The levels of IR, highest first."""

LOADED = (
    algebra,
    array_to_kernel,
    autodiff,
    borders,
    bundle_calls,
    canonicalize,
    collapse,
    cse,
    dce,
    decompose,
    defer_sums,
    devices,
    fold_scales,
    fold_weights,
    fuse,
    fuse_attention_gradients,
    gather_updates,
    hoist,
    join_pieces,
    join_updates,
    keep_wide,
    kernel_to_both,
    kernel_to_loop,
    kernel_to_plan,
    kernel_to_simt,
    layout,
    merge_maps,
    nn_to_kernel,
    operands,
    order_to_kernel,
    pack,
    pieces_to_kernel,
    prepare,
    random_to_kernel,
    recompute,
    release,
    reorder,
    see_parts,
    split_folds,
    split_products,
    windows_to_kernel,
)
"""The modules that define the passes and lowerings which the pipelines use."""

GRAPH_EXACT = ("canonicalize", "cse", "dce")
GRAPH = (
    "canonicalize",
    "algebra",
    "layout",
    "fold_scales",
    "canonicalize",
    "cse",
    "algebra",
    "defer_sums",
    "canonicalize",
    "fold_weights",
    "dce",
)
KERNEL = (
    "fuse",
    "dce",
    "collapse",
    "canonicalize",
    "cse",
    "fuse",
    "canonicalize",
    "keep_wide",
    "dce",
)

PREPARE = ("make_prepare", "lower_to_kernels")
"""What is computed when weights are loaded; for CPUs, packing finds most of it."""
BORDERS = ("add_borders", "lower_to_kernels")
"""Pictures of convolutions get zeros around them; writing these is one more kernel."""
OF_A_PART = {
    "fuse_attention_gradients": "fuse_gpu_attention_gradients",
    "take_operands": "take_gpu_operands",
    "keep_blanks": "keep_gpu_blanks",
    "split_folds": "split_gpu_folds",
    "split_products": "split_gpu_products",
    "merge_maps": "merge_gpu_maps",
}
"""The passes for kernels of a GPU, and their forms for models of which it runs a part.

`gather_updates` and `bundle_calls` have none: what waits beside a processor waits for copies, not launches.
"""
IN_UNITS = {"see_parts": "see_parts_in_units", "join_pieces": "join_pieces_in_units"}
"""The passes that let arrays lie in others, and their forms where a GPU reads some of these."""
FUNCTIONS = {"cpu": "lower_to_loops", "cuda": "lower_to_simt", "both": "lower_to_both"}
"""The pass that makes functions of the kernels, for each kind of device, and for models on both."""

REASONS = (
    Order("place", "autodiff", "the derivative of a transfer is one the other way"),
    Order("autodiff", "place", "derivatives bring values of several devices together"),
    Order("place", "plan_memory", "each device has memory of its own"),
    Order("fuse_attention_gradients", "decompose", "what is decomposed is no kernel of its own"),
    Order("autodiff", "decompose", "derivatives know the rules of whole operations"),
    Order("canonicalize", "algebra", "constants stand to the right only after it"),
    Order("cse", "fuse", "equal producers in different kernels can no longer be seen"),
    Order("collapse", "fuse", "kernels over the same elements must look the same"),
    Order("decompose", "lower_to_kernels", "kernels are known for primitives"),
    Order("fuse", "keep_wide", "only what one kernel computes need not be rounded on the way"),
    Order("fuse", "pack", "the operand of a product may be a formula of a weight"),
    Order("cse", "recompute", "it would merge what is computed again with what was"),
    Order("fuse", "recompute", "within another formula a value may be rounded differently"),
    Order("fuse", "join_updates", "what is fused has one result"),
    Order("pack", "join_updates", "it decides which products can go on with their sums"),
    Order("join_updates", "release", "what is updated together runs when the last part can"),
    Order("hoist", "recompute", "what leaves a loop is held for all of it"),
    Order("release", "recompute", "what is given back earlier need not be computed again"),
    Order("recompute", "reorder", "what is computed again may run elsewhere"),
    Order("reorder", "plan_memory", "the plan keeps the order"),
    Order("reorder", "gather_updates", "it runs updates as soon as they can"),
    Order("gather_updates", "plan_memory", "what stands side by side is a wave"),
    Order("lower_to_simt", "bundle_calls", "calls of functions are known there"),
    Order(
        "reorder", "join_pieces", "which pieces are held for how long is known in the last order"
    ),
    Order("reorder", "see_parts", "how long the whole is held is known in the last order"),
    Order("see_parts", "join_pieces", "a part of a piece is read where the piece lies"),
    Order("join_pieces", "plan_memory", "what is joined shares memory"),
    Order("recompute", "plan_memory", "the plan gives the memory to others"),
    Order("lower_to_kernels", "take_operands", "products are known there"),
    Order("lower_to_kernels", "as_stored", "products are known there"),
    Order("as_stored", "fuse", "what makes an operand may go into a kernel that it follows"),
    Order("as_stored", "pack", "panels may be made of what is stored transposed"),
    Order("lower_to_kernels", "add_borders", "convolutions are known there"),
    Order("add_borders", "fuse", "what makes a picture writes it with its border"),
    Order("add_borders", "pack", "it is the padding of products that were generated"),
    Order("take_operands", "fuse", "what makes an operand may go into a kernel that it follows"),
    Order("pack", "hoist", "most of what leaves a loop are panels of weights"),
    Order("pack", "make_prepare", "panels of weights are made when they are loaded"),
    Order("make_prepare", "plan_memory", "prepare is compiled like the entry points"),
    Order("fuse", "split_folds", "the parts of a fold would go back into it"),
    Order("fuse", "merge_maps", "what has several results is not fused with anything"),
    Order("scalars_first", "release", "an update waits for the numbers that it takes"),
    Order("recompute", "merge_maps", "a value is computed again alone"),
    Order("merge_maps", "plan_memory", "kernels have memory"),
    Order("merge_maps", "reorder", "what is one kernel has one place"),
    Order("split_folds", "plan_memory", "the parts of a fold are a value of their own"),
    Order("fuse", "split_products", "the epilogue of a product is whole"),
    Order("fuse", "keep_blanks", "equal numbers would be made by a kernel again"),
    Order("split_products", "plan_memory", "the parts of a product are a value of their own"),
    Order("lower_to_kernels", "fuse", "only kernels are fused"),
    Order("lower_to_kernels", "plan_memory", "only kernels have memory"),
    Order("fuse", "plan_memory", "a value that is fused away needs no memory"),
    Order("plan_memory", "lower_to_loops", "loops need to know where their arrays are"),
    Order("plan_memory", "lower_to_simt", "functions need to know where their arrays are"),
    Order("plan_memory", "lower_to_both", "functions are for the device that their arrays are on"),
)


def simplify(level: int) -> tuple[str, ...]:
    """The passes that simplify a graph."""
    return () if level == 0 else GRAPH_EXACT if level == 1 else GRAPH


def _for_gpu(kind: str, *names: str) -> tuple[str, ...]:
    """Passes for kernels of a GPU, as a kind of device has them."""
    match kind:
        case "cuda":
            return names
        case "both":
            return tuple(OF_A_PART[name] for name in names)
        case _:
            return ()


def to_stage(stage: str, level: int, kind: str = "cpu") -> tuple[str, ...]:
    """The passes that lead to a stage from the one before, at an optimisation level.

    `kind` is that of the device, `cpu` or `cuda`, or `both` for a model that is on both.
    """
    match stage:
        case "graph":
            return ("place", "autodiff", "place", *simplify(level))
        case "kernel":
            prepare = PREPARE if kind == "cuda" else ("pack", *PREPARE)
            simpler = simplify(level)
            gpu = kind if level >= 2 else "cpu"
            whole = _for_gpu(gpu, "fuse_attention_gradients")
            stored = _for_gpu(gpu, "take_operands")
            if kind != "cuda":
                stored = (*stored, *(("as_stored",) if level >= 2 else ()), *BORDERS)
            fused = KERNEL if level else ()
            split = _for_gpu(gpu, "keep_blanks", "split_folds", "split_products")
            merged = _for_gpu(gpu, "merge_maps")
            joined = ("join_updates",) if kind == "cpu" else ()
            first = ("scalars_first",) if merged else joined
            before = ("hoist", "dce", *first, "release", "recompute", "dce") if level else ()
            gathered = ("gather_updates",) if gpu == "cuda" else ()
            placed = [name if kind == "cpu" else form for name, form in IN_UNITS.items()]
            last = ("reorder", *gathered, *placed, "place") if level else ("place",)
            return (
                *(
                    *whole,
                    "decompose",
                    *simpler,
                    "lower_to_kernels",
                    *stored,
                    *fused,
                    *prepare,
                    *fused,
                ),
                *(*split, *before, *merged, *last),
            )
        case "plan":
            return ("plan_memory",)
        case "loop":
            bundled = ("bundle_calls",) if kind == "cuda" and level >= 2 else ()
            return (FUNCTIONS[kind], *bundled)
        case _:
            raise AssertionError(stage)


def pipeline(first: str, last: str, level: int, kind: str = "cpu") -> tuple[str, ...]:
    """The passes from a stage (those of the stage itself included) to a later one.

    What is given at graph level may come from anywhere, so the graph passes run on it.
    """
    stages = STAGES[STAGES.index(first) : STAGES.index(last) + 1]
    later = stages if first == "graph" else stages[1:]
    return tuple(name for stage in later for name in to_stage(stage, level, kind))


_NAMES = {form: name for forms in (OF_A_PART, IN_UNITS) for name, form in forms.items()}
for _level in range(4):
    for _kind in FUNCTIONS:
        _passes = pipeline("graph", "loop", _level, _kind)
        check_order([_NAMES.get(name, name) for name in _passes], REASONS)
