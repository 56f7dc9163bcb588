"""The rows of a profile: kernels with times, amounts and floors, and sums of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from dlc.runtime.artifact.kernel_records import GpuRoof, Roof
from dlc.runtime.profiling.stages import StageTimes

By: TypeAlias = Literal["kernel", "layer", "line"]
"""What the rows of a table are."""

LEVELS = ("L1", "L2", "L3", "memory")
SHARED = 2
"""The first of the levels that all threads share."""
UNNAMED = "(whole)"
"""The layer of kernels that belong to no submodule."""


class Floor(NamedTuple):
    """The least milliseconds that a kernel can take, and what sets them: `arithmetic` or a level."""

    ms: float
    bound: str


class Interval(NamedTuple):
    """The work of a thread on an op in one call, in nanoseconds from the first start."""

    op: int
    thread: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel, or the sum of several: what a call spends there.

    `ms` is its part of the wall time of a call, `busy_ms` the time of all threads together. `runs` is how
    often it runs in a call; `predicted_ms` is what the cost model of the compiler says for one thread.
    """

    title: str
    path: str
    what: str
    kernel: str
    place: str
    """`file:line:col` in the user's text; empty if it has none."""
    line: str
    """That line of the text."""
    runs: int
    ms: float
    busy_ms: float
    operations: int
    bytes: int
    predicted_ms: float
    floor: Floor

    @property
    def share(self) -> float:
        """The floor's share of the time: 1 is as fast as the machine allows."""
        return self.floor.ms / self.ms if self.ms > 0 else 0.0

    @property
    def gflops(self) -> float:
        """Operations in a nanosecond."""
        return self.operations / self.ms / 1e6 if self.ms > 0 else 0.0

    @property
    def gbytes(self) -> float:
        """Bytes in a nanosecond."""
        return self.bytes / self.ms / 1e6 if self.ms > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Measurements:
    """Where the time of a call goes.

    Each time is the mean of the smallest quarter of the rounds: the others have other work in them.
    """

    model: str
    entry: str
    device: str
    dims: Mapping[str, int]
    threads: int
    rounds: int
    call_ms: float
    """A plain call."""
    processor_ms: float
    """The processor time of the calling thread in it: less where other work interrupted it."""
    python_ms: float
    """Of a call, what is spent before the compiled code and after it, for arguments and results."""
    between_ms: float
    """In the compiled code, while no thread is in a kernel."""
    interrupted_ms: float
    """The rest that is not the sum of the rows: most often other work on the machine."""
    overhead: float
    """By how much the trace lengthens the compiled code: 0.01 is a hundredth. It is in no other figure."""
    busy: tuple[float, ...]
    """By thread: its share of the time in the compiled code that it works in kernels."""
    rows: tuple[Row, ...]
    """By op id, without those that did not run."""
    intervals: tuple[Interval, ...] = field(default=(), repr=False)
    """One of the calls, with op ids as indices of `ops`."""
    ops: Mapping[int, Row] = field(default_factory=dict[int, Row], repr=False)
    decisions: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]], repr=False
    )
    """What the compiler decided, by `file:line` of the user's text."""
    transfers_ms: float = 0.0
    """With a GPU: copies between host and device."""
    stages: StageTimes | None = field(default=None, repr=False)
    """Of a call that the stages of a pipeline make together: what this one does, and the share of that."""

    @property
    def on_gpu(self) -> bool:
        """Whether all kernels ran on a GPU."""
        return self.device.startswith("cuda")

    @property
    def uses_gpu(self) -> bool:
        """Whether some did."""
        return "cuda" in self.device

    @property
    def kernels_ms(self) -> float:
        """The sum of the rows."""
        return sum(row.ms for row in self.rows)

    def by(self, what: By) -> tuple[Row, ...]:
        """The rows, the dearest first: each kernel, or sums over a module's path or a line of the text."""
        if what == "kernel":
            return tuple(sorted(self.rows, key=_time))
        key: Callable[[Row], str] = _layer if what == "layer" else _line
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(key(row), []).append(row)
        return tuple(sorted((summed(name, rows) for name, rows in groups.items()), key=_time))


def summed(title: str, rows: Iterable[Row]) -> Row:
    """The sum of rows, under a title."""
    rows = list(rows)
    first = max(rows, key=lambda row: row.ms)
    return Row(
        title,
        first.path,
        "",
        "",
        first.place,
        first.line,
        sum(row.runs for row in rows),
        sum(row.ms for row in rows),
        sum(row.busy_ms for row in rows),
        sum(row.operations for row in rows),
        sum(row.bytes for row in rows),
        sum(row.predicted_ms for row in rows),
        Floor(sum(row.floor.ms for row in rows), first.floor.bound),
    )


def floor_of(roof: Roof, operations: int, bytes: int, runs: int, threads: int) -> Floor:
    """The least time of `runs` runs of a kernel with these amounts each, on `threads` threads.

    Bytes come from the smallest level that holds all of them.

    >>> floor_of(Roof(4000, ((1000, 2), (0, 40))), 1_000_000, 2000, 1, 1)
    Floor(ms=0.004, bound='arithmetic')
    >>> floor_of(Roof(4000, ((1000, 2), (0, 40))), 1000, 2000, 1, 1)
    Floor(ms=8e-05, bound='memory')
    """
    if not roof.operation or not roof.levels:
        return Floor(0.0, "")
    arithmetic = operations * roof.operation / 1e12 / threads
    last = len(roof.levels) - 1
    level = next(k for k, (held, _) in enumerate(roof.levels) if bytes <= held or k == last)
    traffic = bytes * roof.levels[level][1] / 1e9 / (threads if level < min(SHARED, last) else 1)
    name = LEVELS[-1] if level == last else LEVELS[level]
    return Floor(max(arithmetic, traffic) * runs, "arithmetic" if arithmetic >= traffic else name)


def gpu_floor_of(roof: GpuRoof, kernel: str, operations: int, bytes: int, runs: int) -> Floor:
    """The least time of `runs` runs of a kernel on a GPU, at the rate of matrix instructions if it has any.

    Bytes come from the second-level cache if that holds all of them.

    >>> gpu_floor_of(GpuRoof(20_000, 2_000, 1000, 8_000, {"mul": 300_000}), "mul", 600_000_000, 4000, 2)
    Floor(ms=0.004, bound='arithmetic')
    """
    if not roof.operations or not roof.memory or not roof.cache:
        return Floor(0.0, "")
    arithmetic = operations / roof.matrices.get(kernel, roof.operations) / 1e6
    in_cache = bytes <= roof.cache_bytes
    traffic = bytes / (roof.cache if in_cache else roof.memory) / 1e6
    bound = "arithmetic" if arithmetic >= traffic else LEVELS[1] if in_cache else LEVELS[-1]
    return Floor(max(arithmetic, traffic) * runs, bound)


def _time(row: Row) -> tuple[float, str]:
    return -row.ms, row.title


def _layer(row: Row) -> str:
    return row.path or UNNAMED


def _line(row: Row) -> str:
    file, _, rest = row.place.rpartition("/")
    del file
    where = rest.rpartition(":")[0] or "(no place in a text)"
    return f"{where} {row.line}".rstrip()
