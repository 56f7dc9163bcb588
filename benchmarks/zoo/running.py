"""Compiles every network of a folder, runs it beside its own framework, and prints one table."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders.turns import NotReady, Process, take_turns
from benchmarks.zoo import children
from benchmarks.zoo.children import Limits
from benchmarks.zoo.contender import read
from benchmarks.zoo.refusals import Option, Refusal, named_sizes, options_named, refusal
from benchmarks.zoo.row_order import in_order_of

Array: TypeAlias = NDArray[Any]

PEERS = {".onnx": "onnxruntime", ".pt2": "torch", ".mlir": "jax"}
"""The framework of each kind of file."""
TOLERANCE = 1e-4
"""Of the largest element of each result; integers and truth values must be equal."""
SMALLEST = 1e-3
"""The least that a largest element counts as: a probability near zero has the rounding of one near one."""
TIMES_PEER = 8
"""A larger error is allowed where the framework differs from itself, without its optimisations: up to so
many times that difference."""
TIMES_LAST_BIT = 2
"""And where its results change with the last bit of its inputs, as those of quantised networks do."""
TIMES_IN_F32 = 4
"""And where the network computes in f16: up to so many times what f32 in its place changes."""
OF_ITSELF = {
    "onnxruntime_plain": TIMES_PEER,
    "onnxruntime_last_bit": TIMES_LAST_BIT,
    "onnxruntime_in_f32": TIMES_IN_F32,
}
"""What ONNX Runtime is compared with to learn how far it is from itself."""
TOP_1_RANKS = (2, 3)
"""Of batch and classes, perhaps with places between them."""
TRIES = 4
"""How often a network is compiled again with what the message before names."""
MIB = 1 << 20


@dataclass(slots=True)
class Row:
    """What became of one network. Times are medians, at the largest of the three sizes."""

    name: str
    taken: str = "no"
    """`yes`, `with option`, `no`, or `call` where only a call was refused."""
    options: tuple[str, ...] = ()
    code: str = ""
    message: str = ""
    kind: str = ""
    error: float | None = None
    """The largest difference relative to the largest element of a result."""
    wrong: str = ""
    top_1: float | None = None
    """The share of rows whose largest element is the same, in the results of `TOP_1_RANKS` axes."""
    dlc_ms: float | None = None
    peer_ms: float | None = None
    dlc_mib: float | None = None
    """The most memory of the process beyond what it had before opening the network."""
    peer_mib: float | None = None
    compile_s: float | None = None
    """Of the command `dlc compile`, from start to end."""
    compile_mib: float | None = None

    def refuse(self, why: Refusal, taken: str = "no") -> Row:
        """The row of a network that is not in."""
        self.taken, self.code, self.message, self.kind = taken, why.code, why.message, why.kind
        return self


@dataclass(frozen=True, slots=True)
class Setting:
    """How the networks of a folder are run."""

    python: str
    """The interpreter of the peers' environment."""
    limits: Limits
    threads: int
    rounds: int
    """Turns of each contender; with 0 nothing is timed."""
    only_import: bool = False
    """Whether networks are only read as graphs: quick, and most refusals show there."""


def networks_in(folder: Path, pattern: str) -> list[Path]:
    """The files of every kind whose name without suffix fits the pattern."""
    found = [path for path in folder.iterdir() if path.suffix in PEERS and ".part" not in path.name]
    return sorted(path for path in found if fnmatch(path.stem, pattern))


def inputs_of(path: Path) -> list[Path]:
    """The files with the inputs of a network, from the smallest size to the largest."""
    return [
        path.with_name(f"{path.stem}.{k}.npz")
        for k in range(3)
        if path.with_name(f"{path.stem}.{k}.npz").exists()
    ]


def run(
    folder: Path, pattern: str, setting: Setting, jobs: int, json_file: Path | None = None
) -> list[Row]:
    """A row for each network, printed, and written with those before it, as soon as it is there."""
    print(heading(), flush=True)
    rows: list[Row] = []

    def row_of(path: Path) -> Row:
        with tempfile.TemporaryDirectory() as room:
            return row_for(path, Path(room), setting)

    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(row_of, networks_in(folder, pattern)):
            print(line(row), flush=True)
            rows.append(row)
            if json_file:
                json_file.write_text(json.dumps([asdict(each) for each in rows], indent=1))
    return rows


@dataclass(frozen=True, slots=True)
class Part:
    """A compiled file, and the inputs that it is for: all, unless an option depends on them."""

    file: Path
    inputs: tuple[Path, ...]


def row_for(path: Path, room: Path, setting: Setting) -> Row:
    """Compile and run one network."""
    row = Row(path.stem)
    found = _compiled(path, room, row, setting)
    if isinstance(found, Refusal):
        return row.refuse(found)
    if setting.only_import:
        return row
    if not inputs_of(path):
        row.message = f"there is no {path.stem}.0.npz with inputs"
        return row
    return _agree(path, found, row, setting, room)


