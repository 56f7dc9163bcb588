"""A text as examples: windows of UTF-8 bytes, which overlap by one byte.

`window(65)` gives 65 bytes: 64 inputs, each followed by the byte to predict. Since windows overlap by one
byte, every byte but the first is predicted exactly once in an epoch. If the length of the text is not a
multiple, the last window is moved back to end with the text, so that a few bytes are predicted twice. The
test examples are windows of the end of the text, which is cut off first: no byte is in both.
"""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np

from dlc.runtime.arrays.dtypes import DTYPES, DType
from dlc.runtime.artifact.manifest import DataSource
from dlc.runtime.data.fields import Array, Field, Numbers, Table, convert
from dlc.runtime.data.fitting import Fitting, check_dtype, label_of, refusal
from dlc.runtime.data.order import Rows
from dlc.runtime.data.place import DataLocation
from dlc.runtime.system.counts import counted

_WINDOW = re.compile(r"window\(\s*([0-9]{1,9})\s*\)")
_U8 = DTYPES["u8"]


def text_table(place: DataLocation, source: DataSource, fitting: Fitting) -> Table:
    """The windows of a text file; those of the test come last."""
    name = str(place)
    text = np.frombuffer(place.bytes(), np.uint8)
    sizes = {item.name: _window(name, source, item.name) for item in fitting.wanted}
    fields: dict[str, Field] = {}
    cut = 0
    for item in fitting.wanted:
        label = label_of(item, source.fields[item.name])
        window = sizes[item.name]
        used = text if source.limit is None else text[: source.limit * (window - 1) + 1]
        starts, cut = _starts(name, len(used), window, source.test_part)
        want = DTYPES[item.dtype]
        check_dtype(name, label, used, _U8, want)
        fields[item.name] = WindowField(used, starts, window, want)
    labels = {item.name: label_of(item, source.fields[item.name]) for item in fitting.wanted}
    return Table(fields, fitting.check(name, fields, labels), cut=cut)


def _window(name: str, source: DataSource, item: str) -> int:
    field = source.fields.get(item, "")
    found = _WINDOW.fullmatch(field)
    if found is None or int(found[1]) < 2:
        raise refusal(
            name,
            "D0541",
            f"{item} is {field or 'not named'}, which a text does not have",
            f"write {item}=window(65): 65 bytes, at least 2",
        )
    return int(found[1])


def _starts(name: str, length: int, window: int, test_part: str) -> tuple[Rows, int]:
    """The start of each window, and the number of windows for training."""
    if not test_part:
        starts = _starts_between(name, 0, length, window)
        return starts, len(starts)
    cut = length - round(length * Fraction(test_part))
    train = _starts_between(name, 0, cut, window)
    test = _starts_between(name, cut, length, window)
    return np.concatenate([train, test]), len(train)


def _starts_between(name: str, first: int, end: int, window: int) -> Rows:
    if end - first < window:
        part = "it has" if first == 0 else "its end, kept for the test, has"
        raise refusal(
            name,
            "D0544",
            f"{part} {counted(end - first, 'byte')}, fewer than a window of {window}",
            "take a smaller window or a longer text",
        )
    starts = np.arange(first, end - window + 1, window - 1, dtype=np.int64)
    last = end - window
    return starts if starts[-1] == last else np.append(starts, np.int64(last))


class WindowField:
    """Windows of a text, all of the same length."""

    ready = True

    def __init__(self, text: Numbers, starts: Rows, window: int, want: DType) -> None:
        self.count = len(starts)
        self.shape = (window,)
        self._text = text
        self._starts = starts
        self._offsets = np.arange(window, dtype=np.int64)
        self._want = want

    def read(self, rows: Rows, out: Array) -> None:
        positions = self._starts[rows][:, None] + self._offsets
        convert(self._text[positions], _U8, self._want, out)
