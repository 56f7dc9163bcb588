"""Numbers as text: thousands of digits, digits of other scripts, numbers beyond 2**62 and below 0.

Python's `int` raises ValueError for more than 4,300 digits; nothing but a DlcError may come out.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dlc
from dlc.cli import main
from dlc.driver.memory.asked import ModelMemory
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest
from dlc.errors import DlcError, InternalError
from dlc.runtime.model import Model
from tests.runtime import building
from tests.runtime.artifact.sealing import Json, put_together, take_apart
from tests.suites import every, together

NUMBERS = {
    "5,000 digits": "9" * 5000,
    "minus 5,000 digits": "-" + "9" * 5000,
    "an Arabic digit": "٣",
    "a raised digit": "²",
    "below 0": "-1",
    "2**62 - 1": str(2**62 - 1),
    "2**62 + 1": str(2**62 + 1),
    "2**64": str(2**64),
}
TEXT = """\
dlc 1
dim B = 1..8
module Net {
  param w: f32[3] = normal(1.0)
  export fn f(x: f32[B, 3]) -> f32[B, 3] = x * w
}
"""
every_number = pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a model in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.dlm").write_text(TEXT)
    return tmp_path


def survives(action: Callable[[], object]) -> None:
    """It ends well, or with a diagnostic that is about the model or the choice."""
    try:
        action()
    except InternalError:
        raise
    except DlcError as error:
        error.render()


# Artifacts.


def size_places(value: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a manifest or a certificate has a size as a text."""
    sized = {"arena", "scratch", "gpu_scratch", "size", "limit", "bytes", "offset"}
    bounds = {"order_bound", "any_order_bound"}
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, str) and key in sized | bounds:
                yield (*path, key)
            yield from size_places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if isinstance(inner, str) and path[-1] in ("sizes", "shape"):
                yield (*path, index)
            yield from size_places(inner, (*path, index))


def with_text(value: Json, path: tuple[str | int, ...], text: str) -> Json:
    """The same with a text at a place."""
    if not path:
        return text
    step, *rest = path
    if isinstance(value, dict):
        return {k: with_text(v, tuple(rest), text) if k == step else v for k, v in value.items()}
    assert isinstance(value, list)
    return [with_text(v, tuple(rest), text) if k == step else v for k, v in enumerate(value)]


def artifacts_with(text: str) -> Iterator[bytes]:
    """A file with that text for one size of its manifest or of a certificate, for each of them."""
    for made in (building.tiny(), building.many()):
        manifest, sections = take_apart(made.artifact().to_bytes())
        for path in size_places(manifest):
            changed = with_text(manifest, path, text)
            assert isinstance(changed, dict)
            yield put_together(changed, sections)
        for name in [name for name in sections if name.startswith("certificate")]:
            certificate = json.loads(sections[name])
            for path in size_places(certificate):
                changed = with_text(certificate, path, text)
                spelled = json.dumps(changed, sort_keys=True, separators=(",", ":"))
                yield put_together(manifest, {**sections, name: spelled.encode()})


@pytest.mark.parametrize(
    ("number", "untrusted"),
    every(
        6,
        itertools.product(
            [pytest.param(number, id=name) for name, number in NUMBERS.items()], [True, False]
        ),
    ),
)
def test_every_size_of_an_artifact_may_be_any_number(number: str, untrusted: bool) -> None:
    files = list(artifacts_with(number))
    assert len(files) > 20
    for file in files:
        survives(lambda file=file: Model.from_bytes(file, untrusted=untrusted))


@every_number
def test_a_place_that_a_certificate_names_may_have_any_number(number: str) -> None:
    assert ModelMemory("m.dlm", (), {"m.dlm": TEXT}).line(f"m.dlm:{number}:1") == ""


# Models.


@together(
    ("number", "old", "new"),
    [
        (number, old, new)
        for number in NUMBERS.values()
        for old, new in (
            ("1..8", "1..{}"),
            ("w: f32[3]", "w: f32[{}]"),
            ("normal(1.0)", "normal({})"),
            ("x * w", "x * {}"),
            ("x * w", "(x, w).{} * w"),
        )
    ],
)
def test_numbers_of_a_text_may_be_any(number: str, old: str, new: str) -> None:
    text = TEXT.replace(old, new.format(number))
    assert text != TEXT
    survives(lambda: dlc.compile(text=text, weights="init:0"))


