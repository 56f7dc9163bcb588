"""Fused optimizers: element-wise updates of arguments become one kernel, or the epilogue of a product.

An optimizer reads a gradient and the moments of a weight, and writes the weight and the moments anew: a
kernel for each of them would read most of that again. In one kernel every array is read once, and where
the gradient is a product that nothing else reads, it never exists as an array. Only kernels that update an
argument in place are fused: they allocate nothing, so that nothing lives longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from dlc.dialects import array, func, kernel
from dlc.dialects.builtin import Module
from dlc.dialects.kernel.product_schedule import Packed, PackInline, Winograd
from dlc.dialects.kernel.products import Conv, Gemm, Product
from dlc.dialects.measured import measuring
from dlc.ir.clone import changed, clone_into
from dlc.ir.core import Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Gone, Rewriter
from dlc.passes.kernel.collapse import regroup_like
from dlc.planning.aliases import origin, readers
from dlc.planning.liveness import updates_of
from dlc.planning.overwriting import reads_only_own_element

Root = kernel.Generic | Product


@define_pass("fuse_updates")
def fuse_updates(module: Op, context: Context) -> None:
    """Fuse updates that read each other, or the same gradient, into one kernel."""
    assert isinstance(module, Module)
    for function in list(module.body):
        if isinstance(function, func.Func) and not measuring(function):
            _UpdateFusion(function, context).run()


class _UpdateFusion:
    def __init__(self, function: func.Func, context: Context) -> None:
        self.context = context
        self.ops = list(function.body)
        self.index_of = {op: index for index, op in enumerate(self.ops)}
        self.updated = set(updates_of(function))
        self.groups: dict[Op, list[kernel.Generic]] = {}
        """By the root of a group, its first kernel, the members fused behind it, in order."""
        self.root_of: dict[Op, Root] = {}

    def run(self) -> None:
        """Form the groups, then write each as one kernel."""
        for op in self.ops:
            if isinstance(op, kernel.Generic) and op.is_map and self._is_update(op):
                self._fuse_into_group(op)
        for root in dict.fromkeys(self.root_of.values()):
            self._write(root, self.groups[root])

    def _is_update(self, op: kernel.Generic) -> bool:
        return len(op.results) == 1 and op.result in self.updated

    def _fuse_into_group(self, op: kernel.Generic) -> None:
        """Add a kernel to the group of a producer of its inputs, if one can take it."""
        for value in op.inputs:
            producer = origin(value).op
            root = self.root_of.get(producer, producer) if producer is not None else None
            if not isinstance(root, Root) or not _may_be_root(root):
                continue
            regrouped = self._regrouped(op, root)
            if regrouped is not None:
                self._add(regrouped, root)
                return

    def _add(self, op: kernel.Generic, root: Root) -> None:
        """Add a kernel to a group, and before it further updates that it reads."""
        self.root_of[root] = root
        group = self.groups.setdefault(root, [])
        for value in op.inputs:
            producer = origin(value).op
            if not isinstance(producer, kernel.Generic) or producer in self.root_of:
                continue
            is_update = (
                producer.domain == root.domain and producer.is_map and self._is_update(producer)
            )
            if is_update and not self._is_read_before(producer, op, {*group, root}):
                group.insert(0, producer)
                self.root_of[producer] = root
        group.append(op)
        self.root_of[op] = root

    def _is_read_before(self, producer: Root, op: Op, group: AbstractSet[Op]) -> bool:
        """Whether a reader outside of the group needs the result of a kernel before the operation `op`."""
        return any(
            reader is not op and reader not in group and self.index_of[reader] < self.index_of[op]
            for reader in readers(producer.result)
        )

    def _regrouped(self, op: kernel.Generic, root: Root) -> kernel.Generic | None:
        """The kernel over the domain of a group; None if it cannot join the group."""
        group = {root, *self.groups.get(root, ())}
        results = {each.result for each in group}
        fused_arguments = [
            argument
            for argument, value in zip(op.arrays, op.inputs, strict=True)
            if origin(value) in results
        ]
        # The whole group moves to the position of the kernel.
        if any(self._is_read_before(each, op, group) for each in group):
            self.context.log.refused("its group would move behind other readers", op)
            return None
        if not all(reads_only_own_element(op, argument) for argument in fused_arguments):
            self.context.log.refused("it reads elements other than the one it computes", op)
            return None
        if op.domain == root.domain:
            return op
        regrouped = regroup_like(op, fused_arguments[0], root.domain, self.context.rewriter)
        if regrouped is None:
            return None
        self.index_of[regrouped[0]] = self.index_of[op]
        return regrouped[0]

    def _write(self, root: Root, members: Sequence[kernel.Generic]) -> None:
        """Write one kernel at the last member, with a result for each value read outside of the group."""
        formula = root.formula
        (element,) = formula.terminator.operands
        elements = {root.result: element}
        for member in members:
            elements[member.result] = _append(root, member, elements)
        group = {root, *members}
        outputs = [
            value for value in elements if any(reader not in group for reader in readers(value))
        ]
        formula.terminator.set_operands([elements[value] for value in outputs])
        emit = self.context.rewriter.before(members[-1])
        fused = changed(root, root.operands, root.take_regions())
        results = dict(zip(outputs, emit.all(fused), strict=True))
        self.context.log.did("update in one kernel", fused, kernels=len(group))
        for value in elements:
            _move_views(value, members[-1])
        for member in reversed(members):
            self._replace(member, results)
        self._replace(root, results)

    def _replace(self, op: Root, results: Mapping[Value, Value]) -> None:
        """Replace a kernel of the group by a result of the new kernel, or erase it."""
        rewriter = self.context.rewriter
        if op.result in results:
            rewriter.replace(op, results[op.result], relation=EQUAL)
            return
        _erase_views(op.result, rewriter)
        rewriter.erase(op, Gone("it is used only in the kernel that computes it"))


def _may_be_root(op: Root) -> bool:
    """Whether a kernel can take formulas as its epilogue: its elements are in registers at its end."""
    match op:
        case Gemm() | Conv():
            has_formula = isinstance(op.schedule, Packed | PackInline | Winograd)
        case kernel.Generic():
            has_formula = op.is_map
        case _:
            has_formula = False
    return has_formula and len(op.results) == 1


def _append(root: Root, member: kernel.Generic, elements: Mapping[Value, Value]) -> Value:
    """Append a member's formula to that of the root; returns the value that it yields there."""
    arguments: list[Value] = []
    for argument, value in zip(member.arrays, member.inputs, strict=True):
        element = elements.get(origin(value))
        if element is None:
            arguments.append(root.argument_for(value))
            continue
        arguments.append(element)  # no load reads the argument any more
        stand_in = member.body.add_argument(element.type)
        for load in list(argument.uses):
            load.result.replace_by(stand_in)
            load.erase()
    arguments += [elements[origin(value)] for value in member.inputs if origin(value) in elements]
    indices = root.formula.arguments[: len(root.domain)]
    emit = Builder.before_op(root.formula.terminator, member.location)
    (result,) = clone_into(member.body, emit, [*indices, *arguments])
    return result


def _move_views(value: Value, before: Op) -> None:
    """Move the views of a value behind the new kernel."""
    assert before.parent is not None
    for view in [use for use in value.uses if isinstance(use, array.Reshape)]:
        before.parent.move(view, before)
        _move_views(view.result, before)


def _erase_views(value: Value, rewriter: Rewriter) -> None:
    """Erase the unread views of a value."""
    for view in [use for use in value.uses if isinstance(use, array.Reshape)]:
        _erase_views(view.result, rewriter)
        rewriter.erase(view, Gone("nothing reads it"))
