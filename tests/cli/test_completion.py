"""Shell completion, as a shell asks for it."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_verb_is_completed_in_a_shell() -> None:
    asked = {"_DLC_COMPLETE": "complete_bash", "COMP_WORDS": "dlc comp", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "dlc"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["compile"]
    assert done.returncode == 0
