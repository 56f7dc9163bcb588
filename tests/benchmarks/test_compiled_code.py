"""The benchmark that tells whether compiled models have changed."""

from __future__ import annotations

from benchmarks.compiled_code import differences, digests
from benchmarks.networks.files import opened_models
from dlc.driver.compile.settings import Settings


def test_a_model_is_compiled_to_the_same_sections_twice() -> None:
    found = [dict(digests(["poly"], ["cpu:x86-64-v3"])) for _ in range(2)]
    assert "plan" in found[0]["poly inference cpu:x86-64-v3"]
    assert differences(*found) == []


def test_sections_that_differ_are_named() -> None:
    before = {"a": {"plan": "1", "code": "2"}, "b": {"plan": "3"}}
    now = {"a": {"plan": "1", "code": "4", "ptx": "5"}, "b": {"plan": "3"}, "c": {"plan": "6"}}
    assert differences(before, now) == ["a: code, ptx", "c: not compiled before"]


def test_a_model_of_two_train_blocks_is_compiled_to_train_by_each() -> None:
    opened = list(opened_models("digits_gan", Settings()))
    assert [model.training is not None for model, _ in opened] == [False, True, True]
    assert [request.block for _, request in opened[1:]] == ["discriminate", "generate"]
