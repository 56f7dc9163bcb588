"""The `.dlc` file: the same bytes for the same contents, and no byte of it can change unnoticed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from dlc.errors import ArtifactError, UsageError
from dlc.runtime.artifact import container
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.model import Model, load
from tests.runtime import building
from tests.runtime.artifact.sealing import (
    HEADER,
    Json,
    put_together,
    take_apart,
    with_header,
    with_manifest_bytes,
)
from tests.suites import every

FILE = building.tiny().artifact().to_bytes()


def code_of(error: pytest.ExceptionInfo[ArtifactError]) -> str:
    return error.value.diagnostics[0].code


def refused(data: bytes) -> str:
    """The message with which a file is refused."""
    with pytest.raises(ArtifactError) as caught:
        Artifact.from_bytes(data, "a.dlc")
    return str(caught.value)


def test_the_same_contents_give_the_same_bytes() -> None:
    again = building.tiny().artifact().to_bytes()
    assert again == FILE
    assert Artifact.from_bytes(FILE).to_bytes() == FILE


def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    artifact = building.tiny().artifact()
    artifact.write(tmp_path / "a.dlc")
    read = Artifact.read(tmp_path / "a.dlc")
    assert {name: bytes(data) for name, data in read.sections.items()} == {
        name: bytes(data) for name, data in artifact.sections.items()
    }
    assert read.manifest.entries == artifact.manifest.entries
    assert read.manifest.targets == artifact.manifest.targets
    assert read.texts() == {"model.dlm": building.TEXT}


def test_an_independent_reader_finds_every_section_at_a_multiple_of_64() -> None:
    manifest, sections = take_apart(FILE)
    assert put_together(manifest, sections) == FILE
    assert sections["text/model.dlm"].decode() == building.TEXT
    assert hashlib.sha256(sections["weights"]).hexdigest() == manifest["weights"][0]["sha256"]  # pyright: ignore[reportIndexIssue, reportCallIssue, reportArgumentType, reportOptionalSubscript]


def test_writing_replaces_a_file_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.dlc"
    path.write_bytes(b"old")
    building.tiny().artifact().write(path)
    assert path.read_bytes() == FILE
    assert [each.name for each in tmp_path.iterdir()] == ["a.dlc"]


def test_a_folder_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        building.tiny().artifact().write(tmp_path / "nowhere" / "a.dlc")


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    from dlc.runtime.system.atomic_write import write_file

    path = tmp_path / "a.dlc"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        write_file(path, (bytes([1 // n]) for n in (1, 0)))
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.dlc"]


@pytest.mark.parametrize("first", every(6, range(6)))
def test_every_flipped_byte_is_refused(first: int) -> None:
    data = bytearray(FILE)
    for at in range(first, len(data), 6):
        data[at] ^= 0xFF
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(bytes(data))
        data[at] ^= 0xFF
    assert Artifact.from_bytes(bytes(data)).to_bytes() == FILE


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_the_header_is_refused(bit: int) -> None:
    for at in range(HEADER.size):
        data = bytearray(FILE)
        data[at] ^= 1 << bit
        refused(bytes(data))


def test_every_shorter_file_is_refused() -> None:
    for length in [*range(200), *range(200, len(FILE), 97), len(FILE) - 1]:
        refused(FILE[:length])
    assert "it may be cut short" in refused(FILE[:-1])


def test_a_longer_file_is_refused() -> None:
    said = refused(FILE + bytes(64))
    assert "the header says" in said
    assert "it may be followed by something else" in said


def test_a_flipped_byte_is_named_by_section_and_offset() -> None:
    artifact = Artifact.from_bytes(FILE)
    for name, start in artifact.starts.items():
        data = bytearray(FILE)
        data[start] ^= 1
        assert f"a.dlc: section {name} at byte {start}: the SHA-256 of chunk 0" in refused(
            bytes(data)
        )


def test_padding_that_is_not_zero_is_refused() -> None:
    artifact = Artifact.from_bytes(FILE)
    start = artifact.starts["text/model.dlm"]
    data = bytearray(FILE)
    end = start + len(artifact.sections["text/model.dlm"])
    assert end % 64
    data[end] = 1
    assert f"section text/model.dlm at byte {end}: the padding" in refused(bytes(data))


def test_chunks_are_hashed_apart(tmp_path: Path) -> None:
    draft = building.tiny()
    draft.sections["graph"] = np.arange(3 << 20, dtype=np.uint32).tobytes()
    path = tmp_path / "a.dlc"
    draft.artifact().write(path)
    artifact = Artifact.read(path)
    assert artifact.timings.hash_ms > 0
    at = artifact.starts["graph"] + (9 << 20)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff\xff\xff\xff")
    with pytest.raises(ArtifactError, match=r"section graph at byte .*SHA-256 of chunk 2"):
        Artifact.read(path)


def test_another_version_is_refused_and_never_misread() -> None:
    newer, older = bytearray(FILE), bytearray(FILE)
    newer[8], older[8] = 3, 0
    assert "format version 3" in refused(bytes(newer))
    assert "update dlc" in refused(bytes(newer))
    assert "compile the model again" in refused(bytes(older))


def test_what_is_no_artifact_is_refused(tmp_path: Path) -> None:
    assert "not a .dlc file" in refused(b"dlc 1\nexport fn f() = 1\n" * 10)
    with pytest.raises(UsageError, match="no such file"):
        Artifact.read(tmp_path / "none.dlc")
    with pytest.raises(UsageError, match="is a folder"):
        Artifact.read(tmp_path)
    with pytest.raises(UsageError, match="must be compiled first"):
        load("model.dlm")


def test_a_pinned_file_must_be_that_file(tmp_path: Path) -> None:
    path = tmp_path / "a.dlc"
    path.write_bytes(FILE)
    digest = hashlib.sha256(FILE).hexdigest()
    assert load(path, sha256=digest.upper()).name == "model.dlm"
    with pytest.raises(ArtifactError, match="pinned is") as caught:
        load(path, sha256="0" * 64)
    assert code_of(caught) == "D0612"


# ------------------------------------------------------- manifests and layouts with correct hashes


def test_a_manifest_that_is_not_canonical_is_refused() -> None:
    length = HEADER.unpack_from(FILE)[3]
    manifest = FILE[HEADER.size : HEADER.size + length]
    body = FILE[HEADER.size + length + (-(HEADER.size + length) % 64) :]
    assert with_manifest_bytes(manifest, body) == FILE
    for other in (
        b" " + manifest,
        manifest.replace(b",", b", ", 1),
        manifest[:-1],
        b"",
        b"[]",
        b"{}",
    ):
        assert "section manifest at byte 64" in refused(with_manifest_bytes(other, body))


@pytest.mark.parametrize(
    "name", ["sections", "entries", "targets", "weights", "compiler", "layers"]
)
def test_a_manifest_without_one_of_its_keys_is_refused(name: str) -> None:
    manifest, sections = take_apart(FILE)
    kept = {key: value for key, value in manifest.items() if key != name}
    if name == "sections":
        assert f"'{name}' is missing" in refused(with_header(kept, b""))
    else:
        assert f"'{name}' is missing" in refused(put_together(kept, sections))


def test_a_manifest_with_an_unknown_key_is_refused() -> None:
    manifest, sections = take_apart(FILE)
    assert "'signature' is not a key" in refused(
        put_together({**manifest, "signature": ""}, sections)
    )


def test_an_unknown_kind_of_section_is_refused() -> None:
    manifest, sections = take_apart(FILE)
    assert "'spell/x': unknown" in refused(put_together(manifest, {**sections, "spell/x": b"hex"}))


def changed_table(index: int, **changes: Json) -> str:
    """How a file is refused whose section table has other numbers in one row, and correct hashes."""
    manifest, _ = take_apart(FILE)
    table = manifest["sections"]
    assert isinstance(table, list)
    row = table[index]
    assert isinstance(row, dict)
    row.update(changes)
    _, sections = take_apart(FILE)
    body = b"".join(data + bytes(-len(data) % 64) for data in sections.values())
    return refused(with_header(manifest, body))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"offset": 64}, "it must begin at byte"),
        ({"offset": -64}, "it must begin at byte"),
        ({"offset": 1 << 61}, "it must begin at byte"),
        ({"bytes": -1}, "leave the file"),
        ({"bytes": 1 << 61}, "leave the file"),
        ({"bytes": 1}, "SHA-256"),
        ({"chunks": []}, "0 hashes for"),
        ({"chunks": ["00", "11"]}, "2 hashes for"),
        ({"chunks": ["0" * 64]}, "SHA-256"),
        ({"name": "graph"}, "unknown or repeated"),
        ({"name": ""}, "unknown or repeated"),
    ],
)
def test_a_section_table_that_does_not_fit_the_file_is_refused(
    changes: dict[str, Json], why: str
) -> None:
    assert why in changed_table(0, **changes)


def test_a_section_less_leaves_bytes_that_nobody_owns() -> None:
    manifest, sections = take_apart(FILE)
    table = manifest["sections"]
    assert isinstance(table, list)
    body = b"".join(data + bytes(-len(data) % 64) for data in sections.values())
    assert "bytes after the last section" in refused(
        with_header({**manifest, "sections": table[:-1]}, body)
    )


def test_sections_are_written_in_the_order_of_their_kinds() -> None:
    _, sections = take_apart(FILE)
    kinds = [name.partition("/")[0] for name in sections]
    assert kinds == sorted(kinds, key=container.KINDS.index)


def test_a_saved_model_is_the_file_it_was_loaded_from(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.dlc", tmp_path / "b.dlc"
    path.write_bytes(FILE)
    with load(path) as model:
        assert isinstance(model, Model)
        model.save(copy)
    assert copy.read_bytes() == FILE
