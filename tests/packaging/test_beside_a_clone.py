"""A script that stands beside a clone of dlc, in whose folder `dlc` is a folder too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_folder_of_a_clone_does_not_hide_the_package(tmp_path: Path) -> None:
    (tmp_path / "dlc").mkdir()
    (tmp_path / "script.py").write_text("import dlc\nprint(dlc.compile.__name__)\n")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("compile\n", "")
