"""Calls in a stream of the caller's, which nobody waits for: between work of other libraries.

Such a call returns as soon as its kernels are in the stream, as those of PyTorch do. Each stream has a
frame of its own, so that the calls in it use arena and graphs one after the other. While the stream is
captured (`cuStreamBeginCapture`, `torch.cuda.graph`), kernels are launched one by one and become nodes of
the other library's graph; the memory that they use then stays as it is for as long as this object lives.

What a kernel reports is copied to pinned memory behind each call, and raised by the first call or `wait`
that finds it there.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from dlc.errors import CallError, UsageError
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.gpu.frame import GpuFrame


class Point(Protocol):
    """The part of an entry point on a GPU that this needs."""

    def own_frame(self) -> GpuFrame:
        """A frame that no other call uses; `cancel` reaches it."""
        ...

    def let_go(self, frame: GpuFrame) -> None:
        """Drop a frame of `own_frame` that no later call uses."""
        ...

    def start_in(
        self, frame: GpuFrame, args: Sequence[object], named: Mapping[str, object], out: object
    ) -> tuple[object, object]:
        """Start a call in this frame: what it gives, and what has to live until it is over."""
        ...

    def failure(self, words: Sequence[int]) -> CallError:
        """The error of a call that ended with these words."""
        ...


class StreamCalls:
    """An entry point, called in a stream without waiting for it.

    Arguments and results lie on the GPU, and results are valid for work that is put into the stream later.
    """

    def __init__(self, point: Point, driver: Driver, stream: object) -> None:
        """Raises UsageError (D0902) for what is not a stream."""
        self._frame: GpuFrame | None = None
        self._captured: list[tuple[GpuFrame, object]] = []
        """The frames of calls that were captured, and the arrays whose addresses their graphs have."""
        self._point = point
        self._driver = driver
        self._stream = stream_handle(stream)
        self._owner = stream
        """Keeps the stream alive, whose library would destroy it."""
        self._lock = threading.Lock()

    def __call__(self, /, *args: object, out: object = None, **named: object) -> object:
        """Put a call into the stream.

        Raises CallError: D0805 for an argument on the host; what an earlier call in this stream has failed
        with; and as other calls do.
        """
        with self._lock:
            with self._driver as driver:
                is_captured = driver.is_capturing(self._stream)
            if is_captured:
                return self._capture(args, named, out)
            self._raise_failures()
            if self._frame is None:
                self._frame = self._new_frame()
            given, _ = self._point.start_in(self._frame, args, named, out)
            return given

    def wait(self) -> None:
        """Wait until all work in the stream is done. Raises CallError for a call that has failed."""
        with self._lock:
            with self._driver as driver:
                driver.synchronize(self._stream)
            self._raise_failures()

    def __del__(self) -> None:
        # The last calls may be under way, and a captured graph may be replayed once more.
        for frame in self._frames():
            self._point.let_go(frame)
            self._driver.retired.append(frame)
        self._driver.retired.append(self._captured)

    def _new_frame(self) -> GpuFrame:
        frame = self._point.own_frame()
        frame.move_to(self._stream)
        return frame

    def _capture(self, args: Sequence[object], named: Mapping[str, object], out: object) -> object:
        with self._driver as driver, driver.allowing_allocations():
            frame = self._new_frame()
            frame.is_captured = True
            given, held = self._point.start_in(frame, args, named, out)
        self._captured.append((frame, held))
        return given

    def _raise_failures(self) -> None:
        for frame in self._frames():
            words = frame.reported()
            if words is not None:
                raise self._point.failure(words)

    def _frames(self) -> list[GpuFrame]:
        captured = [frame for frame, _ in self._captured]
        return captured if self._frame is None else [self._frame, *captured]


def stream_handle(stream: object) -> int:
    """The driver's handle of a stream: a number, or a stream of PyTorch, CuPy or cuda.core.

    Raises UsageError (D0902) for anything else.
    """
    handle = _told_handle(stream)
    if isinstance(handle, int) and not isinstance(handle, bool) and 0 <= handle < 1 << 64:
        return handle
    shown = f"{stream}" if isinstance(stream, int) else type(stream).__name__
    raise UsageError(
        f"{shown} is not a stream of CUDA",
        code="D0902",
        help="give torch.cuda.current_stream(), a stream of CuPy or cuda.core, or a handle",
    )


def _told_handle(stream: object) -> object:
    """What a stream says that its handle is; itself where it says nothing."""
    for name in ("cuda_stream", "ptr"):
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    protocol = getattr(stream, "__cuda_stream__", None)
    if not callable(protocol):
        return stream
    told = protocol()
    _, handle = cast("tuple[object, object]", told) if isinstance(told, tuple) else (0, None)
    return handle
