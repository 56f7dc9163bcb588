"""Tables of buffers: how they are read, what is refused with its line, and how the published ones fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.driver.report.instances import place_instance, read_instance
from dlc.errors import ModelError, UsageError
from dlc.planning.arena import Buffer, find_overlap, height, lower_bound
from tests.documents import ROOT
from tests.suites import every

PUBLISHED = ROOT / "benchmarks" / "minimalloc"
CAPACITY = 1_048_576


def write(folder: Path, text: str | bytes) -> str:
    path = folder / "buffers.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_a_table_is_read_whatever_its_line_ends_spaces_and_order_of_columns(tmp_path: Path) -> None:
    text = "\ufeffsize, id ,upper,lower,remark\r\n64,a,4,0,x\r\n\r\n 32 , b,5, 3 ,\r\n"
    found = read_instance(write(tmp_path, text))
    assert found == {"a": Buffer(64, 0, 3), "b": Buffer(32, 3, 4)}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "names no column id and no lower and no upper and no size"),
        ("id,lower,upper\n0,1,2\n", 1, "names no column size"),
        ("id,lower,upper,size\n", 1, "there is no buffer"),
        ("id,lower,upper,size\n0,1,2,3\n1,1,2\n", 3, "there are 3 cells, the first row has 4"),
        ("id,lower,upper,size\n0,1,2,3\n\n0,1,2,4\n", 4, "the id 0 is already on an earlier line"),
        ("id,lower,upper,size\n0,1,2,-3\n", 2, "the size of 0 is '-3', not an integer"),
        ("id,lower,upper,size\n0,1.5,2,3\n", 2, "the lower of 0 is '1.5', not an integer"),
        ("id,lower,upper,size\n0,1,,3\n", 2, "the upper of 0 is '', not an integer"),
        ("id,lower,upper,size\n0,1,9007199254740992,3\n", 2, "the upper of 0 is"),
        ("id,lower,upper,size\n0,4,4,3\n", 2, "0 ends at 4, and begins no earlier"),
        ('id,lower,upper,size\n0,1,2,3\n"1,1,2,3\n', 3, "unexpected end of data"),
        (b"id,lower,upper,size\n\xff,1,2,3\n", 2, "is not UTF-8"),
    ],
)
def test_a_table_that_is_none_is_refused_with_its_line(
    tmp_path: Path, text: str | bytes, line: int, message: str
) -> None:
    with pytest.raises(ModelError) as refused:
        read_instance(write(tmp_path, text))
    (told,) = refused.value.diagnostics
    assert told.code == "D0551"
    assert told.place is not None
    assert told.place.line == line
    assert message in told.message


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read_instance(str(tmp_path / "none.csv"))


def test_buffers_keep_their_ids_their_order_and_their_sizes(tmp_path: Path) -> None:
    placed = place_instance(write(tmp_path, "id,lower,upper,size\nb,0,2,64\na,1,3,32\nc,2,4,64\n"))
    assert [(each.id, each.size) for each in placed.buffers] == [("b", 64), ("a", 32), ("c", 64)]
    assert (placed.height, placed.lower_bound) == (96, 96)


def test_a_table_of_one_buffer_without_bytes_has_no_height(tmp_path: Path) -> None:
    placed = place_instance(write(tmp_path, "id,lower,upper,size\n0,0,1,0\n"))
    assert (placed.height, placed.lower_bound, placed.buffers[0].offset) == (0, 0, 0)


@pytest.mark.parametrize("name", every(2, ["A", "B", "C", "E", "F", "G", "H", "K"]))
def test_a_published_instance_fits_the_capacity_for_which_it_was_published(name: str) -> None:
    path = str(PUBLISHED / f"{name}.1048576.csv")
    buffers = list(read_instance(path).values())
    placed = place_instance(path)
    offsets = [each.offset for each in placed.buffers]
    assert find_overlap(buffers, offsets) is None
    assert height(buffers, offsets) == placed.height <= CAPACITY
    assert placed.lower_bound == lower_bound(buffers)
    assert placed == place_instance(path)


@pytest.mark.long
def test_all_published_instances_fit_and_are_placed_as_low_as_promised() -> None:
    ratios: list[float] = []
    for path in sorted(PUBLISHED.glob("*.csv")):
        placed = place_instance(str(path))
        assert placed.height <= CAPACITY, path
        ratios.append(placed.height / placed.lower_bound)
    assert len(ratios) == 11
    assert sum(ratios) / len(ratios) <= 1.08
    assert max(ratios) <= 1.12
