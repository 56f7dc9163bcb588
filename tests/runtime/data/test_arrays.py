"""Examples in npz, npy and safetensors files, in Python's arrays, and in streams of batches."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.dtypes import DTYPES, bf16_bits
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Dim, Input
from dlc.runtime.data import Dataset, open_data, source_of
from tests.runtime.data.sources import IMAGE, LABEL, X, Y, in_order, opened, part, refused
from tests.suites import together

ROOT = Path(__file__).parents[3]
IMAGES = np.arange(40, dtype=np.uint8).reshape(10, 2, 2, 1)
LABELS = np.arange(10)


def saved(path: Path, **arrays: NDArray[np.generic]) -> Path:
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    return path


def check(data: Dataset) -> None:
    """The dataset holds IMAGES and LABELS."""
    found = in_order(data)
    assert found["label"].dtype == np.int32
    assert found["image"].dtype == np.uint8
    order = found["label"].astype(np.int64)
    assert sorted(order.tolist()) == LABELS.tolist()
    np.testing.assert_array_equal(found["image"], IMAGES[order])


# --------------------------------------------------------------------------------------- files


def test_arrays_of_an_npz_file_are_found_by_their_names(tmp_path: Path) -> None:
    path = saved(tmp_path / "d.npz", images=IMAGES, labels=LABELS)
    check(opened(path, [IMAGE, LABEL], "npz", {"image": "images", "label": "labels"}))


def test_names_that_are_not_given_are_those_of_the_inputs(tmp_path: Path) -> None:
    check(opened(saved(tmp_path / "d.npz", image=IMAGES, label=LABELS), [IMAGE, LABEL], "npz"))


def test_a_compressed_npz_file_gives_the_same(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez_compressed(path, image=IMAGES, label=LABELS)
    check(opened(path, [IMAGE, LABEL], "npz"))


def test_arrays_of_a_safetensors_file(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    safetensors.write(path, {"image": Tensor(IMAGES), "label": Tensor(LABELS)})
    check(opened(path, [IMAGE, LABEL], "safetensors"))


def test_a_folder_of_npy_files(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    np.save(folder / "pictures.npy", np.asfortranarray(IMAGES))
    np.save(folder / "label.npy", LABELS)
    check(opened(folder, [IMAGE, LABEL], "npy", {"image": "pictures"}))


def test_one_npy_file_is_one_input(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(3, dtype=np.float32))
    data = opened(tmp_path / "x.npy", [X], "npy", shuffle=False)
    np.testing.assert_array_equal(in_order(data)["x"], np.eye(3))
    with refused("D0541", "x.npy: it holds one array", "x.npy, y.npy"):
        opened(tmp_path / "x.npy", [X, Y], "npy")


def test_the_test_may_be_another_file(tmp_path: Path) -> None:
    saved(tmp_path / "train.npz", image=IMAGES, label=LABELS)
    saved(tmp_path / "test.npz", image=IMAGES[:4], label=LABELS[:4])
    data = opened(tmp_path / "train.npz", [IMAGE, LABEL], "npz", test="test.npz", limit=6)
    assert data.count == 6
    assert in_order(part(data))["label"].tolist() == [0, 1, 2, 3]


def test_the_shipped_digits_can_be_read() -> None:
    wanted = [Input("image", "u8", ("B", "8", "8", "1")), LABEL]
    source = source_of("npz", "digits.npz", {"image": "images", "label": "labels"}, {"test": 0.2})
    data = open_data(source, wanted, ROOT / "examples" / "data", seed=1)
    assert (data.count, part(data).count) == (1438, 359)
    assert int(in_order(data)["image"].max()) == 16
    assert sorted(set(in_order(part(data))["label"].tolist())) == list(range(10))


READ_MAPPED = """
import resource, sys
from dlc.runtime.data import open_data, source_of
from dlc.runtime.artifact.manifest import Input
wanted = [Input("x", "u8", ("B", "D"))]
data = open_data(source_of("npy", "x.npy", {}, {}), wanted, sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
batches = data.batches(0, 8, 1)
seen = [int(next(batches)["x"][0, 0]) for _ in range(3)]
batches.close()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_file_is_mapped_and_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x.npy").open("wb") as file:
        header = "{'descr': '|u1', 'fortran_order': False, 'shape': (65536, 8192), }"
        text = header.ljust(117) + "\n"
        file.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode())
        file.truncate(file.tell() + 65536 * 8192)
    command = [sys.executable, "-c", READ_MAPPED, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64 << 10, "KiB more for 24 rows of 512 MiB"


# ----------------------------------------------------------------------------------- what is wrong


def test_a_missing_name_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    path = saved(tmp_path / "d.npz", images=IMAGES, labels=LABELS)
    with refused("D0541", "d.npz: there is no image for the input image", "did you mean images?"):
        opened(path, [IMAGE, LABEL], "npz")
    with refused("D0541", "there is no q for the input label", "it has images, labels"):
        opened(path, [IMAGE, LABEL], "npz", {"image": "images", "label": "q"})


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "none.npz"
    with pytest.raises(Exception, match=r"D0501.*none\.npz"):
        opened(path, [LABEL], "npz")


def test_a_text_cannot_name_a_file_outside_its_folder(tmp_path: Path) -> None:
    saved(tmp_path / "d.npz", label=LABELS)
    (tmp_path / "inner").mkdir()
    source = source_of("npz", "../d.npz", {}, {})
    with refused("D0506", "'..'"):
        open_data(source, [LABEL], tmp_path / "inner")
    data = open_data(source, [LABEL], tmp_path / "inner", tmp_path / "d.npz")
    assert data.count == 10, "the user may"


def test_parts_of_unequal_length_are_told(tmp_path: Path) -> None:
    path = saved(tmp_path / "d.npz", images=IMAGES, label=LABELS[:9])
    with refused("D0544", "d.npz: image (images) has 10 examples, label has 9"):
        opened(path, [IMAGE, LABEL], "npz", {"image": "images"})


def test_no_examples_are_told(tmp_path: Path) -> None:
    path = saved(tmp_path / "d.npz", image=IMAGES[:0], label=LABELS[:0])
    with refused("D0544", "holds no examples"):
        opened(path, [IMAGE, LABEL], "npz")


@pytest.mark.parametrize("count", [1, 2])
def test_a_part_without_examples_is_told(tmp_path: Path, count: int) -> None:
    path = saved(tmp_path / "d.npz", label=LABELS[:count])
    with refused("D0544", f"of {count} examples test=0.1 keeps 0"):
        opened(path, [LABEL], "npz", test=0.1)


def test_a_scalar_is_told(tmp_path: Path) -> None:
    with refused("D0543", "label is one i64, where a row for each example is expected"):
        opened(saved(tmp_path / "d.npz", label=np.array(3)), [LABEL], "npz")
    with refused("D0543", "t is f32, which has no axis for the examples", "f32[B]"):
        opened(saved(tmp_path / "d.npz", t=LABELS), [Input("t", "f32")], "npz")


def test_other_shapes_are_told_with_both(tmp_path: Path) -> None:
    path = saved(tmp_path / "d.npz", images=IMAGES[..., 0], label=LABELS)
    told = "image (images) is u8[10, 2, 2], where u8[examples, 2, 2, 1] is expected"
    with refused("D0543", f"d.npz: {told}", "add a last axis of size 1: image is [10, 2, 2, 1]"):
        opened(path, [IMAGE, LABEL], "npz", {"image": "images"})
    path = saved(tmp_path / "e.npz", image=IMAGES.reshape(10, 4, 1, 1), label=LABELS)
    with refused("D0543", "u8[10, 4, 1, 1]", "the loss takes image: u8[B, 2, 2, 1], label: i32[B]"):
        opened(path, [IMAGE, LABEL], "npz")


def test_a_named_size_means_one_thing(tmp_path: Path) -> None:
    square = Input("x", "f32", ("B", "D", "D"))
    path = saved(tmp_path / "d.npz", x=np.zeros((3, 4, 5), np.float32))
    with refused("D0543", "D is 4 in x but 5 in x"):
        opened(path, [square], "npz")
    twice = Input("x", "f32", ("B", "2*D", "D"))
    with refused("D0543", "x"):
        opened(path, [twice], "npz")


def test_sizes_keep_their_bounds(tmp_path: Path) -> None:
    path = saved(tmp_path / "d.npz", x=np.zeros((30, 4), np.float32))
    dims = [Dim("B", 1, 8), Dim("D", 1, 3), Dim("Other", 1, 2)]
    with refused("D0543", "D is 4 in x, outside its bounds 1..3"):
        opened(path, [X], "npz", {}, dims)
    assert opened(path, [X], "npz", {}, dims[:1]).count == 30, "B bounds a batch, not the file"


WHOLE = ["i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"]


@together(
    ("have", "want"),
    itertools.product([*WHOLE, "bool"], [*WHOLE, "f64", "f32", "f16", "bf16"]),
)
def test_whole_numbers_become_any_type_that_holds_them(have: str, want: str) -> None:
    values = Tensor([0, 1, 1, 0], have) if have == "bool" else Tensor([0, 1, 100, 127], have)
    data = open_data(None, [Input("y", want, ("B",))], override={"y": values})
    [batch] = data.batches(0, 4, 0)
    found = Tensor.from_bits(batch["y"], want).values()
    assert sorted(found.tolist()) == sorted(np.asarray(values.values(), np.int64).tolist())


@pytest.mark.parametrize(
    ("have", "want", "value"),
    [
        ("i64", "i32", 2**31),
        ("i64", "i32", -(2**31) - 1),
        ("i32", "u8", -1),
        ("u8", "i8", 128),
        ("u64", "i64", 2**63),
        ("i64", "f32", 2**24 + 1),
        ("i32", "f16", 2049),
        ("i32", "bf16", -257),
        ("u64", "f64", 2**53 + 1),
    ],
)
def test_a_whole_number_that_does_not_fit_is_told(have: str, want: str, value: int) -> None:
    values = np.array([0, value, 1], DTYPES[have].numpy)
    with refused("D0542", f"y is {have} and holds {value}, which {want} does not"):
        open_data(None, [Input("y", want, ("B",))], override={"y": values})


@pytest.mark.parametrize(
    ("have", "want"),
    [
        ("f64", "f32"),
        ("f32", "f16"),
        ("f32", "bf16"),
        ("f16", "bf16"),
        ("bf16", "f16"),
        ("f32", "i32"),
        ("u8", "bool"),
        ("f32", "bool"),
    ],
)
def test_values_are_never_changed_silently(have: str, want: str) -> None:
    with refused("D0542", f"y is {have}, where {want} is expected"):
        open_data(None, [Input("y", want, ("B",))], override={"y": Tensor([1, 2, 3], have)})


@pytest.mark.parametrize(
    ("have", "want"), [("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("f32", "f64")]
)
def test_floats_become_wider_floats(have: str, want: str) -> None:
    values = Tensor([1.5, -0.25, 1e-3], have)
    [batch] = open_data(None, [Input("y", want, ("B",))], override={"y": values}).batches(0, 3, 0)
    assert sorted(batch["y"].tolist()) == sorted(values.tolist())  # pyright: ignore[reportArgumentType]


def test_bf16_is_handed_over_as_its_bits(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    values = np.array([1.0, 2.5, -3.0], np.float32)
    safetensors.write(path, {"y": Tensor(values, "bf16")})
    data = opened(path, [Input("y", "bf16", ("B",))], "safetensors", shuffle=False)
    np.testing.assert_array_equal(in_order(data)["y"], bf16_bits(values))


def test_a_type_that_dlc_lacks_is_told() -> None:
    with refused("D0542", "y is an array of complex128"):
        open_data(None, [Y], override={"y": np.zeros(3, complex)})
    with refused("D0542", "holds something that is not a number"):
        open_data(None, [Y], override={"y": ["a", "b"]})


# ----------------------------------------------------------------------------------- instead of it


def test_python_lists_take_the_type_of_the_input() -> None:
    data = open_data(None, [X, Y], override={"x": [[0.1, 2], [3, 4]], "y": [1, 0]})
    assert sorted(in_order(data)["x"].ravel().tolist()) == [np.float32(0.1), 2, 3, 4]


def test_what_the_user_names_is_known_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("image,label\n1,2\n")
    np.save(tmp_path / "label.npy", LABELS)
    csv = source_of("csv", "d.csv", {"label": "label"}, {})
    assert open_data(csv, [LABEL], tmp_path).count == 1
    assert open_data(csv, [LABEL], tmp_path, str(tmp_path / "label.npy")).count == 10
    assert open_data(csv, [LABEL], tmp_path, tmp_path).count == 10, "a folder of npy files"


def test_something_else_is_no_data() -> None:
    with pytest.raises(Exception, match=r"cannot come from a int"):
        open_data(None, [Y], override=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(Exception, match="there is no data"):
        open_data(None, [Y])


# --------------------------------------------------------------------------------------- streams


def batch(first: int, count: int) -> dict[str, NDArray[np.generic]]:
    return {
        "x": np.full((count, 2), first, np.float32),
        "y": np.arange(first, first + count),
    }


BATCHES = [batch(0, 3), batch(3, 3), batch(6, 1)]


def test_a_list_of_batches_gives_them_in_order_in_every_epoch() -> None:
    data = open_data(None, [X, Y], override=BATCHES)
    assert data.count is None and data.test is None and data.buffers(3, 2) == []
    for epoch in range(2):
        found = list(data.batches(epoch, 3, seed=epoch))
        assert [b["y"].tolist() for b in found] == [[0, 1, 2], [3, 4, 5], [6]]
        assert all(b["y"].dtype == np.int32 for b in found)


def test_a_batch_may_be_a_tuple_in_the_order_of_the_inputs() -> None:
    data = open_data(None, [X, Y], override=[(b["x"], b["y"]) for b in BATCHES])
    assert [b["y"].tolist() for b in data.batches(0, 3, 0)] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_stream_goes_on_from_a_position() -> None:
    data = open_data(None, [X, Y], override=BATCHES)
    assert [b["y"].tolist() for b in data.batches(0, 3, 0, start=3)] == [[3, 4, 5], [6]]
    assert list(data.batches(0, 3, 0, start=7)) == []
    with refused("D0547", "batch 1 has the examples 3 to 5, but training goes on from example 4"):
        list(data.batches(0, 3, 0, start=4))


def test_a_stream_fills_the_callers_arrays() -> None:
    data = open_data(None, [X, Y], override=BATCHES)
    sets = [{"x": np.zeros((3, 2), np.float32), "y": np.zeros(3, np.int32)} for _ in range(2)]
    for ahead in (0, 1):
        seen = [b["y"].tolist() for b in data.batches(0, 3, 0, out=sets, ahead=ahead)]
        assert seen == [[0, 1, 2], [3, 4, 5], [6]]
    with refused("D0547", "batch 0 has 3 examples, at most 2 are expected"):
        list(data.batches(0, 2, 0, out=[{name: a[:2] for name, a in sets[0].items()}]))


def test_an_iterator_has_one_epoch() -> None:
    data = open_data(None, [X, Y], override=iter(BATCHES))
    assert len(list(data.batches(0, 3, 0))) == 3
    with refused("D0547", "only once"):
        list(data.batches(1, 3, 0))


def test_a_batch_that_does_not_fit_is_told_with_its_number() -> None:
    wrong: list[tuple[object, str, str]] = [
        ({"x": BATCHES[0]["x"]}, "D0541", "batch 1: there is no y"),
        ({**BATCHES[0], "y": np.zeros(3)}, "D0542", "batch 1: y is f64"),
        ({**BATCHES[0], "y": np.zeros(2, np.int32)}, "D0543", "batch 1: "),
        (BATCHES[0]["x"], "D0547", "batch 1: it is a ndarray"),
        ((1, 2, 3), "D0547", "batch 1: it has 3 arrays, where 2 are expected"),
    ]
    for bad, code, text in wrong:
        data = open_data(None, [X, Y], override=[BATCHES[0], bad])
        with refused(code, text):
            list(data.batches(0, 3, 0))


def test_an_error_of_the_iterable_arrives() -> None:
    def failing() -> Iterator[object]:
        yield BATCHES[0]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(open_data(None, [X, Y], override=failing()).batches(0, 3, 0))
