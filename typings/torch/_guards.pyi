from collections.abc import Sequence
from contextlib import AbstractContextManager

from torch import Tensor

class _ShapeEnvironment:
    def ignore_fresh_unbacked_symbols(self) -> AbstractContextManager[object]: ...

class _FakeMode(AbstractContextManager[object]):
    shape_env: _ShapeEnvironment
    def __exit__(self, *raised: object) -> None: ...

def detect_fake_mode(tensors: Sequence[Tensor]) -> _FakeMode: ...
