"""The bytes of a `.dlc` file: header, manifest, sections (`docs/artifact.md` has the format).

The reader checks the form and every hash before a section is used; `dlc.runtime.artifact.manifest_checks`
checks the contents of the sections. Equal contents are written as equal bytes.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from dlc.runtime.artifact import canonical_json, schema
from dlc.runtime.artifact.manifest import Manifest, Section
from dlc.runtime.artifact.refusal import ErrorContext
from dlc.runtime.system import hashing

Data: TypeAlias = bytes | memoryview
"""The contents of a section: bytes, or a view with one byte per item."""

MAGIC = b"\x89dlc\r\n\x1a\n"
"""The magic is not text, and a transfer that converts line ends damages it (as in PNG)."""
FORMAT_VERSION = 2
ALIGNMENT = 64
MAX_MANIFEST = 32 << 20
"""The most bytes of a manifest; that of a training step of ResNet-50 has 1.4 million."""
MAX_SECTIONS = 10_000

HEADER = struct.Struct("<8sIIQQ32s")
"""Magic, format version, zero, bytes of the manifest, bytes of the file, SHA-256 of the manifest."""

KINDS = (
    "text",
    "graph",
    "plan",
    "decisions",
    "splits",
    "code",
    "engine",
    "program",
    "certificate",
    "values",
    "kernels",
    "roof",
    "constants",
    "weights",
    "prepared",
    "progress",
)
"""The kinds of sections: names begin with a kind; details follow a `/`, as in `program/cpu/predict`."""


class Contents(NamedTuple):
    """The contents of a file: the manifest and a view of each section; only form and hashes are checked."""

    manifest: Manifest
    sections: Mapping[str, memoryview]
    starts: Mapping[str, int]
    """The offset of each section in the file."""
    hash_ms: float


def padded(length: int) -> int:
    """The length rounded up to the alignment of sections."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def read(file: memoryview, context: ErrorContext) -> Contents:
    """Check form and hashes of a file and return its contents. Raises ArtifactError at the first fault."""
    manifest = _read_manifest(file, context)
    body = padded(HEADER.size + HEADER.unpack_from(file)[3])
    _check_layout(manifest.sections, len(file), body, context)
    began = time.perf_counter()
    sections = {
        s.name: file[body + s.offset : body + s.offset + s.bytes] for s in manifest.sections
    }
    _check_hashes(manifest.sections, sections, body, context)
    hash_ms = (time.perf_counter() - began) * 1e3
    _check_padding(file, manifest.sections, body, context)
    starts = {s.name: body + s.offset for s in manifest.sections}
    return Contents(manifest, sections, starts, hash_ms)


def _read_manifest(file: memoryview, context: ErrorContext) -> Manifest:
    if len(file) < HEADER.size or bytes(file[: len(MAGIC)]) != MAGIC:
        raise context.error("D0601", "not a .dlc file: it does not begin as one", at=0)
    _, version, zero, length, total, digest = HEADER.unpack_from(file)
    if version != FORMAT_VERSION:
        way_out = "update dlc" if version > FORMAT_VERSION else "compile the model again"
        message = f"format version {version}, where this dlc reads version {FORMAT_VERSION}"
        raise context.error("D0602", message, at=8, help=way_out)
    if zero:
        raise context.error("D0603", "the reserved word of the header is not zero", at=12)
    if total != len(file):
        message = f"the header says {total} bytes, the file has {len(file)}"
        wrong = "cut short" if total > len(file) else "followed by something else"
        raise context.error("D0603", message, at=24, help=f"it may be {wrong}: copy it again")
    if length > MAX_MANIFEST or padded(HEADER.size + length) > len(file):
        message = f"a manifest of {length} bytes does not fit"
        raise context.error("D0603", message, at=16)
    data = bytes(file[HEADER.size : HEADER.size + length])
    if hashlib.sha256(data).digest() != digest:
        message = "its SHA-256 is not the one in the header"
        raise context.error("D0604", message, section="manifest", at=HEADER.size)
    if any(file[HEADER.size + length : padded(HEADER.size + length)]):
        message = "the padding after it is not zero"
        raise context.error("D0605", message, section="manifest", at=HEADER.size + length)
    try:
        return schema.decode(Manifest, canonical_json.load(data))
    except (canonical_json.BadJson, schema.Mismatch) as error:
        raise context.error("D0604", str(error), section="manifest", at=HEADER.size) from None