def _compiled(path: Path, room: Path, row: Row, setting: Setting) -> list[Part] | Refusal:
    """Compile, again with what the messages name; the first refusal if that does not help."""
    inputs = inputs_of(path)
    given = [read(str(each)) for each in inputs]
    sizes = [named_sizes(path, each) for each in given]
    first: Refusal | None = None
    options: list[Option] = []
    for _ in range(TRIES):
        filled: list[tuple[str, ...]] = [
            tuple([option.at(*each) for option in options])
            for each in zip(given, sizes, strict=True)
        ] or [()]
        groups: dict[tuple[str, ...], list[Path]] = {each: [] for each in filled}
        for each, source in zip(filled, inputs, strict=False):
            groups[each].append(source)
        why, parts = _compile_each(path, groups, room, row, setting)
        if why is None:
            row.taken, row.options = "with option" if options else "yes", filled[-1]
            if first is not None:
                row.code, row.message, row.kind = first.code, first.message, first.kind
            return parts
        first = first or why
        more = [each for each in options_named(why.text) if each not in options]
        if not more or not given:
            return first
        options += more
    assert first is not None
    return first


def _compile_each(
    path: Path,
    groups: Mapping[tuple[str, ...], Sequence[Path]],
    room: Path,
    row: Row,
    setting: Setting,
) -> tuple[Refusal | None, list[Part]]:
    """Compile once for each group of inputs that have the same options; stops at a refusal."""
    parts: list[Part] = []
    for options, inputs in groups.items():
        file = room / f"network.{len(parts)}.dlc"
        verb = ["compile", str(path), "-o", str(file)]
        if setting.only_import and not options:
            verb = ["show", str(path), "--stage", "graph"]
        ended = children.run(
            [sys.executable, "-m", "dlc", *verb, *options], setting.limits, file.parent
        )
        row.compile_s, row.compile_mib = ended.seconds, ended.peak_bytes / MIB
        if ended.status != 0:
            return refusal(ended.said, ended.status), []
        parts.append(Part(file, tuple(inputs)))
    return None, parts


def _agree(path: Path, parts: Sequence[Part], row: Row, setting: Setting, room: Path) -> Row:
    """Run both at every size, compare, and let them take turns at the largest."""
    peer_kind = PEERS[path.suffix]
    try:
        for part in parts[:-1]:
            with _contender("dlc", part.file, part.inputs, room, setting) as dlc:
                if "failed" in dlc.facts:
                    return row.refuse(refusal(str(dlc.facts["failed"]), 1), "call")
        with (
            _contender("dlc", parts[-1].file, parts[-1].inputs, room, setting) as dlc,
            _contender(peer_kind, path, inputs_of(path), room, setting) as peer,
        ):
            if "failed" in dlc.facts:
                return row.refuse(refusal(str(dlc.facts["failed"]), 1), "call")
            if "failed" in peer.facts:
                row.message = f"{peer_kind}: {peer.facts['failed']}"
                return row
            row.dlc_mib = dlc.facts["memory_bytes"] / MIB
            row.peer_mib = peer.facts["memory_bytes"] / MIB
            _compare(path, row, setting, room)
            if setting.rounds:
                take_turns([dlc, peer], setting.rounds)
                row.dlc_ms = float(np.median(dlc.times))
                row.peer_ms = float(np.median(peer.times))
    except NotReady as late:
        return row.refuse(
            Refusal("time", f"{late} has no results within the limit of time"), "call"
        )
    except SystemExit as ended:
        return row.refuse(Refusal("crash", str(ended)), "call")
    return row


def _contender(
    kind: str, file: Path, inputs: Sequence[Path], room: Path, setting: Setting
) -> Process:
    # dlc reads StableHLO where JAX is installed beside it.
    python = sys.executable if kind in ("dlc", "jax") else setting.python
    command = [python, "-m", "benchmarks.zoo.contender", kind, str(file), str(room / kind)]
    command += [str(setting.threads), *[str(each) for each in inputs]]
    return Process(
        kind, children.limited(command, setting.limits), {}, patience=setting.limits.seconds
    )


def _compare(path: Path, row: Row, setting: Setting, room: Path) -> None:
    """Fill in the largest error, and what is wrong if something is."""
    kind = PEERS[path.suffix]
    error, wrong = difference("dlc", kind, path, room)
    row.error, row.wrong = error, wrong
    row.top_1 = None if wrong else top_1("dlc", kind, path, room)
    if wrong or error <= TOLERANCE:
        return
    allowed = TOLERANCE
    for other, times in OF_ITSELF.items() if kind == "onnxruntime" else ():
        if error <= allowed:
            break
        with _contender(other, path, inputs_of(path), room, setting):
            allowed = max(allowed, times * difference(other, kind, path, room)[0])
    if error > allowed:
        row.wrong = f"{error:.1e} of the largest element"


