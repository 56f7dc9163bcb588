"""The context that all entry points of a model share, and the limits on the memory of their calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dlc.errors import CallError
from dlc.runtime.calling.frames import CallFrame, FrameSource, working_bytes
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.system.available_memory import check_fits, check_free
from dlc.runtime.weights.model_weights import WeightStore


class Runner(NamedTuple):
    """The context that all entry points of a model share."""

    machine: FrameSource
    weights: WeightStore
    threads: int
    max_memory: int | None
    room: int | None
    """Bytes for a call and its results, if the artifact limits its memory."""
    texts: Callable[[], Mapping[str, str]]

    def check_memory(
        self,
        entry: str,
        specialization: Specialization,
        idle: Sequence[CallFrame],
        *,
        lent: bool = False,
    ) -> None:
        """Check that a call has its memory; `lent`: the caller lends the arena.

        Raises CallError (D0613) for more than `max_memory` or than the model promises, and Unsupported
        (D0705) for more than the machine has.
        """
        needed = working_bytes(specialization.sized, self.threads)
        results = specialization.result_bytes
        # A lent arena, or the working memory of an earlier call, is allocated already.
        roomy = lent or any(frame.room >= needed for frame in idle)
        check = check_fits if roomy else check_free
        check(f"a call of {entry}", needed + results)
        if self.max_memory is not None and needed > self.max_memory:
            raise CallError(
                f"{entry}: a call needs {needed} bytes, allowed are {self.max_memory}",
                code="D0613",
                help="use smaller sizes, fewer threads, or a larger max_memory",
            )
        if self.room is not None and needed + results > self.room:
            raise CallError(
                f"{entry}: a call needs {needed + results} bytes besides the weights, the model "
                f"promises to need no more than {self.room}",
                code="D0613",
                help="use smaller sizes, or raise the limit where the model is compiled",
            )


def no_runner(entry: str, *, closed: bool) -> CallError:
    """The error (D0811) of an entry point that runs no longer, since its model was closed, or never did."""
    if closed:
        return CallError(
            f"{entry}: the model was closed",
            code="D0811",
            help="call it before close(), and within `with`; or load it again",
        )
    return CallError(
        f"{entry}: the model was loaded as untrusted: its code does not run",
        code="D0811",
        help="compile the verified graph inside it, dlc.compile(path); or load it without "
        "untrusted=True, if you trust it as a program",
    )
