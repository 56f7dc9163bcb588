"""Artifacts that are well sealed and lie: every table is checked for what it says, not for its hash."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from dlc.driver.report.inspect import inspect_file
from dlc.driver.run.request import CompileRequest
from dlc.errors import ArtifactError, DlcError
from dlc.runtime.model import Model
from tests.fuzz.artifacts import inside, mutated_artifact
from tests.runtime import building
from tests.runtime.artifact.sealing import Json, put_together, take_apart
from tests.suites import together

TINY = building.tiny().artifact().to_bytes()
MANY = building.many().artifact().to_bytes()


def lie(path: str, value: Json, file: bytes = TINY) -> bytes:
    """The file with one value of its manifest replaced; the path has keys and list indices."""
    manifest, sections = take_apart(file)
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split(":")]
    place: Json = manifest
    for part in parents:
        place = inside(place, part)
    if isinstance(place, list):
        place[cast(int, last)] = value
    else:
        assert isinstance(place, dict)
        assert isinstance(last, str)
        assert last in place
        place[last] = value
    return put_together(manifest, sections)


def refusal(file: bytes) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        Model.from_bytes(file)
    return caught.value


def test_the_unchanged_file_loads() -> None:
    manifest, sections = take_apart(TINY)
    assert Model.from_bytes(put_together(manifest, sections)).name == "model.dlm"


PROGRAM = "targets:0:programs:f"


@together(
    ("path", "value", "code", "why"),
    [
        # weights
        ("weights:0:dtype", "f8", "D0607", "unknown dtype 'f8'"),
        ("weights:0:shape", [4, 5], "D0607", r"64 bytes, which is not \[4, 5\] of f32"),
        ("weights:0:shape", [-4, -4], "D0607", "which is not"),
        ("weights:0:shape", [1] * 13 + [16, 1, 1, 1], "D0607", "which is not"),
        ("weights:0:shape", [1 << 32, 1 << 32, 1 << 62], "D0607", "which is not"),
        ("weights:0:bytes", 60, "D0607", "60 bytes"),
        ("weights:0:offset", 64, "D0607", "must begin at byte 0"),
        ("weights:0:portion", [0, 1], "D0607", "has the portion"),
        ("weights:0:portion", [1, 1, 3], "D0607", "has the portion"),
        ("weights:0:portion", [0, 2, 1, 0], "D0607", "has the portion"),
        ("weights:0:portion", [0, 1, 3, 9], "D0607", "has the portion"),
        ("weights:0:portion", [0, 1 << 40, 1 << 41, 0], "D0607", "has the portion"),
        ("weights:0:offset", -64, "D0607", "must begin at byte 0"),
        ("weights:0:sha256", "0" * 63, "D0607", "something else for a SHA-256"),
        ("weights:0:name", "a\x1b[2J", "D0607", "cannot be printed"),
        ("weights:0:name", "", "D0607", "cannot be printed"),
        ("weights", [], "D0607", "end at byte 0 of the section, which has 64"),
        # machine
        ("targets:0:cpu:triple", "riscv64-unknown-linux-gnu", "D0608", "is for riscv64"),
        ("targets:0:cpu:triple", "x86_64-pc-windows-msvc", "D0608", "is for x86_64-pc-windows"),
        (
            "targets:0:cpu:features",
            ["avx2", "teleport"],
            "D0608",
            "needs .*teleport, which this processor",
        ),
        ("targets:0:cpu:pointer_bits", 32, "D0608", "32-bit"),
        ("targets:0:cpu:byte_order", "big", "D0608", "big-endian"),
        ("targets:0:cpu:byte_order", "middle", "D0604", "expected 'little' or 'big'"),
        ("targets:0:cpu:page_bytes", 100, "D0608", "pages of 100 bytes"),
        ("targets", [], "D0608", "no code at all"),
        ("targets:0:cpu", None, "D0611", "it is for no processor and for no GPU"),
        ("targets:0:abi", 99, "D0609", "version 99"),
        ("targets:0:cpu:engine:imports", ["system"], "D0609", "calls system, which code"),
        ("targets:0:cpu:code:imports", ["execve"], "D0609", "calls execve, which code"),
        ("targets:0:cpu:engine:symbols", [], "D0609", "no function dlc_enter"),
        ("targets:0:cpu:engine:symbols:0:offset", 1 << 40, "D0611", "outside section engine"),
        ("targets:0:cpu:engine:symbols:0:offset", -8, "D0611", "outside section engine"),
        ("targets:0:cpu:engine:symbols:0:offset", 0, "D0611", "outside section engine"),
        ("targets:0:cpu:code:sha256", "0" * 64, "D0606", "another SHA-256"),
        ("weights:0:sha256", "0" * 64, "D0606", "the SHA-256 of layer.w is not the one in the"),
        ("targets:0:cpu:code:sha256", "zz", "D0611", "no SHA-256"),
        ("targets:0:cpu:code:section", "weights", "D0611", "no section 'weights' of kind code"),
        ("targets:0:cpu:code:section", "code/gpu", "D0611", "no section 'code/gpu'"),
        ("targets:0:cpu:code:imports", ["memcpy"] * 2, "D0611", "two imports"),
        # programs
        (PROGRAM + ":section", "program/cpu/none", "D0611", "no section 'program/cpu/none'"),
        (PROGRAM + ":certificate", "program/cpu/f", "D0611", "of kind certificate"),
        (PROGRAM + ":sizes:0", "Q", "D0611", "mentions Q"),
        (PROGRAM + ":sizes:0", "$0", "D0611", "does not come before it"),
        (PROGRAM + ":sizes:0", "1 +", "D0611", "expected a number or a name"),
        (PROGRAM + ":sizes:0", "1//0", "D0610", "divides by 0"),
        (
            PROGRAM + ":sizes:0",
            "65",
            "D0610",
            "byte 65 of the arena is used in wave 0, where no root is live",
        ),
        (PROGRAM + ":sizes:1", "65", "D0611", "starts at byte 65 of root 5, which has 16"),
        (PROGRAM + ":sizes:0", "4611686018427387904", "D0610", "where no root is live"),
        (PROGRAM + ":sizes", [], "D0611", "a size that does not exist"),
        (PROGRAM + ":ops", [], "D0611", "an op that does not exist"),
        (PROGRAM + ":arena", "128", "D0610", "the plan is for 64 bytes, the call has 128"),
        (PROGRAM + ":arena", "0", "D0610", "the plan is for 64 bytes, the call has 0"),
        (PROGRAM + ":scratch", "1//(B - 1)", "D0610", "divides by 0"),
        (PROGRAM + ":gpu_scratch", "1//(B - 1)", "D0610", "divides by 0"),
        ("targets:0:programs", {}, "D0611", "not those of the entry points"),
        ("targets:0:cpu:code:symbols", [], "D0611", "a kernel that does not exist"),
        ("targets:0:prepare:bytes", -1, "D0611", "negative size"),
        ("targets:0:prepare:cached", "weights", "D0611", "of kind prepared"),
        ("mesh", [{"name": "data", "ranks": 0}], "D0611", "number of ranks out of range"),
        ("mesh", [{"name": "d", "ranks": 2}] * 2, "D0611", "two axes of the mesh"),
        ("targets:0:cpu:code:imports", ["comm:data"], "D0611", "the mesh has no such axis"),
        # entry points
        ("entries:0:name", "", "D0611", "cannot be printed"),
        ("entries:0:outputs", [], "D0611", "no output"),
        ("entries:0:inputs:0:dtype", "string", "D0611", "unknown dtype 'string'"),
        ("entries:0:inputs:0:shape", ["B"] * 17, "D0611", "17 axes"),
        ("entries:0:inputs:0:shape", ["$0", "4"], "D0611", "does not come before"),
        ("entries:0:inputs:0:shape", ["Z", "4"], "D0611", "mentions Z"),
        ("entries:0:inputs:1:name", "x", "D0611", "two inputs are called 'x'"),
        ("entries:0:inputs:1:name", "B", "D0611", "the name of an input and of a dim"),
        (
            "entries:0:inputs:0:default",
            {"shape": [1, 4], "data": "AAAA"},
            "D0611",
            "not of its type",
        ),
        ("entries:0:inputs:0:default", {"shape": [1, 4], "data": "*"}, "D0611", "not base64"),
        ("entries:0:inputs:0:default", {"shape": [1, 5], "data": ""}, "D0611", "not of its type"),
        (
            "entries:0:needs",
            [{"size": "B - Z", "code": "D0804", "told": "", "place": "", "end": 0, "equals": ""}],
            "D0611",
            "mentions Z",
        ),
        (
            "entries:0:needs",
            [{"size": "B - 1", "code": "D0101", "told": "", "place": "", "end": 0, "equals": ""}],
            "D0604",
            "expected 'D0804' or 'D0807'",
        ),
        ("entries:0:dims:0:lower", -1, "D0611", "negative lower bound"),
        ("entries:0:dims:0:upper", 0, "D0611", "bounds 1..0"),
        ("entries:0:dims:0:name", "4", "D0611", "is not a name"),
        (
            "entries:0:dims:0:measured",
            {"output": "n", "limit": "1"},
            "D0611",
            "measured by no integer",
        ),
    ],
)
def test_a_lie_in_a_manifest_is_refused(path: str, value: Json, code: str, why: str) -> None:
    said = refusal(lie(path, value)).diagnostics[0]
    assert said.code == code, said
    assert said.message.startswith("<memory>: section "), said
    assert re.search(why, said.message), said


@pytest.mark.parametrize(
    ("entry", "path", "value", "why"),
    [
        (2, "dims:1:measured:output", "places", "measured by no integer scalar"),
        (2, "dims:1:measured:limit", "n", "mentions n"),
        (2, "inputs:0:shape", ["n"], "mentions n"),
        (2, "outputs:1:name", "", "cannot be printed"),
        (0, "outputs:1:name", "total", "two outputs are called 'total'"),
        (0, "inputs:1:default:shape", [5], "not of its type"),
    ],
)
def test_a_lie_about_an_entry_point_is_refused(
    entry: int, path: str, value: Json, why: str
) -> None:
    said = refusal(lie(f"entries:{entry}:{path}", value, MANY)).diagnostics[0]
    assert said.code == "D0611"
    assert why in said.message


def with_section(name: str, data: bytes) -> bytes:
    manifest, sections = take_apart(TINY)
    assert name in sections
    return put_together(manifest, {**sections, name: data})


def test_a_program_that_is_none_is_refused_at_its_offset() -> None:
    for data in (b"", b"1234567", bytes(8 * 40), b"\xff" * 800):
        error = refusal(with_section("program/cpu/f", data))
        assert error.diagnostics[0].code == "D0611"
        assert "section " in str(error)


def test_every_word_of_a_program_may_lie() -> None:
    _, sections = take_apart(TINY)
    good = np.frombuffer(sections["program/cpu/f"], "<i8")
    refusals = 0
    for at in range(len(good)):
        for value in (-1, 99, 1 << 62):
            words = good.copy()
            words[at] = value
            try:
                Model.from_bytes(with_section("program/cpu/f", words.tobytes()))
            except ArtifactError:
                refusals += 1
    # Words that a step does not use may say anything.
    assert refusals > 100


CERTIFICATE = json.loads(take_apart(TINY)[1]["certificate/cpu/f"])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"arena": "128"}, "the plan is for 128 bytes, the call has 64"),
        ({"arena": "Q"}, "needs the dim Q"),
        ({"arena": "("}, "expected a number"),
        ({"roots": []}, "the arena has 64 bytes"),
        ({"more": 1}, "'more' is not a key"),
        (
            {"roots": [{**CERTIFICATE["roots"][0], "last": 0}]},
            "used in wave 1, where no root is live",
        ),
        ({"roots": [{**CERTIFICATE["roots"][0], "offset": "64"}]}, "ends at 128"),
        ({"roots": [CERTIFICATE["roots"][0]] * 2}, "overlap in wave 0"),
        ({"order_bound": "32"}, "64 bytes are in use at once, the plan says 32"),
        ({"any_order_bound": "65"}, "no witness proves more than 0 bytes, the plan says 65"),
        (
            {"views": [{"name": "v", "root": 3, "offset": "0", "bytes": "1", "place": ""}]},
            "root that",
        ),
        (
            {"views": [{"name": "v", "root": 0, "offset": "60", "bytes": "8", "place": ""}]},
            "leaves its",
        ),
    ],
)
def test_a_certificate_that_lies_is_refused(changes: dict[str, Json], why: str) -> None:
    data = json.dumps({**CERTIFICATE, **changes}, sort_keys=True, separators=(",", ":")).encode()
    said = refusal(with_section("certificate/cpu/f", data)).diagnostics[0]
    assert said.code == "D0610"
    assert "section certificate/cpu/f" in said.message
    assert why in said.message


def test_what_an_artifact_contains_is_not_told_where_its_plan_is_wrong(tmp_path: Path) -> None:
    data = json.dumps(
        {**CERTIFICATE, "any_order_bound": "65"}, sort_keys=True, separators=(",", ":")
    )
    file = tmp_path / "lies.dlc"
    file.write_bytes(with_section("certificate/cpu/f", data.encode()))
    with pytest.raises(ArtifactError, match="no witness proves more than 0 bytes"):
        inspect_file(CompileRequest(str(file)))


def test_a_certificate_that_is_not_json_is_refused() -> None:
    for data in (b"", b"null", b"\x00" * 100, b"[" * 10_000):
        assert refusal(with_section("certificate/cpu/f", data)).diagnostics[0].code == "D0610"


def test_a_plan_that_is_right_at_the_bounds_only_is_refused_at_the_call() -> None:
    # Right for B = 1 and B = 4, where it is 64 bytes; for B = 2 the arena is smaller than the plan.
    model = Model.from_bytes(lie("targets:0:programs:f:arena", "64 - 64*((4 - B)*(B - 1)//2)"))
    one, two = np.ones((1, 4), np.float32), np.ones((2, 4), np.float32)
    assert model.entry_points["f"](one, one) is not None
    with pytest.raises(ArtifactError, match="at B = 2"):
        model.entry_points["f"](two, two)


# ----------------------------------------------------------------------------------- mutations


def survive(seed: int, count: int) -> tuple[int, int]:
    """Load mutants: how many were refused, and how many loaded. Anything but a typed error is raised."""
    random_ = random.Random(seed)
    refused = 0
    for number in range(count):
        file = mutated_artifact(random_, MANY if number % 2 else TINY)
        began = time.process_time()
        try:
            repr(Model.from_bytes(file))
        except DlcError:
            refused += 1
        assert time.process_time() - began < 2, (seed, number)
    return refused, count - refused


def test_mutated_files_give_typed_errors_only() -> None:
    refused, loaded = survive(seed=1, count=400)
    assert refused > 250
    assert loaded > 0


@pytest.mark.long
def test_ten_thousand_mutated_files_give_typed_errors_only() -> None:
    refused, _ = survive(seed=2, count=10_000)
    assert refused > 7000
