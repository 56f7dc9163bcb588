"""Taking a `.dlc` file apart and putting it together again with correct hashes: lies that are well sealed.

Written against docs/artifact.md, apart from the code under test.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import TypeAlias

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"

HEADER = struct.Struct("<8sIIQQ32s")
CHUNK = 4 << 20


def pad(length: int) -> int:
    return -length % 64


def take_apart(file: bytes) -> tuple[dict[str, Json], dict[str, bytes]]:
    """The manifest as JSON, and the contents of each section by name."""
    length = HEADER.unpack_from(file)[3]
    manifest = json.loads(file[HEADER.size : HEADER.size + length])
    body = HEADER.size + length + pad(HEADER.size + length)
    sections = {
        section["name"]: file[
            body + section["offset"] : body + section["offset"] + section["bytes"]
        ]
        for section in manifest["sections"]
    }
    return manifest, sections


def put_together(manifest: Mapping[str, Json], sections: Mapping[str, bytes]) -> bytes:
    """A file with these sections, whatever the manifest says about them, and correct hashes."""
    table: list[Json] = []
    body = b""
    for name, data in sections.items():
        chunks: list[Json] = [
            hashlib.sha256(data[at : at + CHUNK]).hexdigest() for at in range(0, len(data), CHUNK)
        ]
        table.append({"name": name, "offset": len(body), "bytes": len(data), "chunks": chunks})
        body += data + bytes(pad(len(data)))
    return with_header({**manifest, "sections": table}, body)


def with_header(manifest: Mapping[str, Json], body: bytes) -> bytes:
    """A file with this manifest, its section table included, and this body."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return with_manifest_bytes(text.encode(), body)


def with_manifest_bytes(data: bytes, body: bytes) -> bytes:
    """A file whose manifest is these bytes."""
    start = HEADER.size + len(data) + pad(HEADER.size + len(data))
    digest = hashlib.sha256(data).digest()
    header = HEADER.pack(b"\x89dlc\r\n\x1a\n", 2, 0, len(data), start + len(body), digest)
    return header + data + bytes(start - HEADER.size - len(data)) + body
