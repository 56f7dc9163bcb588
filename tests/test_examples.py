"""examples/README.md: every example has its line, and every command on a line works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dlc.cli import main
from tests.documents import ROOT

FOLDER = ROOT / "examples"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"\| `(dlc [^`]+)` \|$", PAGE, flags=re.M)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the examples as in a clone."""
    (tmp_path / "examples").symlink_to(FOLDER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_example_has_a_line() -> None:
    listed = re.findall(r"^\| \[`([\w.]+)`\]", PAGE, flags=re.M)
    found = [
        path.name
        for path in FOLDER.iterdir()
        if path.suffix in (".dlm", ".py") or (path.is_dir() and path.name != "__pycache__")
    ]
    assert sorted(listed) == sorted(found)


TRAINED = (
    *("tumours", "robust", "digits_lion", "digits_ema", "vae", "vit", "diffusion", "contrastive"),
    *("gcn", "unet", "digits_cnn", "char_gpt", "seq2seq", "autoencoder"),
)
"""Examples whose training takes long; most of them are trained in `test_training_examples` anyway."""


IMPORTED = "examples/centerface/"
"""Its network is run in `tests/importers/onnx/test_centerface.py`, too."""


def takes_long(command: str) -> bool:
    return IMPORTED in command or any(
        f"dlc train examples/{name}.dlm" in command for name in TRAINED
    )


@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=pytest.mark.long if takes_long(each) else ()) for each in COMMANDS],
)
def test_a_command_of_the_examples_works(
    command: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(shlex.split(command)[1:])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "warning" not in err
    assert out or "is right" in err or any(checkout.glob("*.png"))


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("poly.dlm --entry dy", "dy: f32[2, 2] [[8. 14.] [20. 26.]]"),
        (
            "sum_of_products.dlm",
            "dx: f32[3, 4] [[12. 11. 10. 9.] [8. 7. 6. 5.] [4. 3. 2. 1.]] "
            "dy: f32[3, 4] [[1. 2. 3. 4.] [5. 6. 7. 8.] [9. 10. 11. 12.]] "
            "dz: f32[3, 4] [[1. 1. 1. 1.] [1. 1. 1. 1.] [1. 1. 1. 1.]]",
        ),
    ],
)
def test_the_classic_gradients_are_printed(
    command: str, printed: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, *rest = command.split()
    assert main(["run", str(checkout / "examples" / file), *rest]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.replace("[ ", "[") == printed


def test_the_mandelbrot_set_is_black_inside_and_symmetric(checkout: Path) -> None:
    assert main(["run", "examples/mandelbrot.dlm", "--output", "picture=set.png"]) == 0
    with Image.open("set.png") as picture:
        pixels = np.asarray(picture)
    assert pixels.shape == (240, 320, 3)
    # -0.6 in the middle, 100 pixels to 1: 0 and -1 are inside, 1 is not.
    assert not pixels[120, 180].any() and not pixels[120, 80].any() and pixels[120, 280].any()
    assert (pixels[1:120] == pixels[:120:-1]).all()
    with Image.open(ROOT / "docs/pictures/mandelbrot.png") as shown:
        assert np.abs(np.asarray(shown).astype(int) - pixels).mean() < 1
