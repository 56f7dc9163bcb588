"""A small model, and the command line called in this process."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlc.cli import main

MODEL = """\
dlc 1
dim B = 1..64
## Sums of rows, and of everything.
export fn f(x: f32[B, 3], y: f32[3] = [1, 2, 3]) -> (total: f32, rows: f32[B]) {
  let z = x * y
  let s = sum(z, axis=1)
  return (total = sum(s), rows = s)
}
"""


@dataclass(frozen=True, slots=True)
class Done:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> object:
        return json.loads(self.out)


Command = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with `rows.dlm` in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.dlm").write_text(MODEL, encoding="utf-8")
    return tmp_path


@pytest.fixture
def dlc(folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, called in this process in `folder`."""

    def command(*arguments: str) -> Done:
        capsys.readouterr()
        code = main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Done(code, out, err)

    return command


@pytest.fixture(autouse=True, scope="session")
def _heed_ctrl_c() -> None:
    """What a shell starts in the background ignores Ctrl-C, and so would all that the tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
