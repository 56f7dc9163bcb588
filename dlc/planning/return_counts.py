"""Entry points return the sizes that their calls measure, so that the caller can cut the results."""

from __future__ import annotations

from dlc.dialects import func
from dlc.dialects.interface import HIDDEN
from dlc.dialects.measured import Measuring, dims_of, is_monotone, measuring, upper_bounds
from dlc.errors import Diagnostic, Unsupported
from dlc.ir.types import TensorType


def return_counts(function: func.Func) -> None:
    """Let a function return each measured size that the type of a result mentions.

    Raises Unsupported where a result would need more storage the fewer elements were counted.
    """
    measured = measuring(function)
    if not measured:
        return
    _check_storage(function, measured)
    returned = set(function.results_returned)
    mentioned = dims_of(function.body.terminator)
    missing = [
        op.count
        for name, op in measured.items()
        if name in mentioned and op.parent is function.body and op.count not in returned
    ]
    if missing:
        function.body.terminator.set_operands([*function.results_returned, *missing])
        function.attributes[HIDDEN] = function.hidden_results + len(missing)
        function.retype()


def _check_storage(function: func.Func, measured: dict[str, Measuring]) -> None:
    limits = upper_bounds(measured)
    wrong = [
        Diagnostic(
            "D0701",
            f"@{function.sym_name} returns {type.text}, which is larger the fewer elements are "
            "counted; storage is laid out for the most",
            function.location.place,
        )
        for type in function.function_type.results
        if isinstance(type, TensorType)
        and not all(is_monotone(size, limits) for size in type.shape)
    ]
    if wrong:
        raise Unsupported(wrong)
