"""Ensembles of decision trees as arrays: the nodes of all trees, numbered; a leaf follows itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.importers.onnx.facts import Array
from dlc.importers.onnx.ml.attributes import integers, numbers
from dlc.importers.onnx.node_context import NodeContext

Integers: TypeAlias = NDArray[np.signedinteger[Any]]
Floats: TypeAlias = NDArray[np.floating[Any]]

MODES = (
    "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
    "BRANCH_MEMBER", "LEAF",
)  # fmt: skip
"""What a node compares; those before the last in the order of their numbers in TreeEnsemble."""
LEAF = MODES.index("LEAF")
MEMBER = MODES.index("BRANCH_MEMBER")
DEEPEST = 4096
"""Levels of a tree: none that is trained has as many."""
LARGEST = 1 << 26
"""Elements of the table of what the leaves give."""


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """Trees with m nodes in all, of which each leaf gives a weight to each of e targets.

    A row goes from a node to `following[node, 1]` where the comparison of its feature with the threshold
    holds, else to `following[node, 0]`; a leaf leads to itself. One whose feature is NaN goes as if it held
    where `missing` says so.
    """

    features: Integers
    """[m], i32"""
    thresholds: Floats
    """[m], f32 or f64"""
    modes: Integers
    """[m], numbers of MODES"""
    following: Integers
    """[m, 2], i32"""
    missing: NDArray[np.bool_]
    """[m], bool"""
    roots: Integers
    """[trees], i32"""
    weights: Floats
    """[m, e]: what a leaf gives to a target"""
    given: NDArray[np.bool_]
    """[m, e], bool: whether it gives anything"""
    members: Floats
    """[m, s]: the numbers among which one is looked for, filled up with NaN"""
    depth: int = 0
    """Steps from the roots to the leaf that is farthest"""


def checked(context: NodeContext, ensemble: Ensemble, width: object) -> Ensemble:
    """The ensemble with its depth.

    Raises ModelError where nodes or features are not there, or nodes follow in a circle.
    """
    count = len(ensemble.features)
    if not count or not len(ensemble.roots):
        raise context.wrong("has no trees")
    for named, end, what in (
        (ensemble.following, count, "node"),
        (ensemble.roots, count, "node"),
        (ensemble.features, width, "feature"),
    ):
        low, high = int(named.min()), int(named.max())
        if low < 0 or (isinstance(end, int) and high >= end):
            raise context.wrong(f"speaks of the {what} {low if low < 0 else high} of {end}")
    return replace(ensemble, depth=_depth(context, ensemble))


def _depth(context: NodeContext, ensemble: Ensemble) -> int:
    level = np.unique(ensemble.roots)
    for depth in range(DEEPEST):
        inner = level[ensemble.modes[level] != LEAF]
        if not inner.size:
            return depth
        level = np.unique(ensemble.following[inner])
    raise context.wrong(
        f"has a tree that is deeper than {DEEPEST}, or whose nodes follow in a circle"
    )


def weights_of(
    context: NodeContext, entries: tuple[Integers, Integers, Floats], nodes: int, targets: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """What each node gives to each target, and whether it does, from nodes, targets and weights."""
    at, target, weight = entries
    if not len(at) == len(target) == len(weight):
        raise context.wrong("has lists about its leaves that are not equally long")
    if nodes * targets > LARGEST:
        raise context.unsupported(f"of {nodes} nodes for {targets} targets is not imported")
    if len(target) and not 0 <= target.min() <= target.max() < targets:
        raise context.wrong(f"has a target that is none of {targets}")
    weights = np.zeros((nodes, targets), weight.dtype)
    given = np.zeros((nodes, targets), np.bool_)
    np.add.at(weights, (at, target), weight)
    given[at, target] = True
    return weights, given


def floats(context: NodeContext, name: str) -> Floats:
    """A list of f32, or the tensor of the same name, which may be f64."""
    as_tensor = f"{name}_as_tensor"
    if context.tensor(as_tensor) is None:
        return numbers(context, name)
    return _tensor_of_floats(context, as_tensor)


def listed(context: NodeContext, leaves: str, targets: int) -> Ensemble:
    """The trees of TreeEnsembleClassifier and TreeEnsembleRegressor.

    The attributes about their leaves begin with `leaves`, class or target.
    """
    trees, nodes = _integers(context, "nodes_treeids"), _integers(context, "nodes_nodeids")
    ids = [_integers(context, f"nodes_{way}nodeids") for way in ("false", "true")]
    features, modes = _integers(context, "nodes_featureids"), _modes(context)
    thresholds, count = floats(context, "nodes_values"), len(trees)
    _check_lengths(context, nodes, *ids, features, modes, thresholds, trees)
    number = {key: k for k, key in enumerate(zip(trees.tolist(), nodes.tolist(), strict=True))}
    following = np.stack([_found(number, trees, way) for way in ids], 1)
    is_leaf = modes == LEAF
    following[is_leaf] = np.arange(count)[is_leaf, None]
    at = [_integers(context, f"{leaves}_{what}ids") for what in ("tree", "node")]
    _check_lengths(context, *at)
    entries = _found(number, *at)
    if min(following.min(initial=0), entries.min(initial=0)) < 0:
        raise context.wrong("names a node that is not there")
    given = (entries, _integers(context, f"{leaves}_ids"), floats(context, f"{leaves}_weights"))
    missing = _integers(context, "nodes_missing_value_tracks_true")
    return Ensemble(
        np.where(is_leaf, 0, features).astype(np.int32),
        thresholds,
        modes,
        following.astype(np.int32),
        (missing if len(missing) else np.zeros(count)) != 0,
        np.unique(trees, return_index=True)[1].astype(np.int32),
        *weights_of(context, given, count, targets),
        np.zeros((count, 0), thresholds.dtype),
    )


def _integers(context: NodeContext, name: str) -> NDArray[np.int64]:
    return np.asarray(integers(context, name), np.int64)


def _check_lengths(context: NodeContext, *lists: Array) -> None:
    if len({len(one) for one in lists}) > 1:
        raise context.wrong("has lists about its nodes that are not equally long")


def _modes(context: NodeContext) -> NDArray[np.int64]:
    names = context.texts("nodes_modes")
    unknown = sorted({*names} - {*MODES})
    if unknown:
        raise context.unsupported(f"with the mode {unknown[0]} is not imported")
    return np.asarray([MODES.index(name) for name in names], np.int64)


def _found(
    number: dict[tuple[int, int], int], trees: NDArray[np.int64], nodes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The numbers of nodes of trees; -1 for those that are not there, as leaves may name."""
    pairs = zip(trees.tolist(), nodes.tolist(), strict=True)
    return np.asarray([number.get(pair, -1) for pair in pairs], np.int64)


