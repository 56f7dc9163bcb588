"""safetensors, npz and npy: what is read, and what is refused by name."""

from __future__ import annotations

import io
import json
import random
import struct
import time
import zipfile
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.errors import ArtifactError, DlcError, ModelError, Unsupported, UsageError
from dlc.runtime.arrays import npz, safetensors
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.weights.files import WeightFile, open_weights, open_weights_inside
from tests.suites import together

ARRAYS = {
    "conv.w": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "ids": np.array([3, 1, 2], np.int64),
    "mask": np.array([True, False]),
    "step": np.array(7, np.uint16),
    "nothing": np.zeros((0, 5), np.float16),
}


def safetensors_bytes(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: object, shape: object, begin: object, end: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _read_all(path: Path) -> list[object]:
    file = open_weights(path)
    return [file[name].tolist() for name in file]


def refused(path: Path) -> str:
    """The message with which a file, or one of its arrays, is refused as damaged."""
    with pytest.raises(ArtifactError) as caught:
        _read_all(path)
    assert caught.value.diagnostics[0].code == "D0503"
    assert caught.value.diagnostics[0].message.startswith(str(path))
    return caught.value.diagnostics[0].message


# ------------------------------------------------------------------------------------ safetensors


def test_what_is_written_is_read_back_without_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    tensors = {name: Tensor(array) for name, array in ARRAYS.items()}
    tensors["half"] = Tensor([1.0, 2.5], "bf16")
    safetensors.write(path, tensors, {"made": "by hand"})
    file = open_weights(path)
    assert set(file) == set(tensors)
    for name, tensor in tensors.items():
        assert (file[name].dtype, file[name].shape) == (tensor.dtype, tensor.shape)
        assert file[name].tolist() == tensor.tolist()
        assert not file[name].bits.flags.writeable
        assert not file[name].bits.flags.owndata
    assert safetensors.metadata(memoryview(path.read_bytes()), str(path)) == {"made": "by hand"}


def test_the_same_arrays_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    tensors = {name: Tensor(array) for name, array in ARRAYS.items()}
    safetensors.write(one, tensors)
    safetensors.write(two, dict(reversed(tensors.items())))
    assert one.read_bytes() == two.read_bytes()


def test_the_reference_implementation_reads_and_writes_the_same(tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    path = tmp_path / "w.safetensors"
    safetensors.write(path, {name: Tensor(array) for name, array in ARRAYS.items()})
    theirs = cast("dict[str, NDArray[np.generic]]", reference.load_file(path))
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(theirs[name], array)
        assert theirs[name].dtype == array.dtype
    reference.save_file(ARRAYS, path)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(open_weights(path)[name].numpy(), array)


A = entry("F32", [2], 0, 8)


@together(
    ("data", "why"),
    [
        (b"", "does not fit"),
        (b"\x01", "does not fit"),
        ((1 << 63).to_bytes(8, "little"), "does not fit"),
        (safetensors_bytes(b"[]"), "not a JSON object"),
        (safetensors_bytes(b" {}"), "not a JSON object"),
        (safetensors_bytes(b"{"), "not JSON"),
        (safetensors_bytes(b'{"a":1.5}'), "not JSON"),
        (safetensors_bytes(b'{"a":NaN}'), "not JSON"),
        (safetensors_bytes(b"{\xff}"), "not JSON"),
        (safetensors_bytes(b'{"a":' * 100_000), "nested"),
        (safetensors_bytes(b'{"a":{"dtype":"F32"},"a":{}}'), "a key comes twice"),
        (safetensors_bytes({"a": 3}), "not described by an object"),
        (safetensors_bytes({"a": {}}), "must have the keys"),
        (safetensors_bytes({"a": {**A, "x": 1}}, bytes(8)), "must have the keys"),
        (safetensors_bytes({"a": A}, bytes(7)), "end at byte 8 of the data, the file has 7"),
        (safetensors_bytes({"a": A}, bytes(9)), "end at byte 8 of the data, the file has 9"),
        (
            safetensors_bytes({"a": entry("F32", [3], 0, 8)}, bytes(8)),
            r"8 bytes, which is not \[3\]",
        ),
        (
            safetensors_bytes({"a": entry("F32", [2], 8, 16)}, bytes(16)),
            "begins at byte 8, where 0",
        ),
        (safetensors_bytes({"a": A, "b": entry("F32", [2], 4, 12)}, bytes(12)), "where 8 is free"),
        (safetensors_bytes({"a": A, "b": entry("F32", [2], 12, 20)}, bytes(20)), "where 8 is free"),
        (safetensors_bytes({"a": entry("F32", [-2], 0, 8)}, bytes(8)), "a shape that is none"),
        (safetensors_bytes({"a": entry("F32", [True, 2], 0, 8)}, bytes(8)), "a shape that is none"),
        (safetensors_bytes({"a": entry("F32", [1] * 17, 0, 4)}, bytes(4)), "4 bytes, which is not"),
        (safetensors_bytes({"a": entry("F32", [1 << 62, 4], 0, 0)}), "a shape that is none"),
        (safetensors_bytes({"a": entry("F32", [1 << 61] * 9, 0, 0)}), "0 bytes, which is not"),
        (safetensors_bytes({"a": entry("F32", [0, 1 << 61], 0, 0)}), "0 bytes, which is not"),
        (safetensors_bytes({"a": entry(32, [2], 0, 8)}, bytes(8)), "no dtype"),
        (safetensors_bytes({"a": entry("F32", [2], 8, 0)}, bytes(8)), "data_offsets that are none"),
        (
            safetensors_bytes({"a": entry("F32", [2], -8, 0)}, bytes(8)),
            "data_offsets that are none",
        ),
    ],
)
def test_a_damaged_safetensors_file_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=why) as caught:
        open_weights(path)
    assert caught.value.diagnostics[0].code == "D0503"


def test_caps_of_the_header_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(safetensors_bytes({"a": A}, bytes(8)))
    assert list(open_weights(path)) == ["a"]
    monkeypatch.setattr(safetensors, "MAX_HEADER", 20)
    assert "at most 20 are read" in refused(path)
    monkeypatch.undo()
    monkeypatch.setattr(safetensors, "MAX_ENTRIES", 0)
    assert "1 arrays; at most 0" in refused(path)


def test_an_element_type_that_dlc_lacks_is_refused_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    table = {"a": entry("F8_E4M3", [8], 0, 8), "b": entry("F32", [2], 8, 16)}
    path.write_bytes(safetensors_bytes(table, bytes(16)))
    file = open_weights(path)
    assert file["b"].shape == (2,)
    with pytest.raises(Unsupported, match="a has the dtype F8_E4M3"):
        _ = file["a"]


def test_a_misspelt_name_gets_suggestions(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    safetensors.write(path, {name: Tensor(array) for name, array in ARRAYS.items()})
    with pytest.raises(ModelError) as caught:
        _ = open_weights(path)["conv.ww"]
    said = caught.value.diagnostics[0]
    assert (said.code, said.message) == ("D0504", f"{path}: there is no array conv.ww")
    assert said.help == "did you mean conv.w?"
    assert "conv.w" in open_weights(path)


def test_another_ending_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(b"a pickle")
    with pytest.raises(UsageError, match=r"use one of \.safetensors, \.npz, \.npy"):
        open_weights(tmp_path / "w.pt")
    for name in ("w.npz", "gone.pt"):
        with pytest.raises(UsageError, match="no such file"):
            open_weights(tmp_path / name)
    with pytest.raises(UsageError, match="may lead out"):
        open_weights_inside(tmp_path, "../w.npz")


# ------------------------------------------------------------------------------------ npz and npy


@pytest.mark.parametrize("compressed", [False, True])
def test_npz_files_are_read(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "w.npz"
    arrays = {**ARRAYS, "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3))}
    (np.savez_compressed if compressed else np.savez)(path, **arrays)  # pyright: ignore[reportArgumentType]
    file = open_weights_inside(tmp_path, "w.npz")
    assert set(file) == set(arrays)
    for name, array in arrays.items():
        assert file[name].dtype in DTYPES
        np.testing.assert_array_equal(file[name].numpy(), array)
        assert file[name].bits.flags.owndata is False


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bf16"])
def test_npy_files_of_every_dtype_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.npy"
    array = np.ones((2, 3), DTYPES[name].numpy)
    np.save(path, array)
    file = open_weights(path)
    assert list(file) == ["x"]
    assert file["x"].dtype == name
    np.testing.assert_array_equal(file["x"].numpy(), array)


def npy_bytes(header: str, data: bytes, version: int = 1) -> bytes:
    text = header.encode()
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not begin"),
        (b"\x93NUMPY\x01\x00", "does not begin"),
        (b"PK\x03\x04" + bytes(40), "does not begin"),
        (npy_bytes(GOOD, bytes(8), version=9), "version 9"),
        (npy_bytes(GOOD, bytes(7)), r"7 bytes are not \[2\] of f32"),
        (npy_bytes(GOOD, bytes(9)), "9 bytes are not"),
        (npy_bytes(GOOD, b"")[:20], "does not fit"),
        (npy_bytes(GOOD.replace("(2,)", "(-2,)"), bytes(8)), "not that of an npy file"),
        (npy_bytes(GOOD.replace("(2,)", "(2 0,)"), bytes(8)), "not that of an npy file"),
        (npy_bytes(GOOD.replace("(2,)", "(" + "9" * 19 + ",)"), bytes(8)), "8 bytes are not"),
        (npy_bytes(GOOD.replace("(2,)", "(0, 4611686018427387904)"), b""), "0 bytes are not"),
        (npy_bytes(GOOD.replace("(2,)", "(" + "9" * 5000 + ",)"), bytes(8)), "not that of an npy"),
        (npy_bytes(GOOD.replace("(2,)", "(" + "1," * 20 + ")"), bytes(4)), "4 bytes are not"),
        (npy_bytes(GOOD.replace("(2,)", "(4611686018427387903, 4)"), bytes(8)), "8 bytes are not"),
        (npy_bytes("{'descr': __import__('os')}", bytes(8)), "not that of an npy file"),
        (npy_bytes("(" * 9000, bytes(8)), "not that of an npy file"),
    ],
)
def test_a_damaged_npy_file_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=why):
        _ = open_weights(path)["x"]


@pytest.mark.parametrize("dtype", ["O", "U3", "S3", ">f4", "c8", "M8[s]", "V2", "f2,f4", "g"])
def test_an_npy_file_of_another_element_type_is_refused_and_never_unpickled(
    tmp_path: Path, dtype: str
) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(2, np.dtype(dtype)), allow_pickle=True)
    with pytest.raises((Unsupported, ArtifactError)):
        _ = open_weights(path)["x"]


