"""All-reduces that are under way while other kernels run: begun, tested now and then, waited for.

`comm.start_all_reduce` begins one in the memory of its result, `comm.wait` is where the sum is there. In
between only a `comm.test` may stand, by which a library without threads of its own gets on with it. Both
take the array or the requests of the operation before and give them on, and write in place. So each start
has one wait on every path, which the verifier checks, and the memory plan keeps the array in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.comm.collectives import COMBINERS, Collective, combined
from dlc.dialects.kernel.generic import Access, Kernel, array_type
from dlc.ir.core import Array, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operands
from dlc.ir.types import I64, TensorType

__all__ = ["StartAllReduce", "Test", "Wait"]


@op("comm.start_all_reduce")
class StartAllReduce(Collective):
    """Begin an `all_reduce`: the array that will be the sum, and a request for each of its pieces.

    Nothing but the `comm.wait` of both may read the array.
    """

    combine: str = attribute(default="sum", doc="sum, max or min")
    pieces: int = attribute(default=1, doc="in how many parts it is sent")

    def result_types(self) -> tuple[TensorType, ...]:
        (type,) = super().result_types()
        if self.combine not in COMBINERS:
            raise self.fail(f"{self.name} knows sum, max and min, found {self.combine!r}")
        if self.pieces < 1:
            raise self.fail(f"{self.name} sends one piece at least, found {self.pieces}")
        return type, TensorType(I64, (self.pieces,))

    def check(self) -> None:
        """Refuse one that is not waited for exactly once, in its own block."""
        if not self.results:
            return
        array, requests = self.results
        user = _only_user(requests)
        while isinstance(user, Test):
            user = _only_user(user.results[0])
        is_waited_for = user is not None and user is _only_user(array)
        if not (is_waited_for and isinstance(user, Wait) and user.parent is self.parent):
            raise self.fail(f"{self.name} is waited for by one {Wait.name} of its block")

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        total = combined(self, self._exchanged(at, inputs[0]), self.combine)
        return total, np.zeros(self.pieces, np.int64)


@op("comm.test")
class Test(Kernel):
    """The requests of an all-reduce that is under way, which gets on with its work meanwhile."""

    inputs: Sequence[Value] = operands(doc="the requests")
    outs: Sequence[Value] = operands()

    writes = Access.CONTIGUOUS

    def result_types(self) -> tuple[TensorType, ...]:
        if len(self.inputs) != 1:
            raise self.fail(f"{self.name} takes requests, found {len(self.inputs)} operands")
        return (array_type(self.inputs[0]),)

    def check(self) -> None:
        _check_begun(self, self.inputs[0])

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0]


@op("comm.wait")
class Wait(Kernel):
    """The sum of an all-reduce that was begun, once it is there."""

    inputs: Sequence[Value] = operands(doc="the array and the requests")
    outs: Sequence[Value] = operands()

    writes = Access.CONTIGUOUS

    def result_types(self) -> tuple[TensorType, ...]:
        if len(self.inputs) != 2:
            raise self.fail(
                f"{self.name} takes an array and its requests, found {len(self.inputs)}"
            )
        return (array_type(self.inputs[0]),)

    def check(self) -> None:
        _check_begun(self, self.inputs[1])

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0]


def _only_user(value: Value) -> Op | None:
    """The operation that uses a value, if there is one only."""
    users = list(value.uses)
    return users[0] if len(users) == 1 else None


def _check_begun(op: Test | Wait, requests: Value) -> None:
    """Refuse requests, on tensors, that come from anywhere but an all-reduce that was begun."""
    if op.results and not isinstance(requests.op, StartAllReduce | Test):
        raise op.fail(f"{op.name} takes the requests of a {StartAllReduce.name}")
