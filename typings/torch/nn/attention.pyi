from contextlib import AbstractContextManager
from typing import ClassVar

class SDPBackend:
    MATH: ClassVar[SDPBackend]

def sdpa_kernel(backend: SDPBackend) -> AbstractContextManager[None]: ...
