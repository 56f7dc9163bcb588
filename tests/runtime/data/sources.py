"""What the tests of data share: inputs as the loss declares them, and sources made by hand."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlc.errors import DlcError
from dlc.runtime.artifact.manifest import Dim, Input
from dlc.runtime.data import Batch, Dataset, Setting, open_data, source_of

IMAGE = Input("image", "u8", ("B", "2", "2", "1"))
LABEL = Input("label", "i32", ("B",))
X = Input("x", "f32", ("B", "D"))
Y = Input("y", "i32", ("B",))


def opened(
    path: Path,
    wanted: Sequence[Input],
    kind: str,
    fields: dict[str, str] | None = None,
    dims: Sequence[Dim] = (),
    /,
    **settings: Setting,
) -> Dataset:
    """The dataset that a text beside the file describes."""
    source = source_of(kind, path.name, fields or {}, settings)
    return open_data(source, wanted, path.parent, dims=dims)


def in_order(data: Dataset, batch: int = 1 << 20) -> Batch:
    """All examples in one batch; the order is that of the source if it is not shuffled."""
    [found] = data.batches(0, batch, seed=0)
    return found


def part(data: Dataset) -> Dataset:
    """The examples that a dataset keeps for the test."""
    assert data.test is not None
    return data.test


@contextmanager
def refused(code: str, *texts: str) -> Generator[None]:
    """The block raises one error with this code, these texts in what it tells, and a way out."""
    with pytest.raises(DlcError) as caught:
        yield
    [told] = caught.value.diagnostics
    assert told.code == code, str(told)
    for text in texts:
        assert text in f"{told.message}; {told.help}", str(told)
    assert told.help, str(told)
