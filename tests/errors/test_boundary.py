"""Errors of the Python API: their tracebacks end where dlc was called."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dlc

TEXT = "dlc 1\nexport fn f(x: f32[3]) -> f32[3] = x\n"
COUNTING = """\
dlc 1
dim N = 1..8
export fn count(x: f32[N], inout sum: f32[N]) -> f32[N] { set sum = sum + x  return x }
"""
LINE = """\
dlc 1
import nn (Linear)
dim B = 1..8
module Line { use a = Linear(2, 1)  export fn predict(x: f32[B, 2]) -> f32[B, 1] = a(x) }
train Line {
  data = npz("absent.npz", x="x")
  loss(x: f32[B, 2]) = mean(predict(x) ** 2)
  optimizer = sgd()
}
"""


def frames_inside(call: Callable[[], object]) -> list[str]:
    """The functions of dlc in the traceback of the error that a call raises."""
    with pytest.raises(dlc.DlcError) as caught:
        call()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    return [name for name in names if name not in ("frames_inside", "<lambda>")]


@pytest.mark.parametrize(
    "call",
    [
        lambda: dlc.compile(text=TEXT.replace("= x", "= y")),
        lambda: dlc.trainer(text=TEXT),
        lambda: dlc.trainers(text=TEXT),
        lambda: dlc.load("absent.dlc"),
        lambda: dlc.buckets([], sizes=[4], batch=1, pad={}),
        lambda: dlc.Tensor([1.0], "f31"),
    ],
)
def test_frames_inside_of_dlc_are_left_out(call: Callable[[], object]) -> None:
    assert frames_inside(call) in (["called"], ["__call__"])


def test_methods_leave_them_out_too(tmp_path: Path) -> None:
    model = dlc.compile(text=TEXT)
    session = dlc.compile(text=COUNTING).session(N=2)
    trainer = dlc.trainer(text=LINE)
    wrong = {"x": np.zeros((2, 3), np.float32)}
    calls: list[Callable[[], object]] = [
        lambda: model.f(np.zeros(4, np.float32)),
        model.f,
        lambda: model.f.working_memory(B=3),
        lambda: model.with_weights("absent.npz"),
        lambda: model.save("absent/model.dlc"),
        lambda: session.count(np.zeros(3, np.float32)),
        lambda: session.load("absent.safetensors"),
        trainer.fit,
        lambda: trainer.fit([wrong]),
        lambda: trainer.step(**wrong),
        lambda: trainer.measure(**wrong),
        trainer.evaluate,
        lambda: trainer.resume("absent.safetensors"),
        lambda: trainer.save(tmp_path / "trainer.npz"),
        lambda: model.f(np.zeros(3, np.float32), out=np.zeros(2)),
    ]
    for call in calls:
        assert frames_inside(call) in (["called"], ["__call__"])