def separate(context: NodeContext, targets: int) -> Ensemble:
    """The trees of TreeEnsemble, whose leaves are numbered apart: here they follow the other nodes."""
    features, modes = _integers(context, "nodes_featureids"), _numbered_modes(context)
    thresholds, targeted = (
        _tensor_of_floats(context, "nodes_splits"),
        _integers(context, "leaf_targetids"),
    )
    inner, leaves = len(features), len(targeted)
    ways = [
        _integers(context, f"nodes_{way}nodeids")
        + np.where(_integers(context, f"nodes_{way}leafs") != 0, inner, 0)
        for way in ("false", "true")
    ]
    _check_lengths(context, features, modes, thresholds, *ways)
    own = np.arange(inner, inner + leaves)
    missing = _integers(context, "nodes_missing_value_tracks_true")
    given = (own, targeted, _tensor_of_floats(context, "leaf_weights"))
    return Ensemble(
        np.append(features, np.zeros(leaves)).astype(np.int32),
        np.append(thresholds, np.zeros(leaves)).astype(thresholds.dtype),
        np.append(modes, np.full(leaves, LEAF)).astype(np.int64),
        np.concatenate([np.stack(ways, 1), np.stack([own, own], 1)]).astype(np.int32),
        np.append(missing if len(missing) else np.zeros(inner), np.zeros(leaves)) != 0,
        _integers(context, "tree_roots").astype(np.int32),
        *weights_of(context, given, inner + leaves, targets),
        _members(context, modes, leaves),
    )


def _numbered_modes(context: NodeContext) -> NDArray[np.int64]:
    modes = _tensor(context, "nodes_modes").astype(np.int64)
    if not 0 <= modes.min(initial=0) <= modes.max(initial=0) < LEAF:
        raise context.wrong(f"has modes that are not 0 to {LEAF - 1}")
    return modes


def _tensor(context: NodeContext, name: str) -> Array:
    tensor = context.tensor(name)
    if tensor is None:
        raise context.wrong(f"lacks its attribute {name}")
    return tensor.array.ravel()


def _tensor_of_floats(context: NodeContext, name: str) -> Floats:
    found = _tensor(context, name)
    if found.dtype.type not in (np.float32, np.float64):
        raise context.unsupported(f"with {name} in {found.dtype.name} is not imported")
    return cast("Floats", found)


def _members(context: NodeContext, modes: Integers, leaves: int) -> Floats:
    """The sets of the nodes that look for members; in the file each has NaN behind it."""
    count = len(modes) + leaves
    if context.tensor("membership_values") is None:
        return np.zeros((count, 0), np.float32)
    flat = _tensor_of_floats(context, "membership_values")
    ends = np.flatnonzero(np.isnan(flat))
    at = np.flatnonzero(modes == MEMBER)
    if len(ends) != len(at) or (len(ends) and ends[-1] != len(flat) - 1):
        raise context.wrong(f"has {len(ends)} sets for {len(at)} nodes that look for members")
    sets = np.split(flat, ends)[: len(ends)]
    longest = max([len(one) for one in sets], default=0)
    if count * longest > LARGEST:
        raise context.unsupported(f"with sets of {longest} members is not imported")
    members = np.full((count, longest), np.nan, flat.dtype)
    for node, one in zip(at, sets, strict=True):
        members[node, : len(one)] = one
    return members
