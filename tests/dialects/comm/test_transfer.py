"""Transfers: what is received was sent, from the device and to the one that both name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.errors import ModelError
from tests.frontend.programs import as_list

RECEIVED = """"func.func"() <{sym_name = "f", function_type = (T) -> (T, T)}> ({
^bb0(%x: T):
  %s = "comm.send"(%x) <{source = "cpu:0", target = "cpu:1", segments = array<i64: 1, 0>}> : (T) -> T
  %a = "comm.recv"(%s) <{source = "cpu:0", target = "cpu:1"}> : (T) -> T
  %b = "comm.recv"(%s) <{source = "cpu:0", target = "cpu:1"}> : (T) -> T
  %c = "array.exp"(%a) : (T) -> T
  %d = "array.sin"(%b) : (T) -> T
  "func.return"(%c, %d) : (T, T) -> ()
}) : () -> ()
""".replace("T", "tensor<4xf32>")


def test_what_is_received_twice_arrives_once(tmp_path: Path) -> None:
    file = tmp_path / "model.dlir"
    file.write_text(RECEIVED, encoding="utf-8")
    x = np.random.default_rng(4).standard_normal(4).astype(np.float32)
    for one, other in zip(
        as_list(dlc.compile(file, level=0).f(x)), (np.exp(x), np.sin(x)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ('"comm.recv"(%x)', "comm.recv takes what a comm.send of its block sends"),
        ('"comm.recv"(%s) <{source = "cpu:2"', "takes what goes from cpu:2 to cpu:1, found"),
    ],
)
def test_what_was_not_sent_is_not_received(wrong: str, message: str, tmp_path: Path) -> None:
    right = '"comm.recv"(%s)' + (' <{source = "cpu:0"' if "source" in wrong else "")
    (tmp_path / "model.dlir").write_text(RECEIVED.replace(right, wrong), encoding="utf-8")
    with pytest.raises(ModelError, match=message):
        dlc.compile(tmp_path / "model.dlir")
