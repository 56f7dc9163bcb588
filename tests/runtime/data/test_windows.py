"""A text in windows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dlc.runtime.artifact.manifest import Dim, Input
from dlc.runtime.data import Dataset, open_data, source_of
from tests.runtime.data.sources import in_order, opened, part, refused

IDS = Input("ids", "u8", ("B", "T"))
EXAMPLES = Path(__file__).parents[3] / "examples" / "data"


def windows(path: Path, text: bytes, window: int, **settings: float) -> Dataset:
    path.write_bytes(text)
    fields = {"ids": f"window({window})"}
    return opened(path, [IDS], "text", fields, **settings)


def texts(data: Dataset) -> list[bytes]:
    """The windows, sorted."""
    return sorted(row.tobytes() for row in in_order(data)["ids"])


def test_windows_overlap_by_one_byte(tmp_path: Path) -> None:
    data = windows(tmp_path / "t.txt", b"abcdefghij", 4)
    assert texts(data) == [b"abcd", b"defg", b"ghij"]


def test_the_last_window_ends_with_the_text(tmp_path: Path) -> None:
    data = windows(tmp_path / "t.txt", b"abcdefghijk", 4)
    assert texts(data) == [b"abcd", b"defg", b"ghij", b"hijk"]


@pytest.mark.parametrize("length", [65, 128, 129, 130, 1000])
def test_every_byte_but_the_first_is_foretold_in_every_epoch(tmp_path: Path, length: int) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(bytes(length))
    wanted = [Input("ids", "i32", ("B", "65"))]
    data = opened(path, wanted, "text", {"ids": "window( 65 )"}, shuffle=False)
    assert data.count == -((1 - length) // 64)
    starts = [64 * k for k in range((length - 1) // 64)]
    if (length - 1) % 64:
        starts.append(length - 65)
    foretold = Counter(start + k for start in starts for k in range(1, 65))
    assert set(foretold) == set(range(1, length))
    assert sum(foretold.values()) - (length - 1) < 64, "few come twice"
    assert in_order(data)["ids"].shape == (len(starts), 65)


def test_the_test_part_is_the_end_and_shares_no_byte(tmp_path: Path) -> None:
    data = windows(tmp_path / "t.txt", bytes(range(100)), 5, test=0.3)
    train = {byte for row in texts(data) for byte in row}
    kept = {byte for row in texts(part(data)) for byte in row}
    assert train == set(range(70)) and kept == set(range(70, 100))


def test_the_limit_counts_windows(tmp_path: Path) -> None:
    data = windows(tmp_path / "t.txt", bytes(range(100)), 5, limit=3)
    assert texts(data) == [bytes(range(k, k + 5)) for k in (0, 4, 8)]


def test_a_text_is_bytes_and_not_letters(tmp_path: Path) -> None:
    data = windows(tmp_path / "t.txt", "αβ".encode(), 4)
    assert texts(data) == ["αβ".encode()]


def test_ids_may_be_wider_than_bytes(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(bytes([0, 128, 255]))
    wanted = [Input("ids", "i32", ("B", "3"))]
    data = opened(tmp_path / "t.txt", wanted, "text", {"ids": "window(3)"})
    assert in_order(data)["ids"].tolist() == [[0, 128, 255]]
    with refused("D0542", "ids (window(3)) is u8 and holds 255, which i8 does not"):
        opened(tmp_path / "t.txt", [Input("ids", "i8", ("B", "3"))], "text", {"ids": "window(3)"})


def test_a_text_shorter_than_its_window_is_told(tmp_path: Path) -> None:
    with refused("D0544", "t.txt: it has 3 bytes, fewer than a window of 4"):
        windows(tmp_path / "t.txt", b"abc", 4)
    with refused("D0544", "its end, kept for the test, has 1 byte,"):
        windows(tmp_path / "t.txt", b"abcdefghij", 4, test=0.1)
    with refused("D0544", "it has 0 bytes"):
        windows(tmp_path / "t.txt", b"", 4)


@pytest.mark.parametrize("field", ["window(1)", "window(x)", "text", ""])
def test_a_text_has_windows_and_nothing_else(tmp_path: Path, field: str) -> None:
    (tmp_path / "t.txt").write_bytes(b"abcdefgh")
    with refused("D0541", "ids is", "ids=window(65)"):
        opened(tmp_path / "t.txt", [IDS], "text", {"ids": field})


def test_a_window_keeps_the_bounds_of_its_size(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"abcdefgh")
    with refused("D0543", "T is 4 in ids (window(4)), outside its bounds 1..3"):
        opened(tmp_path / "t.txt", [IDS], "text", {"ids": "window(4)"}, [Dim("T", 1, 3)])


def test_the_shipped_text_can_be_read() -> None:
    source = source_of("text", "shakespeare.txt", {"ids": "window(65)"}, {"test": 0.1})
    data = open_data(source, [IDS], EXAMPLES)
    assert (data.count, part(data).count) == (5253, 584)
    first = next(iter(data.batches(0, 32, 1)))["ids"]
    assert first.shape == (32, 65) and first.dtype == np.uint8 and int(first.max()) < 128
