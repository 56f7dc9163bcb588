# Matplotlib as far as dlc draws with it: its own types leave many open.

from collections.abc import Mapping
from contextlib import AbstractContextManager

def rc_context(rc: Mapping[str, object]) -> AbstractContextManager[None]: ...
