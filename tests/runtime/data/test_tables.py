"""Tables of comma-separated values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Input
from dlc.runtime.data import Dataset, Setting, open_data, source_of
from dlc.runtime.data.columns import is_number
from tests.runtime.data.sources import X, Y, in_order, opened, part, refused
from tests.suites import together

EXAMPLES = Path(__file__).parents[3] / "examples" / "data"
FIELDS = {"x": "columns(0, 2)", "y": "y"}
BOTH = (X, Y)


def table(
    folder: Path,
    text: str | bytes,
    fields: dict[str, str] = FIELDS,
    wanted: tuple[Input, ...] = BOTH,
    **settings: Setting,
) -> Dataset:
    path = folder / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return opened(path, wanted, "csv", fields, **{"shuffle": False, **settings})


def test_columns_by_number_and_by_name(tmp_path: Path) -> None:
    found = in_order(table(tmp_path, "a,b,y\n1,2.5,3\n-4,5e1,6\n"))
    assert found["x"].tolist() == [[1, 2.5], [-4, 50]]
    assert found["y"].tolist() == [3, 6]
    assert (found["x"].dtype, found["y"].dtype) == (np.float32, np.int32)


@pytest.mark.parametrize(
    "text",
    [
        "a,b,y\r\n1,2,3\r\n",
        "a,b,y\r1,2,3\r",
        "\ufeffa,b,y\n1,2,3",
        "\n\na,b,y\n\n1,2,3\n\n",
        '"a","b","y"\n"1","2","3"\n',
        "a, b, y\n 1 , 2 , 3 \n",
        "a,b,y\n1.0,+2.,3.0\n",
        "a,b,y\n.1e1,20e-1,3\n",
    ],
)
def test_other_ways_to_write_the_same_table(tmp_path: Path, text: str) -> None:
    found = in_order(table(tmp_path, text))
    assert found["x"].tolist() == [[1, 2]]
    assert found["y"].tolist() == [3]


@pytest.mark.parametrize(("separator", "ending"), [(";", "csv"), ("\t", "csv"), ("", "tsv")])
def test_other_separators(tmp_path: Path, separator: str, ending: str) -> None:
    path = tmp_path / f"t.{ending}"
    path.write_text("1,2,3".replace(",", separator or "\t"))
    settings: dict[str, Setting] = {"separator": separator} if separator else {}
    data = opened(path, [X, Y], "csv", {"x": "columns(2)", "y": "2"}, **settings)
    assert in_order(data)["x"].tolist() == [[1, 2]]
    assert in_order(data)["y"].tolist() == [3]


def test_whether_there_are_names_is_found_out_or_said(tmp_path: Path) -> None:
    by_number = {"x": "columns(0, 2)", "y": "2"}
    assert table(tmp_path, "1,2,3\n4,5,6\n", by_number).count == 2
    assert table(tmp_path, "1,2,3\n4,5,6\n", by_number, header=True).count == 1
    assert table(tmp_path, "7,b,y\n4,5,6\n").count == 1, "y names a column"
    assert table(tmp_path, "a,b,c\n4,5,6\n", by_number).count == 1, "none of them is a number"
    text = "5.1,3.5,setosa\n6.0,3.0,virginica\n"
    assert table(tmp_path, text, by_number).count == 2, "two of them are numbers"


def test_texts_become_classes_in_alphabetical_order(tmp_path: Path) -> None:
    data = table(tmp_path, "a,b,y\n1,2,rose\n3,4, iris\n5,6,rose\n7,8,aster\n")
    assert in_order(data)["y"].tolist() == [2, 1, 2, 0]
    assert data.classes == {"y": ("aster", "iris", "rose")}


def test_the_test_has_the_classes_of_the_training(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("a,b,y\n1,2,rose\n")
    data = table(tmp_path, "a,b,y\n1,2,rose\n3,4,iris\n", test="test.csv")
    assert in_order(part(data))["y"].tolist() == [1]
    (tmp_path / "test.csv").write_text("a,b,y\n1,2,tulip\n")
    with refused("D0541", "'tulip', which no example to train on has", "iris, rose"):
        table(tmp_path, "a,b,y\n1,2,rose\n3,4,iris\n", test="test.csv")


def test_more_classes_than_a_type_can_number_are_told(tmp_path: Path) -> None:
    text = "y\n" + "".join(f"c{k}\n" for k in range(200))
    with refused("D0542", "has 200 classes, more than i8 can number"):
        table(tmp_path, text, {"y": "y"}, (Input("y", "i8", ("B",)),))
    assert table(tmp_path, text, {"y": "y"}, (Input("y", "u8", ("B",)),)).count == 200


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_numbers_are_rounded_to_the_wanted_float(tmp_path: Path, dtype: str) -> None:
    values = ["0.1", "3.14159265358979", "-1e-3", "65504"]
    data = table(tmp_path, "\n".join(["v", *values]), {"v": "v"}, (Input("v", dtype, ("B",)),))
    found = Tensor.from_bits(in_order(data)["v"], dtype).tolist()
    assert found == Tensor([float(v) for v in values], dtype).tolist()


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**53 + 1])
def test_large_whole_numbers_are_exact(tmp_path: Path, value: int) -> None:
    data = table(tmp_path, f"v\n{value}\n", {"v": "v"}, (Input("v", "i64", ("B",)),))
    assert in_order(data)["v"].tolist() == [value]


def test_the_largest_unsigned_number_is_exact(tmp_path: Path) -> None:
    data = table(tmp_path, f"v\n{2**64 - 1}\n", {"v": "v"}, (Input("v", "u64", ("B",)),))
    assert in_order(data)["v"].tolist() == [2**64 - 1]


@together(
    ("text", "told"),
    [
        ("a,b,y\n1,2,3\n1,x,3\n", "line 3, column 1 (b) holds 'x', which is not a finite number"),
        ("a,b,y\n1,,3\n", "line 2, column 1 (b) holds nothing, which is not a finite number"),
        ("a,b,y\n1,nan,3\n", "holds 'nan', which is not a finite number"),
        ("a,b,y\n1,inf,3\n", "holds 'inf', which is not a finite number"),
        ("a,b,y\n1,1e39,3\n", "holds '1e39', which is not a number that f32 holds"),
        ("a,b,y\n1,1e999,3\n", "holds '1e999', which is not a number that f32 holds"),
        ("a,b,y\n1,2,1.5\n", "column 2 (y) holds '1.5', which is not a whole number, as i32 needs"),
        ("a,b,y\n1,2,3000000000\n", "holds '3000000000', which is not a number that i32 holds"),
        ("a,b,y\n1,2,1e30\n", "holds '1e30', which is not a number that i32 holds"),
        ("a,b,y\n1,2,99999999999999999999\n", "which is not a number that i32 holds"),
        ("a,b,y\n1,2,3\n1,2,rose\n", "line 3, column 2 (y) holds 'rose'"),
        (
            "a,b,y\n1,2,\n1,2,rose\n",
            "line 2, column 2 (y) holds nothing, where a class is expected",
        ),
        ("a,b,y\n1,2,3\n\n1,2\n", "line 4 has 2 cells, where the first row has 3"),
        ('a,b,y\n1,"2,3\n', "line 2"),
        ("a,b,y\n1,5,2,3\n", "line 2 has 4 cells, where the first row has 3"),
        ('a,b,y\n1,"5,2",3\n', "line 2, column 1 (b) holds '5,2', which is not a finite number"),
        ("a,b,y\n1,2,1e9999999999999999999999\n", "which is not a number that i32 holds"),
        (f"a,b,y\n1,2,{'0' * 5000}1\n1,x,2", "line 3, column 1 (b) holds 'x'"),
        ("a,b,y\n1,x,-1e-9999999999999999999999\n", "line 2, column 1 (b) holds 'x'"),
        (b"a,b,y\n1,2,\xff\n", "byte 10 is not UTF-8"),
    ],
)
def test_a_bad_cell_is_told_with_its_line_and_column(
    tmp_path: Path, text: str | bytes, told: str
) -> None:
    with refused("D0545", "t.csv: ", told):
        table(tmp_path, text)


def test_a_name_that_is_not_there_is_told(tmp_path: Path) -> None:
    with refused("D0541", "there is no y for the input y", "it has a, b, why"):
        table(tmp_path, "a,b,why\n1,2,3\n")
    with refused("D0541", "there is no y for the input y", "it has 0 to 2"):
        table(tmp_path, "1,2,3\n")


@pytest.mark.parametrize("field", ["columns(0, 4)", "columns(2, 2)", "columns(4)"])
def test_columns_that_are_not_there_are_told(tmp_path: Path, field: str) -> None:
    with refused("D0541", f"x is {field}, but the first row has 3 cells"):
        table(tmp_path, "a,b,y\n1,2,3\n", {"x": field, "y": "y"})
    with refused("D0541", "but the first row has 1 cells", 'separator=";"'):
        table(tmp_path, "1;2;3\n4;5;6\n", {"x": "columns(0, 2)", "y": "0"})


@pytest.mark.parametrize("text", ["", "\n", "a,b,y\n", "a,b,y\n\n \n"])
def test_a_table_without_rows_is_told(tmp_path: Path, text: str) -> None:
    with refused("D0544", "t.csv: it holds no examples"):
        table(tmp_path, text)


@pytest.mark.parametrize(("dtype", "value"), [("u64", -1), ("bool", 2), ("i8", 128), ("u8", -1)])
def test_a_whole_number_that_does_not_fit_is_told(tmp_path: Path, dtype: str, value: int) -> None:
    with refused(
        "D0545", f"line 2, column 0 (v) holds '{value}', which is not a number that {dtype}"
    ):
        table(tmp_path, f"v\n{value}\n", {"v": "v"}, (Input("v", dtype, ("B",)),))


def test_a_good_cell_is_not_blamed_for_a_bad_one(tmp_path: Path) -> None:
    text = f"v,w\n{2**63 - 1},1\n-{2**63},1\n1.0,1\n7,x\n"
    fields = {"v": "columns(0, 2)"}
    with refused("D0545", "line 5, column 1 (w) holds 'x'"):
        table(tmp_path, text, fields, (Input("v", "i64", ("B", "2")),))


def test_two_columns_of_one_name_are_told(tmp_path: Path) -> None:
    text = "y,b,y\n1,2,3\n"
    with refused("D0541", "2 columns are called y", "0 or 2"):
        table(tmp_path, text)
    assert in_order(table(tmp_path, text, {"x": "columns(2)", "y": "2"}))["y"].tolist() == [3]


def test_what_counts_as_a_number() -> None:
    assert all(map(is_number, ["1", " -1.5 ", "+.5", "5.", "1e5", "1.5E-07"]))
    assert not any(
        map(is_number, ["", ".", "e5", "1_0", "0x1", "nan", "-inf", "1 2", "1,5", "٣", "1\x1f"])
    )


def test_the_shipped_table_can_be_read() -> None:
    source = source_of(
        "csv", "breast_cancer.csv", {"x": "columns(0, 30)", "y": "benign"}, {"test": 0.2}
    )
    data = open_data(source, [Input("x", "f32", ("B", "30")), Y], EXAMPLES, seed=1)
    kept = part(data)
    assert (data.count, kept.count) == (455, 114)
    labels = np.concatenate([in_order(data)["y"], in_order(kept)["y"]])
    assert np.bincount(labels.astype(np.int64)).tolist() == [212, 357]
    assert float(np.concatenate([in_order(data)["x"], in_order(kept)["x"]]).max()) == 4254.0
