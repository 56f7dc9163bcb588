"""Every reader of files: whole files, how they are damaged, and what reads them to the end."""

from __future__ import annotations

import io
import json
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import cast

import numpy as np
from onnx import ModelProto

from benchmarks.fuzz.mutations import change_json, change_message, hostile_text
from dlc.driver.compile.compile import compile_model, lower
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.model import Model
from dlc.runtime.training.checkpoint import Facts, read_checkpoint, write_checkpoint
from dlc.runtime.training.history import Record
from dlc.runtime.weights.files import open_weights
from tests import example_models
from tests.fuzz.artifacts import mutated_artifact
from tests.fuzz.corpus import dumps, networks, texts
from tests.fuzz.mutation import mutated_bytes
from tests.runtime import building
from tests.runtime.artifact.sealing import Json, put_together, take_apart
from tests.runtime.data.damaged import KINDS as DATA

SETTINGS = Settings(2, "cpu:x86-64-v3")
COMPILED = 0.15
"""The part of the texts and networks that is lowered to loops, which takes longer than reading."""


@dataclass(frozen=True, slots=True)
class Reader:
    """What reads one kind of file. `read` gets a path with the right ending and raises DlcError at most."""

    ending: str
    whole: Callable[[], Sequence[bytes]]
    damage: Callable[[Random, bytes], bytes]
    read: Callable[[Path, Random], object]


# Compiled files.


@cache
def artifacts() -> Sequence[bytes]:
    """Two made by hand, and two compiled ones, which have every section."""
    tiny, many = building.tiny().artifact(), building.many().artifact()
    compiled = [
        compile_model(example_models.opened(name), SETTINGS, "init:0")
        for name in ("poly", "digits")
    ]
    return [each.to_bytes() for each in (tiny, many, *compiled)]


def damage_manifest(random: Random, file: bytes) -> bytes:
    """A value, a key or many rows of the manifest, sealed again."""
    manifest, sections = take_apart(file)
    for _ in range(random.randint(1, 3)):
        change_json(random, manifest)
    return put_together(manifest, sections)


def damage_certificate(random: Random, file: bytes) -> bytes:
    """The same of the proof that a plan is right."""
    manifest, sections = take_apart(file)
    proofs = [each for each in sections if each.startswith("certificate/")]
    if proofs:
        name = random.choice(proofs)
        sections[name] = _changed_text(random, sections[name])
    return put_together(manifest, sections)


def damage_section(random: Random, file: bytes) -> bytes:
    """Bytes of the file, or of a section that is sealed again: graphs, plans, programs, weights, code."""
    if random.random() < 0.5:
        return mutated_artifact(random, file)
    manifest, sections = take_apart(file)
    name = random.choice([*sections])
    sections[name] = bytes_damaged(random, sections[name])
    return put_together(manifest, sections)


def _changed_text(random: Random, text: bytes) -> bytes:
    try:
        tree = json.loads(text)
    except ValueError:  # damaged before
        return mutated_bytes(text, random)
    if not isinstance(tree, dict):
        return text
    change_json(random, cast("dict[str, Json]", tree))
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def load_artifact(path: Path, random: Random) -> None:
    """Loaded to run, loaded without trust, or opened as a model."""
    match random.randrange(3):
        case 0:
            Model.from_bytes(path.read_bytes()).close()
        case 1:
            repr(Artifact.read(path))
            open_model(path)
        case _:
            Model.from_bytes(path.read_bytes(), untrusted=True).close()


# Models.


def encoded(make: Callable[[], Sequence[str]]) -> Callable[[], Sequence[bytes]]:
    """Texts as files."""
    return cache(lambda: [text.encode() for text in make()])


def damage_text(make: Callable[[], Sequence[bytes]]) -> Callable[[Random, bytes], bytes]:
    """Other tokens, or things that are too long or too deep."""

    def damage(random: Random, file: bytes) -> bytes:
        others = [each.decode() for each in make()]
        return hostile_text(file.decode(), others, random).encode("utf-8", "surrogatepass")

    return damage


def open_file(path: Path, random: Random) -> None:
    """SourceModel, and sometimes lowered."""
    opened = open_model(path)
    if random.random() < COMPILED:
        lower(opened, SETTINGS, "loop")


def damage_network(random: Random, file: bytes) -> bytes:
    """Fields of the message, or its bytes."""
    if random.random() < 0.3:
        return mutated_bytes(file, random)
    model = ModelProto.FromString(file)
    for _ in range(random.randint(1, 3)):
        change_message(random, model)
    return model.SerializeToString()


