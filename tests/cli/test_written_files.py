"""Where a result is to go is looked at before any work: a file that could not be written or read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("compile rows.dlm -o gone/a.dlc", "there is no folder gone"),
        ("compile rows.dlm -o gone/a.txt", "there is no folder gone"),
        ("compile rows.dlm -o taken.dlc", "cannot write taken.dlc: is a folder"),
        ("compile rows.dlm -o rows.dlm/a.dlc", "there is no folder rows.dlm"),
        ("compile rows.dlm -o a.txt", "a.txt does not end in .dlc"),
        ("compile rows.dlm -o .dlc", ".dlc has nothing before its ending"),
        ("compile rows.dlm -o a", "write a.dlc"),
        ("compile taken.dlm", "cannot write taken.dlc: is a folder"),
        ("opt rows.dlm --passes cse -o gone/a.dlir", "there is no folder gone"),
        ("opt rows.dlm --passes cse -o a.mlir", "a.mlir does not end in .dlir"),
        ("import net.onnx -o gone/net.dlm", "there is no folder gone"),
        ("import net.onnx -o net", "write net.dlm"),
        ("run rows.dlm --random-inputs 0 --output rows=gone/a.npy", "there is no folder gone"),
        ("run rows.dlm --random-inputs 0 --output rows=taken.npy", "taken.npy: is a folder"),
        ("train rows.dlm --history h.csv", "h.csv does not end in .json"),
        ("train rows.dlm -o m.txt", "m.txt does not end in .dlc or .safetensors"),
    ],
)
def test_what_could_not_be_written_or_read_again_is_refused_before_any_work(
    dlc: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    for name in ("taken.dlc", "taken.npy"):
        (folder / name).mkdir()
    (folder / "taken.dlm").write_text((folder / "rows.dlm").read_text())
    before = sorted(folder.rglob("*"))
    for work in ("make_artifact", "optimise_file", "import_model", "plan_training", "run_model"):
        monkeypatch.setattr(f"dlc.driver.{work}", None)
    done = dlc(*command.split())
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert sorted(folder.rglob("*")) == before


def test_a_device_may_be_called_anything(dlc: Command) -> None:
    assert dlc("compile", "rows.dlm", "-o", "/dev/null").code == 0
    assert dlc("opt", "rows.dlm", "--passes", "cse", "-o", "/dev/null").code == 0


TRAINED = """\
dlc 1
dim B = 1..64
module Line() {
  param w: f32[3, 1] = zeros()
  export fn predict(x: f32[B, 3]) -> f32[B, 1] = x @ w
}
train Line {
  data = npz("seen.npz", x="x", y="y", test="test.safetensors")
  loss(x: f32[B, 3], y: f32[B, 1]) = mean((predict(x) - y) ** 2)
  optimizer = sgd(lr=0.1)
}
"""


def test_examples_that_the_model_names_are_not_replaced_by_what_is_learned(
    dlc: Command, folder: Path
) -> None:
    (folder / "line.dlm").write_text(TRAINED)
    (folder / "test.safetensors").write_bytes(b"precious")
    for option in ("-o", "--checkpoint"):
        done = dlc("train", "line.dlm", option, "./test.safetensors")
        assert "test.safetensors is read, and would be replaced by what is made" in done.err
        assert (done.code, done.out) == (2, "")
    assert (folder / "test.safetensors").read_bytes() == b"precious"
