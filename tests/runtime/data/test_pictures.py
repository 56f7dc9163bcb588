"""Folders of pictures, and what an option may be."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.runtime.artifact.canonical_json import dump, load
from dlc.runtime.artifact.manifest import DataSource, Input
from dlc.runtime.artifact.schema import decode, encode
from dlc.runtime.data import Dataset, Setting, open_data, source_of
from tests.runtime.data.sources import LABEL, in_order, opened, part, refused

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

IMAGE = Input("image", "u8", ("B", "H", "W", "3"))


def picture(height: int, width: int, value: int, channels: int = 3) -> NDArray[np.uint8]:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return (np.arange(np.prod(shape), dtype=np.int64) % 50 + value).astype(np.uint8).reshape(shape)


def save(path: Path, pixels: NDArray[np.uint8]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    folder = tmp_path / "flowers"
    save(folder / "rose" / "1.png", picture(4, 6, 10))
    save(folder / "rose" / "2.PNG", picture(4, 6, 20))
    save(folder / "iris" / "a.bmp", picture(4, 6, 30))
    (folder / "iris" / "readme.txt").write_text("no picture")
    (folder / ".hidden").mkdir()
    return folder


def test_sub_folders_are_classes(flowers: Path) -> None:
    data = opened(flowers, [IMAGE, LABEL], "pictures", shuffle=False)
    found = in_order(data)
    assert found["label"].tolist() == [0, 1, 1]
    assert data.classes == {"label": ("iris", "rose")}
    expected = [picture(4, 6, value) for value in (30, 10, 20)]
    np.testing.assert_array_equal(found["image"], np.stack(expected))


def test_inputs_may_have_other_names(flowers: Path) -> None:
    wanted = [Input("x", "u8", ("B", "4", "6", "3")), Input("y", "u8", ("B",))]
    data = opened(flowers, wanted, "pictures", {"x": "image", "y": "label"})
    assert data.classes == {"y": ("iris", "rose")}
    assert sorted(in_order(data)["y"].tolist()) == [0, 1, 1]
    with refused("D0541", "there is no kind for the input y", "it has image, label"):
        opened(flowers, wanted, "pictures", {"x": "image", "y": "kind"})


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_floats_are_from_0_to_1(tmp_path: Path, dtype: str) -> None:
    save(tmp_path / "p" / "c" / "1.png", np.array([[0, 51, 255]], np.uint8))
    data = opened(tmp_path / "p", [Input("image", dtype, ("B", "1", "3", "1"))], "pictures")
    values = in_order(data)["image"]
    found = (values.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else values
    np.testing.assert_allclose(found.ravel().astype(np.float64), [0, 0.2, 1], rtol=4e-3)
    assert found.ravel()[2] == 1


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_are_those_that_the_loss_takes(flowers: Path, channels: int) -> None:
    wanted = [Input("image", "u8", ("B", "4", "6", str(channels)))]
    found = in_order(opened(flowers, wanted, "pictures"))["image"]
    assert found.shape == (3, 4, 6, channels)
    assert channels < 4 or (found[..., 3] == 255).all()


def test_size_brings_pictures_to_one_size(flowers: Path) -> None:
    save(flowers / "iris" / "large.png", picture(8, 8, 0))
    data = opened(flowers, [IMAGE, LABEL], "pictures", size="3x5")
    assert in_order(data)["image"].shape == (4, 3, 5, 3)
    with refused("D0546", "large.png: it is 8 x 8 (height x width), where", "4 x 6", 'size="4x6"'):
        opened(flowers, [IMAGE, LABEL], "pictures")


def test_a_size_that_the_loss_does_not_take_is_told(flowers: Path) -> None:
    wanted = [Input("image", "u8", ("B", "5", "5", "3"))]
    with refused("D0543", "image is u8[3, 4, 6, 3], where u8[examples, 5, 5, 3] is expected"):
        opened(flowers, wanted, "pictures")
    for item in (
        Input("image", "u8", ("B", "5", "5")),
        Input("image", "i32", ("B", "4", "6", "3")),
    ):
        with refused("D0543", "which takes no picture"):
            opened(flowers, [item], "pictures")


def test_the_test_folder_has_the_classes_of_the_training(flowers: Path) -> None:
    save(flowers.parent / "kept" / "rose" / "1.png", picture(4, 6, 0))
    data = opened(flowers, [IMAGE, LABEL], "pictures", test="kept")
    assert in_order(part(data))["label"].tolist() == [1]
    save(flowers.parent / "kept" / "tulip" / "1.png", picture(4, 6, 0))
    with refused("D0546", "the class tulip is none of those to train on", "iris, rose"):
        opened(flowers, [IMAGE, LABEL], "pictures", test="kept")


def test_a_folder_without_pictures_is_told(tmp_path: Path) -> None:
    (tmp_path / "p" / "c").mkdir(parents=True)
    with refused("D0546", "holds no pictures in sub-folders"):
        opened(tmp_path / "p", [IMAGE], "pictures")
    with pytest.raises(Exception, match="D0501"):
        opened(tmp_path / "none", [IMAGE], "pictures")


def test_a_damaged_picture_is_told_when_it_is_read(flowers: Path) -> None:
    stream = io.BytesIO()
    Image.fromarray(picture(4, 6, 0)).save(stream, "PNG")
    (flowers / "rose" / "3.png").write_bytes(stream.getvalue()[:60])
    data = opened(flowers, [IMAGE], "pictures")
    for ahead in (0, 2):
        with pytest.raises(Exception, match=r"D0503.*3\.png"):
            list(data.batches(0, 4, 0, ahead=ahead))
    (flowers / "rose" / "3.png").write_bytes(b"nothing")
    with pytest.raises(Exception, match=r"D0503.*3\.png"):
        opened(flowers, [IMAGE], "pictures")


def test_a_text_cannot_reach_pictures_through_a_link(flowers: Path, tmp_path: Path) -> None:
    save(tmp_path / "elsewhere" / "1.png", picture(4, 6, 0))
    (flowers / "lily").symlink_to(tmp_path / "elsewhere")
    with refused("D0506", "lily is a symbolic link"):
        opened(flowers, [IMAGE], "pictures")


# ------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("kind", "settings", "told"),
    [
        ("npz", {"test": 1.5}, "test is a part between 0 and 1, or a path; found 1.5"),
        ("npz", {"test": 20}, "found 20"),
        ("npz", {"test": True}, "found True"),
        ("npz", {"limit": 0}, "limit is a number of examples; found 0"),
        ("npz", {"limit": 1.5}, "found 1.5"),
        ("npz", {"shuffle": 1}, "shuffle is true or false; found 1"),
        ("npz", {"header": True}, "header is an option of csv, not of npz"),
        ("csv", {"header": "yes"}, "header is true or false"),
        ("csv", {"separator": "||"}, "separator is one character"),
        ("csv", {"separator": "1"}, "separator is one character"),
        ("pictures", {"size": "large"}, "size is that of a picture; found 'large'"),
        ("pictures", {"size": 0}, "found 0"),
        ("pictures", {"size": True}, "found True"),
        ("npz", {"sizes": 3}, "data has no option sizes"),
        ("hdf5", {}, "there is no data source hdf5"),
    ],
)
def test_an_option_without_meaning_is_told(
    kind: str, settings: dict[str, Setting], told: str
) -> None:
    with refused("D0540", told):
        source_of(kind, "data", {}, settings)


def test_a_source_travels_through_canonical_json() -> None:
    sources = [
        source_of("npz", "d.npz", {"x": "a"}, {"test": 0.2, "limit": 5, "shuffle": False}),
        source_of("csv", "d.csv", {"x": "columns(0, 3)"}, {"separator": ";", "header": False}),
        source_of("pictures", "p", {}, {"test": "q", "size": 64}),
    ]
    for source in sources:
        assert decode(DataSource, load(dump(encode(source)))) == source
    assert sources[0].test_part == "0.2"
    assert (sources[2].size, sources[2].test_path) == ((64, 64), "q")


SENSELESS: list[dict[str, object]] = [
    {"test_part": "half"},
    {"test_part": "1e-999999999"},
    {"test_part": "0.20"},
    {"test_part": "nan"},
    {"test_part": "2.0"},
    {"test_part": "0.2", "test_path": "q"},
    {"limit": 0},
    {"limit": -5},
    {"kind": "csv", "separator": "||"},
    {"kind": "npz", "header": True},
    {"kind": "pictures", "size": ()},
    {"kind": "pictures", "size": (0, 5)},
    {"kind": "pictures", "size": (1, 2, 3)},
]


@pytest.mark.parametrize("changes", SENSELESS)
def test_a_source_of_a_damaged_artifact_is_told(tmp_path: Path, changes: dict[str, object]) -> None:
    source = DataSource("npz", "d.npz", {})._replace(**changes)
    for override in (None, {"label": np.arange(10)}):
        with refused("D0540"):
            open_data(source, [LABEL], tmp_path, override)


def test_a_dataset_says_where_it_comes_from(flowers: Path) -> None:
    data: Dataset = opened(flowers, [IMAGE], "pictures")
    assert data.name == str(flowers)
