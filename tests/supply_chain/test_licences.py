"""Users of dlc install nothing whose licence asks more of them than a notice."""

from __future__ import annotations

import pytest

from supply_chain import licences
from supply_chain.licences import Licensed, is_allowed, licence_of, licensed, main
from supply_chain.lock import DEV, read_lock

ELSEWHERE = {"colorama"}
"""Packages of the lock for Windows alone."""


def test_every_licence_is_allowed() -> None:
    assert [each for each in licensed() if not each.is_allowed] == []


def test_every_package_of_the_lock_is_judged() -> None:
    locked = read_lock(DEV.read_text(encoding="utf-8")).keys()
    assert {each.name for each in licensed()} == locked - ELSEWHERE


def test_what_users_install_is_told_from_what_developers_do() -> None:
    users = {each.name for each in licensed() if each.is_for_users}
    assert {"numpy", "llvmlite", "cuda-bindings", "onnx", "pillow", "pydantic-core"} <= users
    assert not {"pytest", "ruff", "nvidia-cuda-nvcc-cu12"} & users


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-or-later", False),
        ("BSD-3-Clause AND MIT", True),
        ("BSD-3-Clause AND GPL-3.0-or-later", False),
        ("GPL-2.0-only OR MIT", True),
        ("MIT AND GPL-2.0-only OR LGPL-2.1-only", False),
        ("MIT AND (GPL-2.0-only OR ISC)", False),  # a person has to look at it
        ("Apache-2.0 WITH LLVM-exception", True),
        ("LicenseRef-NVIDIA-Proprietary", False),
    ],
)
def test_a_licence_is_allowed_if_all_parts_of_one_choice_are(licence: str, allowed: bool) -> None:
    assert is_allowed(licence) == allowed


def test_an_exception_for_developers_is_none_for_users() -> None:
    assert licences.ALLOWED_FOR_DEVELOPERS
    for name, licence in licences.ALLOWED_FOR_DEVELOPERS.items():
        assert Licensed(name, licence, is_for_users=False).is_allowed
        assert not Licensed(name, licence, is_for_users=True).is_allowed
        assert not Licensed("another", licence, is_for_users=False).is_allowed


def test_the_list_fails_and_says_which_licence_is_not_allowed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main() == 0
    assert "NOT ALLOWED" not in capsys.readouterr().out
    monkeypatch.setattr(licences, "ALLOWED", licences.ALLOWED - {"ISC"})
    assert main() == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "NOT ALLOWED" in line]
    assert ["users", "shellingham", "ISC", "NOT", "ALLOWED"] in [line.split() for line in lines]
    assert all(line.split()[2] == "ISC" for line in lines)


def test_a_package_without_a_known_licence_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licences, "READ", {})
    with pytest.raises(LookupError, match="the licence of scipy is not known: read it"):
        licence_of("scipy")
