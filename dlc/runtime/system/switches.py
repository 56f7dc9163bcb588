"""Environment variables that switch something on."""

from __future__ import annotations

import os


def is_switched_on(variable: str) -> bool:
    """Whether an environment variable is set to anything but nothing or 0.

    >>> [is_switched_on(name) for name in ("PATH", "NO_SUCH_VARIABLE")]
    [True, False]
    """
    return os.environ.get(variable, "") not in ("", "0")