def difference(one: str, other: str, path: Path, room: Path) -> tuple[float, str]:
    """The largest relative difference of two contenders' results, and what is more than rounding."""
    worst = 0.0
    for k in range(len(inputs_of(path))):
        ours, theirs = (list(read(f"{room / each}.{k}.npz").values()) for each in (one, other))
        if len(ours) != len(theirs):
            return worst, f"{len(ours)} results instead of {len(theirs)}"
        for place, (found, peer) in enumerate(zip(ours, theirs, strict=True)):
            if (found.shape, found.dtype) != (peer.shape, peer.dtype):
                got, wanted = (f"{each.dtype}{list(each.shape)}" for each in (found, peer))
                return worst, f"result {place} at size {k} is {got} instead of {wanted}"
        ours = in_order_of(ours, theirs, TOLERANCE)
        for place, (found, peer) in enumerate(zip(ours, theirs, strict=True)):
            if peer.dtype.kind != "f":
                if not np.array_equal(found, peer):
                    share = float((found != peer).mean())
                    return worst, f"{share:.1%} of the integers of result {place} at size {k}"
                continue
            worst = max(worst, relative_error(found, peer))
    return worst, ""


def top_1(one: str, other: str, path: Path, room: Path) -> float | None:
    """The share of rows of two contenders' results whose largest element is the same; None without rows.

    It is the same, too, where the other's element there is as large but for the tolerance.
    """
    same: list[bool] = []
    for k in range(len(inputs_of(path))):
        ours, theirs = (read(f"{room / each}.{k}.npz").values() for each in (one, other))
        for found, peer in zip(ours, theirs, strict=True):
            if peer.dtype.kind == "f" and peer.ndim in TOP_1_RANKS and peer.shape[-1] > 1:
                there = np.take_along_axis(peer, found.argmax(-1)[..., None], -1)[..., 0]
                below = (peer.max(-1) - there) / np.abs(peer).max(initial=SMALLEST)
                same += (below <= TOLERANCE).ravel().tolist()
    return float(np.mean(same)) if same else None


def relative_error(found: Array, peer: Array) -> float:
    """The largest difference, relative to the peer's largest finite element; equal infinities are equal.

    >>> relative_error(np.float32([1, 2.5]), np.float32([1, 2]))
    0.25
    """
    one, other = found.astype(np.float64), peer.astype(np.float64)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(one - other))
    scale = np.abs(other[np.isfinite(other)]).max(initial=SMALLEST)
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0) / scale)


def heading() -> str:
    """The heads of the columns."""
    return (
        f"{'network':34} {'in':12} {'agree':>9} {'dlc ms':>8} {'peer ms':>8} {'dlc MiB':>8} "
        f"{'peer MiB':>8} {'compile s':>9}"
    )


def line(row: Row) -> str:
    """A row of the table."""

    def figure(value: float | None, width: int, form: str) -> str:
        return f"{'-' if value is None else format(value, form):>{width}}"

    taken = row.taken if row.taken in {"yes", "with option"} else f"{row.taken} {row.code}"
    agree = f"{'WRONG':>9}" if row.wrong else figure(row.error, 9, ".1e")
    figures = [figure(row.dlc_ms, 8, ".2f"), figure(row.peer_ms, 8, ".2f")]
    figures += [figure(row.dlc_mib, 8, ".1f"), figure(row.peer_mib, 8, ".1f")]
    return " ".join(
        [f"{row.name:34} {taken:12} {agree}", *figures, figure(row.compile_s, 9, ".1f")]
    )


def summary(rows: Sequence[Row]) -> str:
    """How many are in, and what keeps the others out, the most frequent first."""
    count = {kind: sum(row.taken == kind for row in rows) for kind in ("yes", "with option")}
    wrong = [row for row in rows if row.wrong]
    least = max(len(rows), 1)
    lines = [
        f"{len(rows)} networks: {count['yes']} in ({count['yes'] / least:.1%}), "
        f"{count['with option']} with an option, "
        f"{len(rows) - sum(count.values())} not, {len(wrong)} wrong"
    ]
    lines += [f"wrong: {row.name}: {row.wrong}" for row in wrong]
    lines += [
        f"not compared: {row.name}: {row.message}" for row in rows if row.message and not row.code
    ]
    lines += [
        f"top-1 is the same in {row.top_1:.1%} of the rows of {row.name}"
        for row in rows
        if row.top_1 is not None and row.top_1 < 1
    ]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.code:
            groups.setdefault((row.code, row.kind), []).append(row)
    for (code, _), members in sorted(groups.items(), key=lambda each: -len(each[1])):
        names = ", ".join([row.name + (" (with option)" if row.options else "") for row in members])
        lines += [f"{len(members)} × {code}: {members[0].message}", f"    {names}"]
    return "\n".join(lines)
