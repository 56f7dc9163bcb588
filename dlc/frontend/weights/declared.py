"""The weights that the `param` and `state` of a module declare: their types, and where they start."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.text_mesh import NONE, STAGES
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.types import declared_type, dtype_named
from dlc.frontend.elaboration.weight import Origin, Weight
from dlc.frontend.weights.initialisers import origin_of
from dlc.ir.dims import Dim, divides
from dlc.ir.types import TensorType
from dlc.runtime.system.counts import counted
from dlc.text.model import ast

__all__ = ["Start", "declared_weight"]


@dataclass(frozen=True, slots=True)
class Start:
    """The file that a `from` names, and the path of the module that says so."""

    file: str
    path: str

    def key(self, symbol: str) -> str:
        """The name in the file of the weight of this symbol."""
        return symbol.removeprefix(f"{self.path}." if self.path else "")


def declared_weight(
    ev: Evaluator,
    node: ast.Param | ast.State,
    scope: Scope,
    symbol: str,
    *,
    stack: tuple[int, ...],
    like: TensorType | None,
    start: Start | None,
) -> Weight:
    """The weight of that symbol, with the leading sizes of the stack that its instance is in.

    `like` is the type of the weight that an optimizer updates, `start` where weights of the instance
    start. Raises ModelError: D0326 for what is not a tensor, D0221 for a size that is not fixed.
    """
    if not isinstance(node.type, ast.TensorType):
        raise ev.at.fail("D0326", "a weight is a tensor", node.type.span)
    own = _type(ev, node.type, scope, like)
    if any(isinstance(size, Dim) for size in own.shape):
        raise ev.at.fail(
            "D0221",
            f"the weight {node.name} is {own.text}, but weights have fixed sizes",
            node.type.span,
            help="make the size a parameter of the module",
        )
    return Weight(
        symbol,
        own.with_shape((*stack, *own.shape)),
        _origin(origin_of(ev, node.init, scope, own.dtype), node, symbol, start),
        isinstance(node, ast.Param),
        len(stack),
        scope.home.source.place(node.span),
        splits=None if node.split is None else _splits(ev, node.name, node.split, own, len(stack)),
    )


def _splits(
    ev: Evaluator, name: str, split: ast.Split, type: TensorType, stacked: int
) -> tuple[tuple[str, int], ...] | None:
    """What `split (none, model)` says of a weight. Raises ModelError (D0382) for what cannot be."""
    mesh = ev.at.mesh
    if mesh is None:
        if ev.at.source is not ev.at.root_source:
            return None  # it is for texts that have a mesh
        raise ev.at.fail(
            "D0382",
            f"{name} is split, and the text has no mesh",
            split.span,
            help="declare one: mesh data = 2, model = 2",
        )
    if len(split.axes) != type.rank:
        raise ev.at.fail(
            "D0382",
            f"{name} is {type.text}, and its split has {counted(len(split.axes), 'name')}",
            split.span,
            help=f"write split ({', '.join(['none'] * type.rank)}) with an axis of the mesh",
        )
    found: dict[str, int] = {}
    for axis, (entry, size) in enumerate(zip(split.axes, type.shape, strict=True)):
        by = entry.mesh_axis
        if by == NONE:
            continue
        if by not in mesh.axes:
            help = did_you_mean(by, mesh.axes) or f"there are {', '.join(mesh.axes)} and {NONE}"
            raise ev.at.fail("D0382", f"the mesh has no axis {by}", entry.span, help=help)
        if by == STAGES:
            message = f"{name} is on one stage as a whole"
            help = f"split it along another axis of the mesh, or write {NONE}"
            raise ev.at.fail("D0382", message, entry.span, help=help)
        if by in found:
            message = f"{by} splits two axes of {name}"
            raise ev.at.fail("D0382", message, entry.span, help=f"write {NONE} for one of them")
        ranks = mesh.axes[by]
        if size == 0 or not divides(ranks, size):
            message = f"axis {axis} of {name} is {size}, which has no equal parts for {ranks} ranks"
            help = f"take a multiple of {ranks}, or write {NONE}"
            raise ev.at.fail("D0382", message, entry.span, help=help)
        found[by] = axis + stacked
    return tuple([(by, found[by]) for by in mesh.axes if by in found])


def _type(ev: Evaluator, type: ast.TensorType, scope: Scope, like: TensorType | None) -> TensorType:
    """The declared type. In the state of an optimizer `..` stands for sizes of the weight, `_` for one."""
    if like is None or not type.dims or not isinstance(type.dims[0], ast.Dots):
        return declared_type(ev, type, scope)
    last = type.dims[1:]
    lead = like.rank - len(last)
    if lead < 0:
        raise ev.at.fail(
            "D0332",
            f"a state with {len(last)} axes behind `..` does not fit the weight {like.text}",
            type.span,
            help="use it for weights with enough axes only: if rank(p) > 1 then ... else ...",
        )
    sizes = [
        like.shape[lead + k] if isinstance(dim, ast.Placeholder) else ev.size(dim, scope)
        for k, dim in enumerate(last)
    ]
    shape = (*like.shape[:lead], *sizes)
    return TensorType(dtype_named(ev, type.dtype, type.span, scope), shape)


def _origin(
    origin: Origin, node: ast.Param | ast.State, symbol: str, start: Start | None
) -> Origin:
    """Its initial value: from its own file, that of the module, or its initialiser."""
    key = origin.key or node.key
    if origin.file is not None or start is None:
        return Origin(origin.init, origin.file, key or (node.name if origin.file else None))
    return Origin(origin.init, start.file, key or start.key(symbol))
