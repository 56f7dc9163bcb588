"""Kernels that update arguments element by element become one, or the end of the product that they read.

An optimizer reads a gradient and what it keeps for the weight, and writes weight and kept values anew: a
kernel for each of them would read most of that again. As one kernel every array passes once, and where the
gradient is a product that nothing else reads, it never exists as an array. Only what updates an argument is
joined: its memory is there anyway, so that nothing is held for longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from dlc.dialects import array, func, kernel
from dlc.dialects.builtin import Module
from dlc.dialects.kernel.products import Conv, Gemm, Product
from dlc.dialects.kernel.schedule import Packed, PackInline
from dlc.dialects.measured import measuring
from dlc.ir.clone import changed, clone_into
from dlc.ir.core import Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Gone, Rewriter
from dlc.passes.kernel.collapse import regroup_like
from dlc.planning.aliases import origin, readers
from dlc.planning.liveness import updates_of
from dlc.planning.storage import reads_only_own_element

Root = kernel.Generic | Product


@define_pass("fuse_updates")
def fuse_updates(module: Op, context: Context) -> None:
    """Write updates that belong together as one kernel."""
    assert isinstance(module, Module)
    for function in list(module.body):
        if isinstance(function, func.Func) and not measuring(function):
            _Join(function, context).run()


class _Join:
    def __init__(self, function: func.Func, context: Context) -> None:
        self.context = context
        self.ops = list(function.body)
        self.number = {op: number for number, op in enumerate(self.ops)}
        self.updated = set(updates_of(function))
        self.groups: dict[Op, list[kernel.Generic]] = {}
        """By the kernel that comes first, those that are joined to it, in order."""
        self.root_of: dict[Op, Root] = {}

    def run(self) -> None:
        """Find what belongs together, then write it."""
        for op in self.ops:
            if isinstance(op, kernel.Generic) and op.is_map and self._is_update(op):
                self._join(op)
        for root in dict.fromkeys(self.root_of.values()):
            self._write(root, self.groups[root])

    def _is_update(self, op: kernel.Generic) -> bool:
        return len(op.results) == 1 and op.result in self.updated

    def _join(self, op: kernel.Generic) -> None:
        """Make a kernel the next part of what begins with one that it reads, if that can be."""
        for value in op.inputs:
            made = origin(value).op
            root = self.root_of.get(made, made) if made is not None else None
            if not isinstance(root, Root) or not _may_begin(root):
                continue
            fitting = self._fitting(op, root)
            if fitting is not None:
                self._add(fitting, root)
                return

    def _add(self, op: kernel.Generic, root: Root) -> None:
        """Make a kernel part of a group, and before it further updates that it reads."""
        self.root_of[root] = root
        group = self.groups.setdefault(root, [])
        for value in op.inputs:
            made = origin(value).op
            if not isinstance(made, kernel.Generic) or made in self.root_of:
                continue
            alike = made.domain == root.domain and made.is_map and self._is_update(made)
            if alike and not self._is_read_before(made, op, {*group, root}):
                group.insert(0, made)
                self.root_of[made] = root
        group.append(op)
        self.root_of[op] = root

    def _is_read_before(self, made: Root, op: Op, group: AbstractSet[Op]) -> bool:
        """Whether somebody else needs what a kernel computes before the operation `op`."""
        return any(
            reader is not op and reader not in group and self.number[reader] < self.number[op]
            for reader in readers(made.result)
        )

    def _fitting(self, op: kernel.Generic, root: Root) -> kernel.Generic | None:
        """The kernel over the elements of a group; None if it cannot be part of it."""
        group = {root, *self.groups.get(root, ())}
        results = {made.result for made in group}
        read = [
            argument
            for argument, value in zip(op.arrays, op.inputs, strict=True)
            if origin(value) in results
        ]
        # All of the group moves to where the kernel is.
        if any(self._is_read_before(made, op, group) for made in group):
            self.context.log.refused("others need before what it would be written with", op)
            return None
        if not all(reads_only_own_element(op, argument) for argument in read):
            self.context.log.refused("it reads other elements than its own", op)
            return None
        if op.domain == root.domain:
            return op
        regrouped = regroup_like(op, read[0], root.domain, self.context.rewriter)
        if regrouped is None:
            return None
        self.number[regrouped[0]] = self.number[op]
        return regrouped[0]

    def _write(self, root: Root, members: Sequence[kernel.Generic]) -> None:
        """One kernel in the place of the last member, with a result for all that others read."""
        formula = root.formula
        (element,) = formula.terminator.operands
        elements = {root.result: element}
        for member in members:
            elements[member.result] = _append(root, member, elements)
        group = {root, *members}
        kept = [
            value for value in elements if any(reader not in group for reader in readers(value))
        ]
        formula.terminator.set_operands([elements[value] for value in kept])
        before = self.context.rewriter.before(members[-1])
        regions, root.regions = root.regions, ()
        made = changed(root, root.operands, regions)
        results = dict(zip(kept, before.all(made), strict=True))
        self.context.log.did("update together", made, kernels=len(group))
        for value in elements:
            _move_views(value, members[-1])
        for member in reversed(members):
            self._replace(member, results)
        self._replace(root, results)

    def _replace(self, op: Root, results: Mapping[Value, Value]) -> None:
        """Put what the new kernel computes in the place of what one of the group did."""
        rewriter = self.context.rewriter
        if op.result in results:
            rewriter.replace(op, results[op.result], relation=EQUAL)
            return
        _erase_views(op.result, rewriter)
        rewriter.erase(op, Gone("it is used in the kernel that computes it"))


def _may_begin(op: Root) -> bool:
    """Whether formulas can be written behind that of a kernel: its elements do not wait in memory."""
    match op:
        case Gemm() | Conv():
            known = isinstance(op.schedule, Packed | PackInline)
        case kernel.Generic():
            known = op.is_map
        case _:
            known = False
    return known and len(op.results) == 1


def _append(root: Root, member: kernel.Generic, elements: Mapping[Value, Value]) -> Value:
    """Write a member's formula behind that of the root; what it yields there."""
    given: list[Value] = []
    for argument, value in zip(member.arrays, member.inputs, strict=True):
        element = elements.get(origin(value))
        if element is None:
            given.append(root.argument_for(value))
            continue
        given.append(element)  # nothing loads from the argument any more
        stand_in = member.body.add_argument(element.type)
        for load in list(argument.uses):
            load.result.replace_by(stand_in)
            load.erase()
    given += [elements[origin(value)] for value in member.inputs if origin(value) in elements]
    indices = root.formula.arguments[: len(root.domain)]
    emit = Builder.before_op(root.formula.terminator, member.location)
    (result,) = clone_into(member.body, emit, [*indices, *given])
    return result


def _move_views(value: Value, before: Op) -> None:
    """Put the views of a value where the new kernel has computed it."""
    assert before.parent is not None
    for view in [use for use in value.uses if isinstance(use, array.Reshape)]:
        before.parent.move(view, before)
        _move_views(view.result, before)


def _erase_views(value: Value, rewriter: Rewriter) -> None:
    """Erase the views of a value that nothing reads."""
    for view in [use for use in value.uses if isinstance(use, array.Reshape)]:
        _erase_views(view.result, rewriter)
        rewriter.erase(view, Gone("nothing reads it any more"))