# Arrays.


@cache
def safetensors_files() -> Sequence[bytes]:
    """A small one, and one with two thousand tensors."""
    return _safetensors(4), _safetensors(2_000)


def _safetensors(count: int) -> bytes:
    table = {
        f"w.{k}": {"dtype": "F32", "shape": [2, 2], "data_offsets": [16 * k, 16 * k + 16]}
        for k in range(count)
    }
    header = json.dumps({"__metadata__": {"format": "np"}, **table}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(16 * count)


def damage_safetensors(random: Random, file: bytes) -> bytes:
    """Its header as JSON, or its bytes."""
    if random.random() < 0.4:
        return mutated_bytes(file, random)
    (length,) = struct.unpack_from("<Q", file)
    header = _changed_text(random, file[8 : 8 + length])
    return struct.pack("<Q", len(header)) + header + file[8 + length :]


@cache
def npz_files() -> Sequence[bytes]:
    """Stored and deflated, and one with many members."""
    found: list[bytes] = []
    some = {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "n": np.arange(3)}
    many = {f"w{k}": np.zeros(2, np.float32) for k in range(500)}
    for save, arrays in ((np.savez, some), (np.savez_compressed, some), (np.savez, many)):
        stream = io.BytesIO()
        save(stream, allow_pickle=False, **arrays)
        found.append(stream.getvalue())
    return found


@cache
def npy_files() -> Sequence[bytes]:
    """Arrays in both orders."""
    found: list[bytes] = []
    for array in (np.arange(12.0).reshape(3, 4), np.asfortranarray(np.ones((2, 3), np.float16))):
        stream = io.BytesIO()
        np.save(stream, array)
        found.append(stream.getvalue())
    return found


def read_arrays(path: Path, random: Random) -> None:
    """Every array of a file of weights."""
    file = open_weights(path)
    for name in file:
        file[name].tolist()


@cache
def checkpoints() -> Sequence[bytes]:
    """One after two epochs, and one with a long history."""
    found: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        for length in (2, 2_000):
            history = tuple([Record(k, 10 * k, {"loss": 0.5}) for k in range(1, length)])
            progress = {"": Facts(2, 20, 5, 1, history)}
            path = Path(folder, "c.safetensors")
            write_checkpoint(path, {"w": Tensor([1.0, 2.0], "f32")}, progress)
            found.append(path.read_bytes())
    return found


def bytes_damaged(random: Random, file: bytes) -> bytes:
    """Bytes changed, taken out, put in; sometimes the end is missing, or the file is there many times."""
    match random.randrange(10):
        case 0:
            return file[: random.randrange(len(file) + 1)]
        case 1:
            return file * min(random.choice((2, 10, 100)), (2 << 20) // (len(file) + 1) + 1)
        case _:
            return mutated_bytes(file, random)


def data_reader(kind: str) -> Reader:
    """What reads data for training: it moves the file to where its source expects it."""

    def whole() -> Sequence[bytes]:
        with tempfile.TemporaryDirectory() as folder:
            return [DATA[kind](Path(folder))[0]]

    def read(path: Path, random: Random) -> None:
        with tempfile.TemporaryDirectory() as folder:
            _, reader = DATA[kind](Path(folder))
            reader(path.rename(Path(folder, "damaged")))

    return Reader(f".{kind}", cache(whole), bytes_damaged, read)


TEXTS, IR = encoded(texts), encoded(dumps)
READERS: dict[str, Reader] = {
    "dlc": Reader(".dlc", artifacts, damage_section, load_artifact),
    "manifest": Reader(".dlc", artifacts, damage_manifest, load_artifact),
    "certificate": Reader(".dlc", artifacts, damage_certificate, load_artifact),
    "dlm": Reader(".dlm", TEXTS, damage_text(TEXTS), open_file),
    "dlir": Reader(".dlir", IR, damage_text(IR), open_file),
    "onnx": Reader(".onnx", cache(networks), damage_network, open_file),
    "safetensors": Reader(".safetensors", safetensors_files, damage_safetensors, read_arrays),
    "npz": Reader(".npz", npz_files, bytes_damaged, read_arrays),
    "npy": Reader(".npy", npy_files, bytes_damaged, read_arrays),
    "checkpoint": Reader(
        ".safetensors", checkpoints, damage_safetensors, lambda path, _: read_checkpoint(path)
    ),
    **{kind: data_reader(kind) for kind in ("csv", "png", "jpeg", "bmp", "gif", "tiff", "webp")},
}
"""The readers by name."""
