"""Errors of the Python API: their tracebacks end where dlc was called."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import numpy as np
import pytest

import dlc

TEXT = "dlc 1\nexport fn f(x: f32[3]) -> f32[3] = x\n"


@pytest.mark.parametrize(
    "call",
    [
        lambda: dlc.compile(text=TEXT.replace("= x", "= y")),
        lambda: dlc.trainer(text=TEXT),
        lambda: dlc.trainers(text=TEXT),
        lambda: dlc.load("absent.dlc"),
        lambda: dlc.compile(text=TEXT).f(np.zeros(4, np.float32)),
        lambda: dlc.compile(text=TEXT).f(),
    ],
)
def test_frames_inside_of_dlc_are_left_out(call: Callable[[], object]) -> None:
    with pytest.raises(dlc.DlcError) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    _, _, *inside = [frame.name for frame in frames]
    assert inside in (["called"], ["__call__"])
