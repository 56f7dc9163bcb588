"""Files of data for training: a whole one of each kind, what reads it, and random damage."""

from __future__ import annotations

import io
import random
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Input
from dlc.runtime.data import open_data, source_of
from dlc.runtime.training.checkpoint import Facts, read_checkpoint, write_checkpoint
from dlc.runtime.training.history import Record
from tests.runtime.data.sources import LABEL, X, Y

PIECES = [
    b"",
    b"\0",
    b"\xff" * 4,
    b",",
    b'"',
    b"\n",
    b"\r",
    b"nan",
    b"1e999",
    b"-",
    b"{",
    b"[" * 99,
]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The same with a few bytes changed, cut out, doubled or put in."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, end = sorted(chance.randrange(len(found) + 1) for _ in range(2))
        match chance.randrange(5):
            case 0 if found:
                found[at % len(found)] = chance.randrange(256)
            case 1:
                found[at : min(end, at + 16)] = b""
            case 2:
                found[at:at] = found[at : min(end, at + 64)]
            case 3:
                found[at:at] = chance.choice(PIECES)
            case _:
                del found[max(at, len(found) // 2) :]
    return bytes(found)


def table(folder: Path) -> tuple[bytes, Callable[[Path], None]]:
    rows = [f"{k},{k / 7},{k}e-3,{'rose' if k % 2 else 'iris'}" for k in range(20)]
    source = source_of("csv", "", {"x": "columns(0, 3)", "y": "3"}, {"test": 0.2})

    def read(path: Path) -> None:
        open_data(source, [X, Y], folder, path.rename(folder / "t.csv"))

    return "\n".join(["a,b,c,kind", *rows]).encode(), read


def numbers(folder: Path) -> tuple[bytes, Callable[[Path], None]]:
    stream = io.BytesIO()
    np.savez(stream, x=np.ones((20, 3), np.float32), y=np.arange(20))
    source = source_of("npz", "", {}, {"test": 0.2})

    def read(path: Path) -> None:
        data = open_data(source, [X, Y], folder, path.rename(folder / "d.npz"))
        list(data.batches(0, 8, 1))

    return stream.getvalue(), read


def checkpoint(folder: Path) -> tuple[bytes, Callable[[Path], None]]:
    history = (Record(1, 10, {"loss": 0.5}), Record(2, 20, {"loss": 0.25}))
    write_checkpoint(
        folder / "c", {"w": Tensor([1.0, 2.0], "f32")}, {"": Facts(2, 20, 5, 1, history)}
    )

    def read(path: Path) -> None:
        read_checkpoint(path)

    return (folder / "c").read_bytes(), read


@cache
def encoded(ending: str) -> bytes:
    """A picture of 16 x 16 pixels as a file of a kind."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    stream = io.BytesIO()
    pixels = np.arange(16 * 16 * 3, dtype=np.uint16).astype(np.uint8).reshape(16, 16, 3)
    image.fromarray(pixels).save(stream, ending)
    return stream.getvalue()


def picture(ending: str) -> Callable[[Path], tuple[bytes, Callable[[Path], None]]]:
    def made(folder: Path) -> tuple[bytes, Callable[[Path], None]]:
        wanted = [Input("image", "u8", ("B", "H", "W", "3")), LABEL]
        (folder / "flowers" / "rose").mkdir(parents=True)
        source = source_of("pictures", "flowers", {}, {"size": 16})

        def read(path: Path) -> None:
            path.rename(folder / "flowers" / "rose" / f"1.{ending}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Pillow's remarks about damage
                list(open_data(source, wanted, folder).batches(0, 1, 0))

        return encoded(ending), read

    return made


KINDS = {
    "csv": table,
    "npz": numbers,
    "checkpoint": checkpoint,
    **{ending: picture(ending) for ending in ("png", "jpeg", "bmp", "gif", "tiff", "webp")},
}
