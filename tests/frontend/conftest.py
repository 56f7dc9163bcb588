"""The recorders are run by hand, where PyTorch is installed; they have no tests."""

from __future__ import annotations

collect_ignore = ["recorded/record.py", "recorded/record_training.py"]
