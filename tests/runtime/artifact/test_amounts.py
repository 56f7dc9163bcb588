"""What a file takes to be read, or refused, is bounded by its length: time and memory for each byte."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import TypeAlias, cast

import numpy as np
import pytest

from dlc.errors import ArtifactError
from dlc.runtime import abi
from dlc.runtime.artifact.certificate import RootRecord
from dlc.runtime.artifact.manifest import Entry, Input, Output
from dlc.runtime.model import Model
from tests.runtime import building
from tests.runtime.artifact.sealing import Json, put_together, take_apart
from tests.suites import every

Object: TypeAlias = dict[str, Json]
Parts: TypeAlias = tuple[Object, dict[str, bytes]]
Path: TypeAlias = tuple[str | int, ...]

SECONDS = 10.0
"""Of the processor, for each million bytes and for what is shorter: five times what is promised."""
BYTES = 64
"""Of memory for each byte of a file."""
QUICK = 8.0
"""Seconds for what took twice as long, and now takes a tenth."""
FIXED = 2 << 20
"""Bytes that any model takes."""
CERTIFICATE, PROGRAM = "certificate/cpu/f", "program/cpu/f"


def read(file: bytes, seconds: float | None = None) -> str:
    """Load a file within its bounds of time, or so many seconds; the refusal, or nothing."""
    began = time.process_time()
    try:
        Model.from_bytes(file, untrusted=True, threads=1)
        said = ""
    except ArtifactError as error:
        said = str(error)
    assert time.process_time() - began < (seconds or SECONDS * max(1.0, len(file) / 1e6))
    return said


def spelled(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def tiny() -> Parts:
    return take_apart(building.tiny().artifact().to_bytes())


def at(value: Json, path: Path) -> Json:
    """What is at a place of a manifest or a certificate."""
    for step in path:
        value = cast("Mapping[str | int, Json]", value)[step]
    return value


def lists(value: Json, path: Path = ()) -> Iterator[Path]:
    """The places of lists in a manifest or a certificate; of several records alike, in the first."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from lists(inner, (*path, key))
    elif isinstance(value, list):
        yield path
        for inner in value[:1]:
            yield from lists(inner, (*path, 0))


def grow(value: Json, path: Path, count: int) -> None:
    """Let a list have so many items, of different names, like its first one."""
    found = at(value, path)
    assert isinstance(found, list)
    first = found[0] if found else "x"
    for number in range(count):
        renamed = {"name": f"x{number}"} if isinstance(first, dict) and "name" in first else {}
        found.append({**first, **renamed} if isinstance(first, dict) else first)


def grown_files(count: int) -> Iterator[tuple[str, bytes]]:
    """Files in each of which one list is so long, and what it is called."""
    for path in lists(cast(Json, tiny()[0])):
        if path[0] == "sections":
            continue
        manifest, sections = tiny()
        grow(manifest, path, count)
        yield f"manifest {path}", put_together(manifest, sections)
    for path in lists(json.loads(tiny()[1][CERTIFICATE])):
        manifest, sections = tiny()
        certificate: Json = json.loads(sections[CERTIFICATE])
        grow(certificate, path, count)
        sections[CERTIFICATE] = spelled(certificate)
        yield f"certificate {path}", put_together(manifest, sections)


@pytest.mark.parametrize("count", every(3, (2000, 10_000, 100_000)))
def test_every_list_may_be_long(count: int) -> None:
    files = dict(grown_files(count))
    assert len(files) > 15
    for file in files.values():
        read(file)


@pytest.mark.parametrize("count", every(2, (400, 1500)))
def test_memory_is_bounded_by_the_length_of_a_file(count: int) -> None:
    for name, file in grown_files(count):
        tracemalloc.start()
        read(file)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < FIXED + BYTES * len(file), name


# What was long before it was bounded.


def chain(calls: int) -> Parts:
    """A program of so many calls in one room of the arena."""
    draft, made = building.Draft(), building.Assembler(inputs=1)
    room = made.pointer(abi.Root.ARENA)
    for number in range(calls):
        made.wave("add", 4, room, made.input(0) if number == 0 else room, made.input(0))
    made.wave("add", 4, made.output(0), room, room)
    made.end()
    program = draft.program("f", made, arena="64", roots=[RootRecord("sum", "64", 0, calls, "0")])
    entry = Entry("f", (Input("x", "f32", ("4",)),), (Output("", "f32", ("4",)),))
    draft.entry(entry, program)
    return take_apart(draft.artifact().to_bytes())


def with_certificate(parts: Parts, **changes: Json) -> bytes:
    manifest, sections = parts
    certificate = {**json.loads(sections[CERTIFICATE]), **changes}
    return put_together(manifest, {**sections, CERTIFICATE: spelled(certificate)})


def entry_of(parts: Parts) -> Object:
    return cast(Object, at(parts[0], ("entries", 0)))


def test_a_witness_is_looked_at_once() -> None:
    assert read(with_certificate(chain(2000), witnesses=[cast(Json, 1000)] * 100_000)) == ""


