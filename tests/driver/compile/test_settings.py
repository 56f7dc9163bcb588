"""What the user may choose about a compilation is checked before any work."""

from __future__ import annotations

import pytest

from dlc.driver.compile.settings import Settings
from dlc.errors import UsageError


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("cuda:sm_75", "D0920.*no GPU is called 'sm_75'"),
        ("auto:sm_75", "D0920.*no GPU is called 'sm_75'"),
        ("cpu+cuda:sm_75", "D0920.*no GPU is called 'sm_75'"),
        ("cpu:pentium", "D0920.*no target is called 'pentium'"),
        ("tpu", "D0902.*--target is 'tpu'"),
        ("cuda+cpu", "D0902.*--target is 'cuda\\+cpu'"),
        ("cpu+tpu", "D0902.*--target is 'cpu\\+tpu'"),
    ],
)
def test_a_target_that_there_is_not(target: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Settings(target=target)


@pytest.mark.parametrize(
    "target", ["cpu", "cpu:x86-64-v3", "cuda", "cuda:sm_90a", "cpu+cuda", "auto", "auto:sm_90"]
)
def test_a_target_that_there_is(target: str) -> None:
    assert Settings(target=target).target == target
