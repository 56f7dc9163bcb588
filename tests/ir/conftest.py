from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ir import toy


@pytest.fixture(autouse=True)
def toy_operations() -> Iterator[None]:
    with toy.registered():
        yield