def test_many_witnesses_are_refused() -> None:
    distinct: list[Json] = [*range(2000)]
    said = read(with_certificate(chain(2000), witnesses=distinct))
    assert "it has 2000 witnesses; at most 16 are checked" in said


def test_many_rooms_in_use_at_once_are_read_quickly() -> None:
    manifest, sections = tiny()
    count = 50_000
    size = str(64 * count)
    room = at(json.loads(sections[CERTIFICATE]), ("roots", 0))
    assert isinstance(room, dict)
    rooms: list[Json] = [
        {**room, "name": "", "place": "", "bytes": "64", "offset": str(64 * (k * 7919 % count))}
        for k in range(count)
    ]
    cast(Object, at(manifest, ("targets", 0, "programs", "f")))["arena"] = size
    parts = manifest, sections
    assert read(with_certificate(parts, roots=rooms, arena=size, order_bound=size)) == ""


def test_sizes_of_too_many_characters_are_refused() -> None:
    manifest, sections = tiny()
    sizes = cast("list[Json]", at(manifest, ("targets", 0, "programs", "f", "sizes")))
    long = "+".join(["B"] * 990)
    sizes += [f"{number}+{long}" for number in range(8000)]
    assert "characters; at most 4194304 are read" in read(put_together(manifest, sections))


def test_sections_that_are_looked_at_item_by_item_are_not_too_long() -> None:
    manifest, sections = tiny()
    for name, most in ((CERTIFICATE, 8 << 20), (PROGRAM, 32 << 20)):
        said = read(put_together(manifest, {**sections, name: bytes(most)}))
        assert f"at most {most} are read" in said


def test_a_section_is_read_for_one_program_only() -> None:
    manifest, sections = tiny()
    entry, target = entry_of((manifest, sections)), cast(Object, at(manifest, ("targets", 0)))
    programs = cast(Object, target["programs"])
    names = [f"f{number}" for number in range(2000)]
    manifest["entries"] = [{**entry, "name": name} for name in names]
    target["programs"] = dict.fromkeys(names, programs["f"])
    assert "is that of two programs" in read(put_together(manifest, sections))


def test_too_many_entry_points_are_refused() -> None:
    manifest, sections = tiny()
    entry = entry_of((manifest, sections))
    manifest["entries"] = [{**entry, "name": f"f{number}"} for number in range(5000)]
    assert "entry points; at most 4096 are read" in read(put_together(manifest, sections))


def test_outputs_are_compared_with_many_dims_quickly() -> None:
    parts = tiny()
    entry = entry_of(parts)
    output = cast(Object, at(entry, ("outputs", 0)))
    entry["outputs"] = [{**output, "name": f"y{k}", "shape": []} for k in range(16_000)]
    add_dims(entry, 16_000)
    assert read(put_together(*parts), QUICK) == ""


def add_dims(entry: Object, count: int) -> None:
    dims: list[Json] = [
        {"lower": 0, "measured": None, "name": f"d{k}", "upper": 0} for k in range(count)
    ]
    entry["dims"] = [*cast("list[Json]", entry["dims"]), *dims]


def test_sizes_of_many_dims_are_solved_quickly() -> None:
    parts = tiny()
    entry = entry_of(parts)
    add_dims(entry, 40_000)
    first = cast(Object, at(entry, ("inputs", 0)))
    entry["inputs"] = [
        {
            **first,
            "name": f"x{k}",
            "shape": ["+".join(f"d{(100 * k + j) % 40_000}" for j in range(250))],
        }
        for k in range(4000)
    ]
    read(put_together(*parts), QUICK)


def test_calls_that_share_arguments_are_refused() -> None:
    parts = chain(100)
    words = np.frombuffer(parts[1][PROGRAM], "<i8").copy()
    count = int(words[0])
    steps = words[abi.HEADER_WORDS : abi.HEADER_WORDS + count * abi.STEP_WORDS].reshape(count, -1)
    calls = steps[:, abi.StepWord.OPCODE] == abi.Opcode.CALL
    steps[calls, abi.StepWord.B], steps[calls, abi.StepWord.C] = 0, abi.MAX_ARGS
    manifest, sections = parts
    said = read(put_together(manifest, {**sections, PROGRAM: words.tobytes()}))
    assert "its calls take 6464 arguments, and there are 303" in said


@pytest.mark.long
def test_many_loops_are_looked_at_quickly() -> None:
    manifest, sections = tiny()
    made = building.Assembler(inputs=0)
    for number in range(90_000):
        made.step(abi.Opcode.LOOP, 0, 0, 2 * number + 2)
        made.step(abi.Opcode.NEXT, 0, 0, 2 * number + 1)
    made.end()
    words = np.concatenate([made.words(), np.zeros(abi.ARG_WORDS, np.int64)])
    words[-abi.ARG_WORDS] = abi.ArgKind.SIZE
    assert read(put_together(manifest, {**sections, PROGRAM: words.tobytes()}), QUICK) == ""
