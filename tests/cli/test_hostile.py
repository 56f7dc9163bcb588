"""Whatever a file or an option has in it: an exit code, a message with a way out, nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.cli.conftest import Command
from tests.importers.onnx.models import model_of
from tests.runtime.artifact.sealing import put_together, take_apart

LAYER = """\
dlc 1
module Layer {
  param w: f32[3, 2] = normal(1.0)
  export fn f(x: f32[3] = 1) -> f32[2] = x @ w
}
"""


@pytest.mark.parametrize("verb", ["run", "check", "compile", "inspect", "show", "bench"])
@pytest.mark.parametrize("ending", [".dlm", ".dlir", ".dlc", ".onnx"])
def test_a_model_that_is_empty_a_folder_or_absent_is_refused(
    dlc: Command, folder: Path, verb: str, ending: str
) -> None:
    (folder / f"empty{ending}").write_bytes(b"")
    (folder / f"folder{ending}").mkdir()
    before = sorted(folder.iterdir())
    for stem, code, said in (
        ("empty", 5 if ending in (".dlc", ".onnx") else 1, f"empty{ending}"),
        ("folder", 2, f"cannot read folder{ending}: is a folder"),
        ("absent", 2, f"cannot read absent{ending}: no such file"),
    ):
        out = ("-o", "out.dlc") if verb == "compile" else ()
        done = dlc(verb, f"{stem}{ending}", *out)
        assert said in done.err
        assert (done.code, done.out) == (code, "")
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (b"dlc 1\n## h\xff\n", "D0102", "byte 0xff at offset 10 (line 2) is not UTF-8"),
        (b"dlc 1\nexport fn f(x: f32) -> f32 = x\0\n", "D0102", "a null byte"),
        ("dlc 1\nexport fn größe(x: f32) -> f32 = x\n".encode(), "D0101", "U+00F6"),
        (b"dlc 1\n" + b"# longer than any model\n" * 400_000, "D0106", "longer than 8 MiB"),
        (b"dlc 1\nexport fn f(x: f32) -> f32 = " + b"(" * 100_000, "D01", "nest"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "D0108", "begins with its edition"),
        (b"dlc 99\n", "D01", "99"),
    ],
)
def test_a_text_that_is_none_is_refused(
    dlc: Command, folder: Path, text: bytes, code: str, said: str
) -> None:
    (folder / "bad.dlm").write_bytes(text)
    done = dlc("check", "bad.dlm")
    assert code in done.err
    assert said in done.err
    assert (done.code, done.out) == (1, "")


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_line_ends_of_windows_and_a_byte_order_mark_change_nothing(
    dlc: Command, folder: Path, start: bytes
) -> None:
    text = (folder / "rows.dlm").read_bytes().replace(b"\n", b"\r\n")
    (folder / "windows.dlm").write_bytes(start + text)
    given = ("--input", "x=[[1, 2, 3]]")
    assert dlc("run", "windows.dlm", *given).out == dlc("run", "rows.dlm", *given).out
    error = dlc("check", "windows.dlm").err
    assert error == "windows.dlm is right\n"


_OF_PYTHON = (".astype", "np.", "dlc.Tensor", "[None]")
"""What says nothing to those who write commands."""


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [
        ("f64.npy", 1, "convert it to f32 where f64.npy is made"),
        ("row.npy", 1, "add a first axis of size 1: x is f32[1, 3] then"),
        ("text:abc", 1, "a text is bytes: write numbers, or name a file of them"),
        ("f64.npy", 1, "x is f64[2, 3], where f32[B, 3] is expected"),
        ("flat.npy", 1, "x is f32[6], where f32[B, 3] is expected"),
        ("short.npy", 5, "D0503"),
        ("empty.npy", 5, "D0503"),
        ("objects.npy", 4, "D0507"),
        ("two.npz", 1, "there is no array x"),
        ("text.npz", 5, "D0503"),
        ("empty.safetensors", 5, "D0503"),
        ("picture.png", 2, "which takes no picture"),
        ("folder.npy", 2, "is a folder"),
        ("x.csv", 2, "'x.csv' is not a value for x"),
        ("text:abc", 1, "x is u8[1, 3]"),
        ("1e999", 2, "beyond all numbers of f64"),
        ("[" * 1000, 2, "too many brackets"),
        ("[[1, 2, 3], [4]]", 1, "rows differ in length"),
        ("[[true, 2, 3]]", 1, "holds True or False"),
        ("--", 2, "cannot be read"),
        ("[[1 2 3]]", 2, "cannot be read: a comma is missing before '2', character 5"),
        ("[[1, 2, 3]", 2, "cannot be read: a ] is missing at its end"),
        ("[1, 2]]", 2, "']' is more than a number or a list, character 7"),
        ("1, 2", 2, "',' is more than a number or a list, character 2"),
        ("[[,1]]", 2, "a number is expected in place of ',', character 3"),
        ("[[1, 2, 1e400]]", 2, "1e400 is beyond all numbers of f64, character 9"),
        (f"[[1, 2, 1{'0' * 5000}]]", 2, "a number of 5001 digits, character 9"),
        ("records.npy", 4, "element type \"[('a', '<f4')]\" is not one that dlc has"),
        ("dates.npy", 4, "element type '<M8[s]' is not one that dlc has"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(
    dlc: Command, folder: Path, value: str, code: int, said: str
) -> None:
    np.save(folder / "f64.npy", np.zeros((2, 3)))
    np.save(folder / "flat.npy", np.zeros(6, np.float32))
    np.save(folder / "row.npy", np.zeros(3, np.float32))
    np.save(folder / "objects.npy", np.array([{}], object), allow_pickle=True)
    np.save(folder / "records.npy", np.zeros(3, [("a", "<f4")]))
    np.save(folder / "dates.npy", np.zeros(3, "M8[s]"))
    np.savez(folder / "two.npz", a=np.zeros(3), b=np.zeros(3))
    (folder / "short.npy").write_bytes((folder / "flat.npy").read_bytes()[:-1])
    (folder / "text.npz").write_bytes(b"no archive")
    for name in ("empty.npy", "empty.safetensors"):
        (folder / name).write_bytes(b"")
    (folder / "folder.npy").mkdir()
    done = dlc("run", "rows.dlm", "--input", f"x={value}")
    assert said in done.err
    assert not any(word in done.err for word in _OF_PYTHON)
    assert (done.code, done.out) == (code, "")


@pytest.mark.parametrize(
    ("arrays", "code", "said"),
    [
        ({"w": np.zeros((2, 3), np.float32)}, 1, "D0505"),
        ({"w": np.zeros((3, 2))}, 1, "D0505"),
        ({"v": np.zeros((3, 2), np.float32)}, 1, "there is no array w"),
        ({}, 1, "there is no array w"),
    ],
)
def test_weights_of_another_model_are_refused(
    dlc: Command, folder: Path, arrays: dict[str, np.ndarray], code: int, said: str
) -> None:
    (folder / "layer.dlm").write_text(LAYER)
    np.savez(folder / "weights.npz", **arrays)  # pyright: ignore[reportArgumentType]
    assert dlc("compile", "layer.dlm", "--weights", "init:0").code == 0
    for model in ("layer.dlm", "layer.dlc"):
        done = dlc("run", model, "--weights", "weights.npz")
        assert said in done.err
        assert (done.code, done.out) == (code, "")


def test_weights_that_are_cut_short_are_refused(dlc: Command, folder: Path) -> None:
    (folder / "layer.dlm").write_text(LAYER)
    np.savez(folder / "whole.npz", w=np.zeros((3, 2), np.float32))
    data = (folder / "whole.npz").read_bytes()
    for length in (0, 1, 30, len(data) // 2, len(data) - 1):
        (folder / "cut.npz").write_bytes(data[:length])
        done = dlc("run", "layer.dlm", "--weights", "cut.npz")
        assert "error[D05" in done.err
        assert (done.code, done.out) == (5, "")


def test_sizes_of_zero_give_results_without_elements(dlc: Command, folder: Path) -> None:
    (folder / "none.dlm").write_text(
        "dlc 1\ndim B = 0..4\n"
        "export fn f(x: f32[B, 3]) -> (total: f32, rows: f32[B]) "
        "{ return (total = sum(x), rows = sum(exp(x), axis=1)) }\n"
    )
    given = ("--input", "x=zeros", "--dim", "B=0")
    for extra in ((), ("-O0",), ("--interpret",)):
        assert dlc("run", "none.dlm", *given, *extra).out == "total: f32\n0.0\nrows: f32[0]\n[]\n"


def test_nothing_is_written_where_something_is_wrong(dlc: Command, folder: Path) -> None:
    (folder / "wrong.dlm").write_text("dlc 1\nexport fn f(x: f32) -> f32 = y\n")
    (folder / "taken").mkdir()
    before = sorted(folder.iterdir())
    assert dlc("compile", "wrong.dlm").code == 1
    assert dlc("compile", "rows.dlm", "-o", "taken").code == 2
    assert dlc("run", "rows.dlm", "--input", "x=zeros", "--output", "rows=no/a.npy").code == 2
    assert dlc("run", "rows.dlm", "--input", "x=zeros", "--output", "rows=a.png").code == 2
    assert dlc("show", "rows.dlm", "--dump-dir", "rows.dlm").code == 2
    assert sorted(folder.iterdir()) == before


def test_an_artifact_is_not_replaced_by_what_is_made_from_it(dlc: Command, folder: Path) -> None:
    assert dlc("compile", "rows.dlm").code == 0
    data = (folder / "rows.dlc").read_bytes()
    refused = dlc("compile", "rows.dlc", "-O0")
    assert refused.code == 2
    assert "name a new file, such as new-rows.dlc" in refused.err
    assert (folder / "rows.dlc").read_bytes() == data
    assert dlc("compile", "rows.dlc", "-O0", "-o", "new.dlc").code == 0


@pytest.mark.parametrize(
    "command",
    [
        "run rows.dlm --input x=x.npy --output rows=x.npy",
        "run rows.dlm --input x=x.npy --output rows=./x.npy",
        "run rows.dlc --input x=x.npy --output rows=x.npy",
        "run layer.dlm --input x=x.npy --weights w.safetensors --output=result=w.safetensors",
        "compile rows.dlc -o rows.dlc",
        "compile layer.dlm --weights rows.dlc -o rows.dlc",
        "train layer.dlm --data rows.dlc -o rows.dlc",
        "train layer.dlm --history layer.dlm",
        "train layer.dlm --weights w.safetensors --checkpoint w.safetensors",
    ],
)
def test_no_file_that_is_read_is_written(dlc: Command, folder: Path, command: str) -> None:
    np.save(folder / "x.npy", np.zeros((2, 3), np.float32))
    (folder / "layer.dlm").write_text(LAYER)
    (folder / "w.safetensors").write_bytes(b"precious")
    assert dlc("compile", "rows.dlm").code == 0
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    done = dlc(*command.split())
    assert "is read, and would be replaced by what is made from it" in done.err
    assert (done.code, done.out) == (2, "")
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    "given",
    [
        ("compile", "--dim", f"B={'9' * 5000}"),
        ("compile", "--dim", f"B=1..{'9' * 5000}"),
        ("run", "--dim", f"B={'9' * 5000}"),
        ("run", "--max-memory", f"{'9' * 5000}GiB"),
        ("run", "--top", "9" * 5000),
    ],
)
def test_numbers_of_more_digits_than_python_reads_are_none(
    dlc: Command, given: tuple[str, str, str]
) -> None:
    verb, *option = given
    done = dlc(verb, "rows.dlm", *option)
    assert "error[D0901]" in done.err
    assert (done.code, done.out) == (2, "")


def test_a_name_that_no_file_can_have_is_no_text(dlc: Command) -> None:
    done = dlc("fmt", f"{'x' * 300}.dlm")
    assert "file name too long" in done.err
    assert (done.code, done.out) == (2, "")


PATHS = (".", "..", "/", "\0.dlm", "a\0", "\ud800", "", "a.dlm/x", ".dlm", 300 * "a" + ".dlm")
READERS = (
    *(("compile",), ("check",), ("run",), ("show",), ("bench",), ("reduce", "--test", "true")),
    *(("why",), ("memory",), ("inspect",), ("train",), ("gradcheck",), ("stubs",), ("diff",)),
    *(("opt", "--passes", "cse"), ("import",), ("profile",), ("probe",)),
    *(("profile", "a.dlm", "--flame"), ("memory", "a.dlm", "--svg"), ("run", "a.dlm", "--output")),
)


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_path_that_is_no_file_is_refused(
    dlc: Command, folder: Path, words: tuple[str, ...]
) -> None:
    (folder / "a.dlm").write_text(LAYER)
    for path in PATHS[: 6 if len(words) == 3 else None]:  # what is written may have any name
        done = dlc(*words, path)
        assert done.code in (1, 2), (path, done.err)
        assert "error[D0" in done.err and "D0999" not in done.err, (path, done.err)
        assert "]:  is" not in done.err, path


def test_a_folder_is_no_model_to_compile_or_to_reduce(dlc: Command) -> None:
    assert "error[D0903]: '.' is not a model" in dlc("compile", ".").err
    assert "error[D0903]: '.' is no file to reduce" in dlc("reduce", ".", "--test", "true").err


def test_what_a_terminal_obeys_is_not_shown(dlc: Command, folder: Path) -> None:
    (folder / "red.dlm").write_text("dlc 1\nexport fn f(x: f32) -> f32 = x \x1b[31m + y\n")
    (folder / "clear\x1b[2J.dlm").write_text("dlc 1\nexport fn f(x: f32) -> f32 = y\n")
    for model in ("red.dlm", "clear\x1b[2J.dlm", "gone\x1b[2J.dlm", "gone\x1b[2J.dlc"):
        done = dlc("run", model)
        assert "\x1b" not in done.err
        assert "\ufffd[" in done.err
        assert "error[D" in done.err


def test_nor_where_a_model_documents_itself(dlc: Command, folder: Path) -> None:
    (folder / "m.dlm").write_text("dlc 1\n## Shouts.\nexport fn f(x: f32[3]) -> f32 = sum(x)\n")
    graph = dlc("show", "m.dlm", "--stage", "graph").out
    (folder / "loud.dlir").write_text(graph.replace("Shouts.", r"Shouts.\1B[31m"))
    done = dlc("inspect", "loud.dlir")
    assert "Shouts.\ufffd[31m" in done.out
    assert done.code == 0


@pytest.mark.parametrize("terminal", [True, False])
def test_nor_where_the_text_of_an_artifact_is_shown(
    dlc: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """A file or another program gets the text as it is."""
    dlc("compile", "rows.dlm", "-o", "rows.dlc")
    manifest, sections = take_apart((folder / "rows.dlc").read_bytes())
    sections["text/rows.dlm"] += "# \x9b31m red\n".encode()
    (folder / "loud.dlc").write_bytes(put_together(manifest, sections))
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    done = dlc("show", "loud.dlc", "--stage", "text")
    assert done.out.split("\n")[-2] == ("# \ufffd31m red" if terminal else "# \x9b31m red")
    assert done.code == 0


def test_nor_in_the_names_of_values(dlc: Command, folder: Path) -> None:
    node = helper.make_node("Neg", ["x"], ["y\x1b[31m"])
    model = model_of([node], {"x": np.ones(2, np.float32)}, ["y\x1b[31m"])
    (folder / "loud.onnx").write_bytes(model.SerializeToString())
    done = dlc("run", "loud.onnx", "--input", "x=[1, 2]", "--values", "all")
    assert "y\ufffd[31m: f32[2]\n[-1. -2.]\n" in done.out
    assert "\x1b" not in done.out


def test_no_name_has_no_page(dlc: Command) -> None:
    done = dlc("doc", "")
    assert "D0914" in done.err
    assert (done.code, done.out) == (2, "")


def test_training_with_no_thread_is_refused_before_the_model_is_read(dlc: Command) -> None:
    done = dlc("train", "absent.dlm", "--threads", "0")
    assert "threads" in done.err
    assert "absent" not in done.err
    assert done.code == 2


def test_nor_in_json(dlc: Command, folder: Path) -> None:
    dlc("compile", "rows.dlm", "-o", "rows.dlc")
    manifest, sections = take_apart((folder / "rows.dlc").read_bytes())
    manifest["model"] = "\x1b[31m\x9b2J\u202e.dlm"
    (folder / "loud.dlc").write_bytes(put_together(manifest, sections))
    done = dlc("inspect", "loud.dlc", "--json")
    assert done.out.strip().isprintable()
    assert json.loads(done.out)["model"] == manifest["model"]


def test_nor_in_labels(dlc: Command, folder: Path) -> None:
    (folder / "labels.txt").write_text("red\x1b[31m\nblue\n")
    (folder / "m.dlm").write_text("dlc 1\nexport fn f(x: f32[2]) -> f32[2] = x\n")
    done = dlc("run", "m.dlm", "--input", "x=[1,2]", "--labels", "labels.txt")
    assert (done.code, "red\ufffd[31m" in done.out) == (0, True)
