"""What gives the inner values of a call: the compiler, which stands above, so the package `dlc` sets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dlc.runtime.artifact.contents import Artifact

Observe: TypeAlias = """Callable[
    [Artifact, Sequence[str], str, Mapping[str, object], int], dict[str, NDArray[np.generic]]
]"""
"""Inner values of a call: from the artifact, names, the entry point, its arguments, and threads."""

OBSERVERS: list[Callable[[], Observe]] = []
"""One, imported when it is called for, or none where the runtime is imported alone."""