@together(
    ("number", "old", "new"),
    [
        (number, old, new)
        for number in NUMBERS.values()
        for old, new in (
            ("tensor<3x", "tensor<{}x"),
            ("?x3x", "?x{}x"),
            ('"B, 3"', '"B, {}"'),
            ('"B, 3"', '"{}*B, 3"'),
            ("B = 1..8", "B = 1..{}"),
            ("i64: 1", "i64: {}"),
            ("0 : i64", "{} : i64"),
            ("normal(1.0)", "normal({})"),
        )
    ],
)
def test_numbers_of_ir_may_be_any(number: str, old: str, new: str, folder: Path) -> None:
    text = show_stage(CompileRequest("m.dlm"), Shown("graph"))
    changed = text.replace(old, new.format(number))
    assert changed != text
    (folder / "m.dlir").write_text(changed)
    survives(lambda: dlc.compile("m.dlir", weights="init:0"))


@every_number
@pytest.mark.parametrize("place", ["m.dlm:{}:1-2", "m.dlm:1:{}-2", "m.dlm:1:1-{}"])
def test_numbers_of_a_promise_of_ir_may_be_any(number: str, place: str, folder: Path) -> None:
    promising = TEXT.replace("dlc 1\n", "dlc 1\nlimit deterministic\n")
    text = show_stage(CompileRequest("m.dlm", text=promising), Shown("graph"))
    changed = re.sub(r"at m\.dlm:[0-9:-]+", "at " + place.format(number), text)
    assert changed != text
    (folder / "m.dlir").write_text(changed)
    survives(lambda: dlc.compile("m.dlir", weights="init:0"))


@pytest.mark.parametrize("numbers", ["1, 2, 3", "²", "1e", "--1", "nan"])
def test_an_initialiser_of_ir_with_other_numbers_is_refused(numbers: str, folder: Path) -> None:
    text = show_stage(CompileRequest("m.dlm"), Shown("graph"))
    (folder / "m.dlir").write_text(text.replace("normal(1.0)", f"normal({numbers})"))
    survives(lambda: dlc.compile("m.dlir", weights="init:0"))


# Options.


@every_number
def test_numbers_in_arguments_of_python_may_be_any(number: str) -> None:
    for options in (
        {"weights": f"init:{number}"},
        {"device": f"cuda:{number}"},
        {"target": f"cuda:sm_{number}"},
        {"places": {"a": f"cpu:{number}"}},
        {"settings": {"hidden": number}},
    ):
        survives(lambda options=options: dlc.compile("m.dlm", **options))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("number", [10**5000, -(10**5000), 2**64], ids=["up", "down", "2**64"])
def test_huge_whole_numbers_in_arguments_of_python_are_refused(number: int) -> None:
    for options in ({"level": number}, {"max_memory": number}, {"dims": {"B": (1, number)}}):
        with pytest.raises(DlcError, match="D0902"):
            dlc.compile("m.dlm", weights="init:0", **options)  # pyright: ignore[reportArgumentType]


@every_number
def test_numbers_in_options_may_be_any(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "m.dlm", "--weights", "init:0", "-o", "m.dlc"]) == 0
    run = ["run", "m.dlc", "--random-inputs"]
    for words in (
        [*run, number],
        [*run, "0", "--threads", number],
        [*run, "0", "--device", f"cuda:{number}"],
        [*run, "0", "--weights", f"init:{number}"],
        [*run, "0", "--dim", f"B={number}"],
        [*run, "0", "--max-memory", number],
        ["run", "m.dlc", "--input", f"x=[[{number}, 1, 2]]"],
        ["compile", "m.dlm", "-O", number, "-o", "n.dlc"],
        ["compile", "m.dlm", "--dim", f"B=1..{number}", "-o", "n.dlc"],
        ["compile", "m.dlm", "--place", f"a=cpu:{number}", "-o", "n.dlc"],
        ["compile", "m.dlm", "--set", f"a={number}", "-o", "n.dlc"],
        ["memory", "m.dlm", "--dim", f"B={number}"],
        ["memory", "m.dlm", "--max", number],
    ):
        main(words)
        assert "D0999" not in capsys.readouterr().err, words
