"""`dlc compile` and `dlc run`: inputs from texts and files, results as text, JSON and files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from tests.cli.conftest import Command

PRINTED = """\
total: f32
14.0
rows: f32[1]
[14.]
"""


def test_a_model_runs_from_its_text_and_from_its_artifact_alike(dlc: Command) -> None:
    assert dlc("compile", "rows.dlm", "-o", "rows.dlc").code == 0
    for model in ("rows.dlm", "rows.dlc"):
        done = dlc("run", model, "--input", "x=[[1, 2, 3]]")
        assert (done.code, done.out) == (0, PRINTED)


def test_the_library_and_the_quick_way_read_the_same_command(dlc: Command) -> None:
    dlc("compile", "rows.dlm")
    quick = dlc("run", "rows.dlc", "--input", "x=[[1, 2, 3]]", "--json")
    slow = dlc("run", "rows.dlc", "--input=x=[[1, 2, 3]]", "--json")
    assert quick.out == slow.out
    assert quick.data == {
        "entry": "f",
        "results": {
            "total": {"dtype": "f32", "shape": [], "values": 14.0},
            "rows": {"dtype": "f32", "shape": [1], "values": [14.0]},
        },
    }


def test_two_compilations_give_the_same_bytes(dlc: Command, folder: Path) -> None:
    dlc("compile", "rows.dlm", "-o", "a.dlc")
    dlc("compile", "rows.dlm", "-o", "b.dlc")
    assert (folder / "a.dlc").read_bytes() == (folder / "b.dlc").read_bytes()


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
def test_every_level_gives_the_same_numbers(dlc: Command, level: str) -> None:
    assert dlc("run", "rows.dlm", level, "--input", "x=[[1, 2, 3]]").out == PRINTED


def test_missing_inputs_are_listed_with_a_command_that_works(dlc: Command) -> None:
    done = dlc("run", "rows.dlm")
    assert done.code == 2
    assert "x: f32[B, 3] is missing" in done.err
    assert "dlc run rows.dlm --random-inputs 0 works" in done.err
    assert dlc("run", "rows.dlm", "--random-inputs", "0").code == 0


def test_random_inputs_have_the_asked_size_and_depend_on_the_seed(dlc: Command) -> None:
    first = dlc("run", "rows.dlm", "--random-inputs", "1", "--dim", "B=2")
    again = dlc("run", "rows.dlm", "--random-inputs", "1", "--dim", "B=2")
    other = dlc("run", "rows.dlm", "--random-inputs", "2", "--dim", "B=2")
    assert "rows: f32[2]" in first.out
    assert first.out == again.out != other.out


def test_inputs_come_from_files_and_results_go_to_files(dlc: Command, folder: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(folder / "x.npy", x)
    np.savez(folder / "y.npz", y=np.full(3, 2, np.float32))
    done = dlc(
        *("run", "rows.dlm", "--input", "x=x.npy", "--input", "y=y.npz"),
        *("--output", "rows=rows.npy", "--output", "total=total.safetensors"),
    )
    assert (done.code, done.out) == (0, "")
    np.testing.assert_array_equal(np.load(folder / "rows.npy"), 2 * x.sum(axis=1))
    assert (folder / "total.safetensors").exists()


def test_evaluating_gives_what_compiling_gives_and_shows_values(dlc: Command) -> None:
    done = dlc("run", "rows.dlm", "--input", "x=[[1, 2, 3]]", "--values", "z,s")
    assert done.out == f"z: f32[1, 3], recomputed\n[[1. 4. 9.]]\ns: f32[1]\n[14.]\n{PRINTED}"
    done = dlc("run", "rows.dlm", "--input", "x=[[1, 2, 3]]", "--values", "z,s", "--interpret")
    assert done.out == f"z: f32[1, 3]\n[[1. 4. 9.]]\ns: f32[1]\n[14.]\n{PRINTED}"


def test_a_misspelt_value_is_told_its_neighbour(dlc: Command, folder: Path) -> None:
    (folder / "h.dlm").write_text(
        "dlc 1\nexport fn f(x: f32) -> f32 {\n  let hidden = x * 2\n  return hidden + 1\n}\n"
    )
    done = dlc("run", "h.dlm", "--input", "x=1", "--values", "hiden")
    assert done.code == 2
    assert "did you mean hidden?" in done.err


TWICE = """dlc 1
fn doubled(x: f32[3]) -> f32[3] {
  let g = x * 2
  let g_1 = g + 1
  return g_1 - 1
}
export fn f(x: f32[3]) -> (y: f32[3], z: f32) {
  let y = doubled(doubled(x))
  let z = sum(y)
  let (_, t) = scan row in y with s = 0.0 {
    next s = s + row
    yield s
  }
  return (y = y, z = z + sum(t))
}
"""


def test_every_value_is_printed_once_under_the_name_of_the_text(dlc: Command, folder: Path) -> None:
    """Also from an artifact, whose graph has one name for one value; `z` is not the result `z`."""
    (folder / "f.dlm").write_text(TWICE)
    dlc("compile", "f.dlm", "-o", "f.dlc")
    for model in ("f.dlm", "f.dlc"):
        done = dlc("run", model, "--input", "x=[1, 2, 3]", "--values", "all")
        names = [line.partition(":")[0] for line in done.out.splitlines() if ":" in line]
        assert sorted(names) == [
            *("g", "g.1", "g_1", "g_1.1", "row", "s", "t", "x", "y", "z", "z"),
        ]
        assert (
            re.search(r"z: f32(, recomputed)?\n24.0\n", done.out) and "z: f32\n40.0\n" in done.out
        )
    done = dlc("run", "f.dlc", "--input", "x=[1, 2, 3]", "--values", "g.1,y", "--json")
    told = cast("dict[str, dict[str, object]]", done.data)
    assert sorted(told["values"]) == ["g.1", "y"]


def test_the_first_value_that_is_not_finite_is_named_with_its_line(
    dlc: Command, folder: Path
) -> None:
    (folder / "nan.dlm").write_text(
        "dlc 1\nexport fn f(x: f32) -> f32 {\n  let bad = log(x)\n  return bad * 2\n}\n"
    )
    (folder / "below").mkdir()
    (folder / "nan.dlm").rename(folder / "below" / "nan.dlm")
    done = dlc("run", "below/nan.dlm", "--input", "x=-1", "--check-nan")
    assert done.code == 1
    assert "array.log gives NaN in bad: f32" in done.err
    assert "nan.dlm:3:" in done.err
    assert "let bad = log(x)" in done.err
    assert dlc("run", "below/nan.dlm", "--input", "x=1", "--check-nan").code == 0


NOT_FINITE = """\
dlc 1
module M() {
  param w: f32[2] = ones()
  export fn f(x: f32[2]) -> f32[2] {
    let y = if x[0] > 0 then x * w else x + w
    return y - x
  }
}
"""


@pytest.mark.parametrize(
    ("given", "weights", "said"),
    [
        ("[1, nan]", [1, 1], "D0912]: f: the input x: f32[2] holds NaN at [1]"),
        ("[1, 1]", [1, float("nan")], "D0912]: f: the weight w: f32[2] holds NaN at [1]"),
        (
            "[1, inf]",
            [1, 1],
            "array.subtract gives NaN: f32[2], from operands that hold an infinity",
        ),
    ],
)
def test_an_input_or_a_weight_that_is_no_number_is_named(
    dlc: Command, folder: Path, given: str, weights: list[float], said: str
) -> None:
    (folder / "m.dlm").write_text(NOT_FINITE)
    safetensors.write(folder / "w.safetensors", {"w": Tensor(weights, "f32")})
    run = ("run", "m.dlm", "--weights", "w.safetensors", "--check-nan", "--input", f"x={given}")
    done = dlc(*run)
    assert done.code == 1
    assert said in done.err


def test_an_infinity_that_was_given_is_remarked_and_ends_nothing(
    dlc: Command, folder: Path
) -> None:
    (folder / "mask.dlm").write_text(
        "dlc 1\nexport fn f(x: f32[2], mask: f32[2]) -> f32[2] = softmax(x + mask, axis=-1)\n"
    )
    given = ("--input", "x=[1, 2]", "--input", "mask=[0, -inf]")
    done = dlc("run", "mask.dlm", *given, "--check-nan")
    assert (done.code, done.out) == (0, "f: f32[2]\n[1. 0.]\n")
    assert done.err == "the input mask: f32[2] holds an infinity\n"


def test_a_branch_may_choose_an_infinity(dlc: Command, folder: Path) -> None:
    (folder / "m.dlm").write_text(
        "dlc 1\nexport fn f(x: f32) -> f32 = if x > 0 then exp(-inf) + x else -inf\n"
    )
    assert dlc("run", "m.dlm", "--input", "x=-1", "--check-nan").out == "f: f32\n-inf\n"


def test_a_derivative_is_given_after_the_results(dlc: Command) -> None:
    done = dlc("run", "rows.dlm", "--input", "x=[[1, 1, 1]]", "--grad", "total:x")
    assert done.out.endswith("dtotal/dx: f32[1, 3]\n[[1. 2. 3.]]\n")
    given = ("run", "rows.dlm", "--input", "x=[[1, 1, 1]]", "--grad", "total:x")
    assert dlc(*given, "--output", "dtotal/dx=d.npy").out == ""
    assert np.load("d.npy").tolist() == [[1, 2, 3]]


def test_a_derivative_is_of_the_entry_point_that_has_such_a_result(
    dlc: Command, folder: Path
) -> None:
    (folder / "two.dlm").write_text(
        "dlc 1\nexport fn square(x: f32 = 3) -> f32 = x * x\n"
        "export fn both(x: f32 = 3) -> (twice: f32, half: f32) "
        "{ return (twice = 2 * x, half = x / 2) }\n"
    )
    for extra in ((), ("--interpret",)):
        done = dlc("run", "two.dlm", "--grad", "square:x", *extra)
        assert done.out == "square: f32\n9.0\ndsquare/dx: f32\n6.0\n"
        assert dlc("run", "two.dlm", "--grad", "half:x", *extra).out.endswith(
            "dhalf/dx: f32\n0.5\n"
        )
    assert dlc("run", "two.dlm", "--grad", "third:x").code == 2


def test_an_artifact_is_compiled_again_with_its_own_weights(dlc: Command, folder: Path) -> None:
    (folder / "m.dlm").write_text(
        "dlc 1\nmodule M() {\n  param w: f32[3] = normal(1.0)\n"
        "  export fn f(x: f32[3]) -> f32[3] = x * w\n}\n"
    )
    first = dlc("compile", "m.dlm", "-o", "m.dlc", "--weights", "init:7")
    assert first.code == 0, first.err
    assert dlc("compile", "m.dlc", "-o", "again.dlc", "-O1").code == 0
    given = ("--input", "x=[1, 1, 1]")
    assert dlc("run", "again.dlc", *given).out == dlc("run", "m.dlc", *given).out
    assert "M" in dlc("inspect", "m.dlc").out


def test_the_best_labels_are_shown_in_order(dlc: Command, folder: Path) -> None:
    (folder / "labels.txt").write_text("cat\ndog\n")
    done = dlc("run", "rows.dlm", "--input", "x=[[1,0,0],[2,0,0]]", "--labels", "labels.txt")
    assert done.out.endswith("rows: f32[2]\n    2.0000  dog\n    1.0000  cat\n")
    assert done.out.startswith("total: f32\n3.0\n")
    (folder / "labels.txt").write_text("cat\ndog\nhorse\n")
    assert "D0910" in dlc("run", "rows.dlm", "--random-inputs", "0", "--labels", "labels.txt").err


def test_the_highest_numbers_are_shown_without_labels_with_their_places(
    dlc: Command, folder: Path
) -> None:
    (folder / "p.dlm").write_text(
        "dlc 1\nexport fn f(x: f32[2, 4]) -> (digit: i32[2], p: f32[2, 4]) "
        "= (digit = argmax(x, axis=1), p = x)\nexport fn g(x: i32[2]) -> i32[2] = x\n"
    )
    given = ("run", "p.dlm", "--entry", "f", "--input", "x=[[1, nan, 3, 3], [0, 1, 2, 4]]")
    shown = dlc(*given, "--top", "2")
    assert shown.out == (
        "digit: i32[2]\n[1 3]\np: f32[2, 4]\n"
        "[0]\n       nan  1\n    3.0000  2\n[1]\n    4.0000  3\n    2.0000  2\n"
    )
    written = dlc(*given, "--top", "1", "--output", "digit=d.npy")
    assert written.out == "p: f32[2, 4]\n[0]\n       nan  1\n[1]\n    4.0000  3\n"
    data = cast("dict[str, list[object]]", dlc(*given, "--top", "1", "--json").data)
    assert data["labels"][1] == [{"label": "3", "score": 4.0}]
    none = dlc("run", "p.dlm", "--entry", "g", "--input", "x=[1, 2]", "--top", "2")
    assert "no result of g has rows of floats" in none.err
    assert none.code == 2


@pytest.mark.parametrize(
    ("dtype", "values", "order"),
    [
        ("u8", "[0, 200, 3]", "bca"),
        ("bool", "[false, true, true]", "bca"),
        ("i8", "[-128, 0, 1]", "cba"),
    ],
)
def test_labels_are_ranked_for_every_dtype(
    dlc: Command, folder: Path, dtype: str, values: str, order: str
) -> None:
    (folder / "d.dlm").write_text(f"dlc 1\nexport fn f(x: {dtype}[3]) -> {dtype}[3] = x\n")
    (folder / "labels.txt").write_text("a\nb\nc\n")
    done = dlc("run", "d.dlm", "--input", f"x={values}", "--labels", "labels.txt")
    assert "".join(line.split()[1] for line in done.out.splitlines()[1:]) == order


def test_a_size_that_inputs_only_tell_with_another_is_asked_for(dlc: Command, folder: Path) -> None:
    (folder / "d.dlm").write_text(
        "dlc 1\ndim T = 2..6, S = 1..6\nexport fn f(x: f32[T - S], y: f32[T, 2]) -> f32[S] = "
        "ones([S])\nexport fn g(x: f32[T - S]) -> f32[S] = ones([S])\n"
    )
    asked = dlc("run", "d.dlm", "--entry", "g", "--input", "x=[1, 2]")
    assert asked.err == "error[D0906]: T is missing, of g\n   = help: --dim T=6 gives one\n"
    given = ("run", "d.dlm", "--input", "x=[1, 2]")
    assert dlc(*given, "--entry", "g", "--dim", "T=6").out == "g: f32[4]\n[1. 1. 1. 1.]\n"
    rest = ("--entry", "f", "--input", "y=[[1, 2], [3, 4], [5, 6]]")
    assert dlc(*given, *rest).out == "f: f32[1]\n[1.]\n"


def test_random_inputs_fit_the_sizes_that_a_given_one_tells(dlc: Command, folder: Path) -> None:
    (folder / "d.dlm").write_text(
        "dlc 1\ndim T\nexport fn f(x: f32[2 * T], y: f32[T]) -> f32[T] = 0 * y + sum(x)\n"
    )
    done = dlc("run", "d.dlm", "--input", "x=[1, 2, 3, 4, 5, 6]", "--random-inputs", "0")
    assert done.out == "f: f32[3]\n[21. 21. 21.]\n"


def test_labels_for_no_numbers_fit_nothing(dlc: Command, folder: Path) -> None:
    (folder / "none.dlm").write_text("dlc 1\nexport fn f(x: f32[2, 0]) -> f32[2, 0] = x\n")
    (folder / "labels.txt").write_text("")
    for given in (("--labels", "labels.txt"), ("--top", "3")):
        done = dlc("run", "none.dlm", "--input", "x=zeros", *given)
        assert (done.code, done.out) == (2, "")
        assert "D0910" in done.err


def test_text_becomes_its_utf8_bytes(dlc: Command, folder: Path) -> None:
    (folder / "t.dlm").write_text(
        "dlc 1\ndim T = 1..100\nexport fn f(t: u8[T]) -> u8[T] = t\n", encoding="utf-8"
    )
    assert dlc("run", "t.dlm", "--input", "t=text:hé").out == "f: u8[3]\n[104 195 169]\n"


def test_of_several_entry_points_one_must_be_chosen(dlc: Command, folder: Path) -> None:
    (folder / "two.dlm").write_text(
        "dlc 1\nexport fn twice(x: f32 = 1) -> f32 = 2 * x\nexport fn half(x: f32 = 1) -> f32 = x / 2\n"
    )
    refused = dlc("run", "two.dlm")
    assert refused.code == 2
    assert "choose one, such as --entry twice" in refused.err
    assert dlc("run", "two.dlm", "--entry", "half").out == "half: f32\n0.5\n"
    assert "did you mean twice?" in dlc("run", "two.dlm", "--entry", "twise").err


def test_text_goes_in_and_comes_out_as_utf8_with_a_line_for_each_row(
    dlc: Command, folder: Path
) -> None:
    (folder / "t.dlm").write_text(
        "dlc 1\ndim T\nexport fn f(x: u8[T], y: f32 = 0) -> (a: u8[T], b: u8[2, T], c: f32) =\n"
        "  (a = x, b = broadcast(x, [2, T]), c = y)\n"
    )
    told = ["run", "t.dlm", "--input", "x=text:'Grüße'"]
    assert dlc(*told, "--output", "a=a.txt", "--output", "b=b.txt").code == 0
    assert (folder / "a.txt").read_text(encoding="utf-8") == "Grüße\n"
    assert (folder / "b.txt").read_text(encoding="utf-8") == "Grüße\nGrüße\n"
    refused = dlc(*told, "--output", "c=c.txt")
    assert refused.code == 2
    assert "c is not text" in refused.err


def test_a_picture_is_read_as_bytes_and_another_size_is_refused(dlc: Command, folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    image.fromarray(pixels).save(folder / "p.png")
    (folder / "p.dlm").write_text("dlc 1\nexport fn f(x: u8[2, 2, 3]) -> u8[2, 2, 3] = x\n")
    (folder / "big.dlm").write_text("dlc 1\nexport fn f(x: f32[4, 4, 3]) -> f32[4, 4, 3] = x\n")
    assert dlc("run", "p.dlm", "--input", "x=p.png", "--output", "f=q.png").code == 0
    np.testing.assert_array_equal(np.asarray(image.open(folder / "q.png")), pixels)
    refused = dlc("run", "big.dlm", "--input", "x=p.png")
    assert refused.code == 2
    assert "p.png is 2 x 2, x takes 4 x 4" in refused.err
    assert dlc("run", "big.dlm", "--input", "x=p.png", "--resize").code == 0


def test_a_size_that_no_input_has_is_asked_for_or_made_up(dlc: Command, folder: Path) -> None:
    (folder / "n.dlm").write_text(
        "dlc 1\ndim N = 1..9\nexport fn f(x: f32) -> f32[N] = broadcast(x, [N])\n"
    )
    refused = dlc("run", "n.dlm", "--input", "x=1")
    assert refused.code == 2
    assert "N is missing, of f" in refused.err
    assert "--dim N=8 gives one" in refused.err
    for extra in ((), ("--interpret",)):
        assert dlc("run", "n.dlm", "--random-inputs", "0", *extra).out.startswith("f: f32[4]\n")
        assert dlc("run", "n.dlm", "--input", "x=1", "--dim", "N=2", *extra).out == (
            "f: f32[2]\n[1. 1.]\n"
        )


def test_what_is_wrong_with_the_call_is_said_before_the_model_is_compiled(
    dlc: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(*_: object, **__: object) -> None:
        raise AssertionError("it is compiled")

    monkeypatch.setattr("dlc.driver.run.request.compile_model", compiled)
    for mistake in (
        (),
        ("--input", "x=[[1, 2]]", "--input", "q=1"),
        ("--random-inputs", "0", "--output", "sum=a.npy"),
        ("--random-inputs", "0", "--output", "rows=a.csv"),
        ("--random-inputs", "0", "--labels", "gone.txt"),
        ("--random-inputs", "0", "--threads", "0"),
        ("--random-inputs", "0", "--dim", "B=65"),
    ):
        assert dlc("run", "rows.dlm", *mistake).code in (1, 2)
    assert "it is compiled" in dlc("run", "rows.dlm", "--random-inputs", "0").err


def test_json_is_one_value_with_results_watched_values_and_labels(
    dlc: Command, folder: Path
) -> None:
    (folder / "labels.txt").write_text("cat\ndog\n")
    done = dlc(
        *("run", "rows.dlm", "--input", "x=[[1,0,0],[2,0,0]]", "--values", "s", "--json"),
        *("--labels", "labels.txt", "--top", "1", "--output", "total=t.npy"),
    )
    data = cast("dict[str, dict[str, dict[str, object]]]", done.data)
    assert data["results"]["total"]["values"] == 3.0
    assert data["values"]["s"] == {
        "dtype": "f32",
        "shape": [2],
        "values": [1.0, 2.0],
        "loops": [],
        "source": "machine code",
    }
    assert data["labels"] == [[{"label": "dog", "score": 2.0}]]
    assert np.load(folder / "t.npy") == 3


def test_an_artifact_is_compiled_again_where_the_options_ask_for_it(
    dlc: Command, folder: Path
) -> None:
    (folder / "m.dlm").write_text(
        "dlc 1\nmodule M(n = 3) {\n  param w: f32[n] = normal(1.0)\n"
        "  export fn f(x: f32[n]) -> f32[n] = x * w\n}\n"
    )
    assert dlc("compile", "m.dlm", "-o", "m.dlc", "--weights", "init:7").code == 0
    given = ("--input", "x=[1, 1, 1]")
    own = dlc("run", "m.dlc", *given).out
    assert dlc("run", "m.dlc", "-O0", *given).out == own
    fresh = dlc("run", "m.dlc", "--weights", "init:1", *given).out
    assert fresh == dlc("run", "m.dlm", "--weights", "init:1", *given).out != own
    refused = dlc("run", "m.dlc", "--set", "n=4", *given)
    assert refused.code == 2
    assert "m.dlc has no modules and no parameters any more" in refused.err
    assert dlc("bench", "m.dlc", "--module", "M", *given).code == 2


def test_a_call_may_be_given_little_memory(dlc: Command) -> None:
    dlc("compile", "rows.dlm", "-O0")
    given = ("--input", "x=zeros", "--dim", "B=64")
    for model in ("rows.dlm", "rows.dlc"):
        options = ("-O0",) if model.endswith(".dlm") else ()
        for enough in ("1GiB", "1GB", "1073741824"):
            assert dlc("run", model, *options, *given, "--max-memory", enough).code == 0
        refused = dlc("run", model, *options, *given, "--max-memory", "100")
        assert refused.code == 1
        assert "D0613" in refused.err
    assert dlc("run", "rows.dlm", *given, "--max-memory", "much").code == 2
    assert dlc("run", "rows.dlm", *given, "--max-memory", "KiB").code == 2


def test_the_code_of_an_untrusted_artifact_does_not_run(
    dlc: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trusted(*_: object, **__: object) -> None:
        raise AssertionError("the file's own code is run")

    dlc("compile", "rows.dlm")
    monkeypatch.setattr("dlc.driver.run.request.load_model", trusted)
    given = ("--input", "x=[[1, 2, 3]]")
    assert dlc("run", "rows.dlc", *given, "--untrusted").out == PRINTED
    assert "own code is run" in dlc("run", "rows.dlc", "--max-memory", "1GiB", *given).err
    assert dlc("bench", "rows.dlc", "--untrusted", "--seconds", "0").code == 0


def test_weights_larger_than_the_machine_are_refused_with_code_4(
    dlc: Command, folder: Path
) -> None:
    (folder / "wide.dlm").write_text(
        "dlc 1\nmodule M(n = 3) {\n  param w: f32[n, n] = normal(1.0)\n"
        "  export fn f(x: f32[n] = 1) -> f32[n] = x @ w\n}\n"
    )
    done = dlc("compile", "wide.dlm", "--set", "n=1000000")
    assert done.code == 4
    assert "the block of weights needs 3,725.3 GiB of memory" in done.err


def test_inputs_larger_than_the_machine_are_refused_with_code_4(dlc: Command, folder: Path) -> None:
    (folder / "big.dlm").write_text(
        "dlc 1\ndim B = 1..1000000000000\nexport fn f(x: f32[B]) -> f32 = sum(x)\n"
    )
    done = dlc("run", "big.dlm", "--input", "x=zeros", "--dim", "B=1000000000000")
    assert done.code == 4
    assert "x: f32[1000000000000] needs 3,725.3 GiB of memory, and this machine has" in done.err