def _check_layout(
    sections: tuple[Section, ...], total: int, body: int, context: ErrorContext
) -> None:
    """Check that sections follow each other without gap or overlap, at multiples of 64, to the end."""
    if len(sections) > MAX_SECTIONS:
        raise context.error("D0605", f"{len(sections)} sections; at most {MAX_SECTIONS} are read")
    expected = 0
    names: set[str] = set()
    for section in sections:
        if section.name.partition("/")[0] not in KINDS or section.name in names:
            raise context.error("D0605", "unknown or repeated", section=repr(section.name[:80]))
        names.add(section.name)
        start = body + section.offset
        if section.offset != expected:
            message = f"it must begin at byte {body + expected}, where the one before it ends"
            raise context.error("D0605", message, section=section.name, at=start)
        if not 0 <= section.bytes <= total - start:
            message = f"{section.bytes} bytes from there leave the file of {total}"
            raise context.error("D0605", message, section=section.name, at=start)
        if len(section.chunks) != hashing.chunk_count(section.bytes):
            message = f"{len(section.chunks)} hashes for {section.bytes} bytes"
            raise context.error("D0605", message, section=section.name, at=start)
        expected += padded(section.bytes)
    if body + expected != total:
        raise context.error("D0605", f"{total - body - expected} bytes after the last section")


def _check_hashes(
    table: tuple[Section, ...], sections: Mapping[str, memoryview], body: int, context: ErrorContext
) -> None:
    found = hashing.digests([sections[section.name] for section in table])
    for section, digests in zip(table, found, strict=True):
        for index, (said, is_) in enumerate(zip(section.chunks, digests, strict=True)):
            if said != is_:
                at = body + section.offset + index * hashing.CHUNK
                message = f"the SHA-256 of chunk {index} is not the one in the manifest"
                way_out = "the file was changed or damaged: copy or compile it again"
                raise context.error("D0606", message, section=section.name, at=at, help=way_out)


def _check_padding(
    file: memoryview, table: tuple[Section, ...], body: int, context: ErrorContext
) -> None:
    for section in table:
        end = body + section.offset + section.bytes
        if any(file[end : padded(end)]):
            message = "the padding after it is not zero"
            raise context.error("D0605", message, section=section.name, at=end)


def sealed(manifest: Manifest, sections: Mapping[str, Data]) -> Manifest:
    """The manifest with its section table: the sections ordered by kind and name, and their hashes."""
    order = sorted(sections, key=lambda name: (KINDS.index(name.partition("/")[0]), name))
    views = {name: memoryview(sections[name]).cast("B") for name in order}
    offset = 0
    table: list[Section] = []
    for (name, view), digests in zip(
        views.items(), hashing.digests(list(views.values())), strict=True
    ):
        table.append(Section(name, offset, len(view), digests))
        offset += padded(len(view))
    return manifest._replace(sections=tuple(table))


def pieces(manifest: Manifest, sections: Mapping[str, Data]) -> Iterator[bytes | memoryview]:
    """The bytes of the file in pieces; `manifest` must be sealed for these sections."""
    data = canonical_json.dump(schema.encode(manifest))
    body = padded(HEADER.size + len(data))
    total = body + sum(padded(section.bytes) for section in manifest.sections)
    digest = hashlib.sha256(data).digest()
    yield HEADER.pack(MAGIC, FORMAT_VERSION, 0, len(data), total, digest)
    yield data
    yield bytes(body - HEADER.size - len(data))
    for section in manifest.sections:
        yield memoryview(sections[section.name]).cast("B")
        yield bytes(padded(section.bytes) - section.bytes)


def file_digest(file: memoryview) -> str:
    """The SHA-256 of a file, as `sha256sum` prints it."""
    return hashlib.sha256(file).hexdigest()
