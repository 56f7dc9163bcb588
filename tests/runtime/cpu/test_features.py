"""The processor's features as Linux reports them, against LLVM's own detection."""

from __future__ import annotations

from itertools import pairwise

import llvmlite.binding as llvm
import pytest

from dlc.runtime.cpu.features import (
    FEATURES,
    LEVELS,
    NAMED,
    UNUSED,
    host_features,
    host_model,
    missing_features,
)


def test_linux_and_llvm_agree_on_this_machine() -> None:
    llvm.initialize_native_target()
    detected = llvm.get_host_cpu_features()
    assert {name for name in FEATURES if detected[name]} == host_features()


def test_every_feature_has_a_name_that_llvm_knows() -> None:
    llvm.initialize_native_target()
    assert {*FEATURES, *UNUSED} <= set(llvm.get_host_cpu_features())


def test_each_level_has_the_features_of_the_one_below() -> None:
    levels = [set(features) for features in LEVELS.values()]
    assert all(below < above for below, above in pairwise(levels))


@pytest.mark.parametrize("name", NAMED)
def test_named_processors_are_at_least_of_level_3(name: str) -> None:
    assert set(LEVELS["x86-64-v3"]) <= set(NAMED[name]) <= set(FEATURES)


def test_missing_features_are_listed_by_name() -> None:
    assert missing_features(host_features()) == []
    assert missing_features(["warp-drive", *host_features(), "abacus"]) == ["abacus", "warp-drive"]


def test_the_processor_has_a_name() -> None:
    assert host_model()
