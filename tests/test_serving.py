"""`examples/serving.py` as an ASGI server would call it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import dlc
from tests.documents import ROOT

IMAGE = np.load(ROOT / "examples/data/digits.npz")["images"][:2]


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, serving digits with weights as they begin."""
    dlc.compile(ROOT / "examples/digits_mlp.dlm", weights="init:0").save(tmp_path / "digits.dlc")
    monkeypatch.setenv("MODEL", str(tmp_path / "digits.dlc"))
    spec = importlib.util.spec_from_file_location("serving", ROOT / "examples/serving.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def request(serving: ModuleType, path: str, content: bytes) -> tuple[int, Any]:
    """Status and content of the answer; the request comes in two pieces."""
    middle = len(content) // 2
    pieces = [
        {"type": "http.request", "body": content[:middle], "more_body": True},
        {"type": "http.request", "body": content[middle:]},
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return pieces.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await serving.application({"type": "http", "path": path}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def call(serving: ModuleType, path: str, content: bytes = b"{}") -> tuple[int, Any]:
    return asyncio.run(request(serving, path, content))


def test_a_request_gets_what_the_model_predicts(serving: ModuleType) -> None:
    status, found = call(serving, "/predict", json.dumps({"image": IMAGE.tolist()}).encode())
    assert (status, found) == (200, {"result": serving.model().predict(IMAGE).tolist()})


def test_requests_at_the_same_time_are_answered(serving: ModuleType) -> None:
    async def many() -> list[tuple[int, Any]]:
        content = json.dumps({"image": IMAGE.tolist()}).encode()
        return await asyncio.gather(*[request(serving, "/predict", content) for _ in range(20)])

    answers = asyncio.run(many())
    assert all(each == answers[0] for each in answers) and answers[0][0] == 200


def test_wrong_requests_are_told_what_is_wrong(serving: ModuleType) -> None:
    assert call(serving, "/guess")[0] == 404
    assert call(serving, "/predict", b"{")[0] == 422
    assert call(serving, "/predict", b"[1]")[0] == 422
    status, found = call(serving, "/predict", b'{"image": [1, 2]}')
    assert status == 422 and "D0803" in found["error"]
    assert call(serving, "/predict", b" " * (serving.LARGEST + 1))[0] == 413
    assert "predict" in call(serving, "/")[1]


def test_the_model_is_loaded_before_the_first_request(serving: ModuleType) -> None:
    events = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[str] = []

    async def receive() -> dict[str, str]:
        return events.pop(0)

    async def send(message: dict[str, str]) -> None:
        sent.append(message["type"])

    asyncio.run(serving.application({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert serving.model.cache_info().currsize == 1