def zip_of(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def test_what_is_not_an_array_in_an_archive_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    path.write_bytes(zip_of({"a.npy": npy_bytes(GOOD, bytes(8)), "README": b"hello", "../x": b""}))
    assert list(open_weights(path)) == ["a"]


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    size = 200 << 20
    header = GOOD.replace("(2,)", f"({size // 4},)")
    path.write_bytes(zip_of({"a.npy": npy_bytes(header, bytes(size))}, zipfile.ZIP_DEFLATED))
    assert "claim to unpack to" in refused(path)


def test_a_member_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    data = npy_bytes(GOOD, bytes(8))
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        good = zip_of({"a.npy": data}, compression)
        at = good.rindex(b"PK\x01\x02") + 24  # the unpacked size in the central directory
        for size in (len(data) - 1, len(data) + 1, 0, 1 << 31):
            path.write_bytes(good[:at] + struct.pack("<I", size) + good[at + 4 :])
            refused(path)


def test_an_archive_that_is_encrypted_or_packed_otherwise_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    path.write_bytes(zip_of({"a.npy": npy_bytes(GOOD, bytes(8))}, zipfile.ZIP_BZIP2))
    assert "not deflate" in refused(path)
    good = zip_of({"a.npy": npy_bytes(GOOD, bytes(8))})
    at = good.rindex(b"PK\x01\x02") + 8
    path.write_bytes(good[:at] + b"\x01" + good[at + 1 :])
    assert "encrypted" in refused(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_comes_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for _ in range(2):
            archive.writestr("a.npy", npy_bytes(GOOD, bytes(8)))
    assert "comes twice" in refused(path)


# -------------------------------------------------------------------------------------- mutations


def _good_files() -> dict[str, bytes]:
    buffer, packed = io.BytesIO(), io.BytesIO()
    np.savez(buffer, **ARRAYS)  # pyright: ignore[reportArgumentType]
    np.savez_compressed(packed, **ARRAYS)  # pyright: ignore[reportArgumentType]
    tensors = {name: Tensor(array) for name, array in ARRAYS.items()}
    return {
        "stored.npz": buffer.getvalue(),
        "packed.npz": packed.getvalue(),
        "x.npy": npy_bytes(GOOD, bytes(8)),
        "w.safetensors": b"".join(safetensors.pieces(tensors, {"a": "b"})),
    }


def survive(seed: int, count: int) -> int:
    """Read mutants of each kind of file; how many were refused. Only typed errors may come."""
    random_ = random.Random(seed)
    files = _good_files()
    readers = {".npz": npz.entries, ".npy": npz.single_entry, ".safetensors": safetensors.entries}
    refusals = 0
    for number in range(count):
        name = random_.choice(list(files))
        data = bytearray(files[name])
        for _ in range(random_.randint(1, 5)):
            at = random_.randrange(len(data))
            match random_.randrange(4):
                case 0:
                    data[at] = random_.randrange(256)
                case 1:
                    del data[at : at + random_.randint(1, 40)]
                case 2:
                    data[at:at] = random_.randbytes(random_.randint(1, 20))
                case _:
                    data[at : at + 4] = struct.pack("<i", random_.choice([0, -1, 1 << 30, 7]))
            data = data or bytearray(1)
        began = time.process_time()
        try:
            file = WeightFile(name, readers[Path(name).suffix](memoryview(bytes(data)), name))
            for each in file:
                _ = file[each].tolist()
        except DlcError:
            refusals += 1
        assert time.process_time() - began < 2, (seed, number)
    return refusals


def test_mutated_weight_files_give_typed_errors_only() -> None:
    assert survive(seed=1, count=3000) > 500


@pytest.mark.long
def test_ten_thousand_mutated_files_of_each_kind_give_typed_errors_only() -> None:
    assert survive(seed=2, count=40_000) > 5000


def test_a_compiled_model_is_no_file_of_arrays_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "net.dlc").write_bytes(b"")
    with pytest.raises(UsageError, match=r"train with -o NAME.safetensors"):
        open_weights(tmp_path / "net.dlc")
