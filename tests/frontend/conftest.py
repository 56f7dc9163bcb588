"""`recorded/record.py` is run by hand, where PyTorch is installed; it has no tests."""

from __future__ import annotations

collect_ignore = ["recorded/record.py"]
