"""Every reader, led by the code that its inputs reach: libFuzzer, by Atheris.

One process for each reader searches from whole files on, changing inputs by what knows their format and by
bytes. An input is kept that ends it with anything but a typed error, or takes more than 20 s or too much
memory.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.contenders.environment import cache_folder, python_with
from benchmarks.fuzz.file_readers import READERS

ATHERIS = ("atheris==3.0.0",)
ROOT = Path(__file__).parents[2]
KEPT = ROOT / "out" / "fuzz"
"""Where inputs are kept that did what none may do."""
LONGEST, LARGEST = 20, 1 << 20
"""Seconds that one input may take, and its most bytes."""
MOST_MIB = 1024
"""Memory of a process: what Python and the compiler take, and 64 bytes for each byte of an input."""
MOST_FAILURES = 10
"""Of one reader, then its search ends."""


@dataclass(slots=True)
class Searched:
    """What came of one reader."""

    reader: str
    inputs: int = 0
    reached: int = 0
    """Places in the code that inputs reached."""
    failures: list[str] = field(default_factory=list[str])
    seconds: float = 0.0


def environment() -> dict[str, str]:
    """What a process needs to find Atheris. Ends the program where it cannot be installed."""
    try:
        python_with("atheris", ATHERIS)
    except subprocess.CalledProcessError:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        sys.exit(
            f"Atheris is not there for Python {version}: `pip install {ATHERIS[0]}` failed; run this with "
            "CPython 3.11 on Linux, for which there is a wheel"
        )
    base = cache_folder() / "atheris"
    packages = sysconfig.get_path("purelib", vars={"base": str(base)})
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{packages}", "DLC_CACHE": ""}


def search(
    name: str, count: int, seed: int, until: float | None, where: dict[str, str]
) -> Searched:
    """Search one reader until `count` inputs were read, it failed too often, or the time is up."""
    found, began = Searched(name), time.monotonic()
    with tempfile.TemporaryDirectory() as corpus:
        for attempt in range(MOST_FAILURES):
            left = None if until is None else int(until - time.monotonic())
            if found.inputs >= count or (left is not None and left < 1):
                break
            before = len(found.failures)
            _once(found, corpus, (count - found.inputs, seed + attempt, left), where)
            if len(found.failures) == before:
                break
    found.seconds = round(time.monotonic() - began, 1)
    return found


def _once(
    found: Searched, corpus: str, how: tuple[int, int, int | None], where: dict[str, str]
) -> None:
    """One process; adds what it found."""
    count, seed, left = how
    kept = KEPT / found.reader
    kept.mkdir(parents=True, exist_ok=True)
    options = [f"-runs={count}", f"-seed={seed + 1}", f"-timeout={LONGEST}", f"-max_len={LARGEST}"]
    options += [f"-rss_limit_mb={MOST_MIB}", f"-artifact_prefix={kept}{os.sep}"]
    options += [] if left is None else [f"-max_total_time={left}"]
    command = [sys.executable, "-m", "benchmarks.fuzz.reader_target", found.reader, corpus]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=where, capture_output=True, text=True, check=False
    )
    told = done.stderr + done.stdout
    inputs = [int(number) for number in re.findall(r"^#(\d+)\s", told, re.MULTILINE)]
    found.inputs += max(inputs, default=0)
    found.reached = max([found.reached, *map(int, re.findall(r" cov: (\d+)", told))])
    if done.returncode != 0:
        found.failures.append(failure(told, done.returncode))


def failure(told: str, code: int) -> str:
    """What ended a process, and the file that repeats it."""
    file = re.search(r"Test unit written to (\S+)", told)
    why = re.search(r"=== Uncaught Python exception: ===\s*\n(.*)", told)
    error = re.search(r"^==\d+==\s*(?:ERROR: )?(.*)$", told, re.MULTILINE)
    said = why.group(1) if why else error.group(1) if error else told.strip()[-300:]
    return f"{said} (exit status {code}); the input is {file.group(1) if file else 'not kept'}"


def run(
    names: Sequence[str] | None,
    count: int,
    seed: int,
    jobs: int,
    seconds: float | None,
    output: Path | None,
) -> int:
    """Search all readers, or those of these names; gives the exit code."""
    names = names or list(READERS)
    if wrong := set(names) - set(READERS):
        print(f"no reader is called {', '.join(wrong)}: {', '.join(READERS)}", file=sys.stderr)
        return 2
    where = environment()
    until = None if seconds is None else time.monotonic() + seconds

    def one(name: str) -> Searched:
        # Without a fixed share the first readers would use up all the time.
        share = (
            None
            if until is None
            else time.monotonic() + (seconds or 0) * jobs / max(jobs, len(names))
        )
        found = search(name, count, seed, share, where)
        print(f"{name}: {found.inputs} inputs, {len(found.failures)} failures", file=sys.stderr)
        return found

    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(one, names))
    print("\n".join(_lines(found, seed)))
    if output is not None:
        facts = {"kind": "readers", "seed": seed, "readers": [asdict(row) for row in found]}
        output.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return 1 if any(row.failures for row in found) else 0


def _lines(found: list[Searched], seed: int) -> Iterator[str]:
    yield f"{'reader':12} {'inputs':>9} {'reached':>8} {'failures':>8} {'seconds':>8}"
    for row in found:
        yield (
            f"{row.reader:12} {row.inputs:9} {row.reached:8} {len(row.failures):8} {row.seconds:8.1f}"
        )
    for row in found:
        for failure in row.failures:
            yield f"{row.reader}: seed {seed}: {failure}"
            yield f"    python -m benchmarks.fuzz.reader_target {row.reader} FOLDER INPUT"
