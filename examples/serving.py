"""A model behind an ASGI application, without a web framework.

    dlc train examples/digits_mlp.dlm -o digits_mlp.dlc
    MODEL=digits_mlp.dlc uvicorn serving:application --app-dir examples

`POST /predict` takes `{"image": [...]}`, the inputs of the entry point as nested lists, and answers with
the results by name; `GET /` says what there is. Calls of a model release Python's lock and may come from
any number of threads, so each runs in the pool of the event loop, which stays free to accept others.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import numpy as np

import dlc

Message: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

LARGEST = 1 << 20
"""The most bytes of a request that are read; a longer one is refused before it fills the memory."""


@cache
def model() -> dlc.Model:
    """The model that `MODEL` names; its calls use one thread each, since requests come at the same time."""
    return dlc.load(os.environ["MODEL"], threads=1)


def answer(name: str, request: bytes) -> tuple[int, object]:
    """The status and the content of the answer to a call of the entry point `name`."""
    entry = model().entry_points.get(name)
    if entry is None:
        return 404, {"error": f"there is {', '.join(model().entry_points)}"}
    try:
        results: Any = model()[name](**json.loads(request or b"{}"))
    except (dlc.DlcError, TypeError, ValueError) as error:
        return 422, {"error": str(error)}
    names = [output.name or "result" for output in entry.outputs]
    named = results if len(names) > 1 else (results,)
    return 200, {name: np.asarray(x).tolist() for name, x in zip(names, named, strict=True)}


async def body(receive: Receive) -> bytes | None:
    """What was sent; None if it is longer than `LARGEST`."""
    parts = b""
    while True:
        message = await receive()
        parts += message.get("body", b"")
        if len(parts) > LARGEST:
            return None
        if not message.get("more_body", False):
            return parts


async def application(scope: Message, receive: Receive, send: Send) -> None:
    """Answer one request."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    assert scope["type"] == "http"
    name = scope["path"].strip("/")
    if not name:
        status, content = 200, {key: repr(entry) for key, entry in model().entry_points.items()}
    elif (request := await body(receive)) is None:
        status, content = 413, {"error": f"more than {LARGEST} bytes"}
    else:
        status, content = await asyncio.to_thread(answer, name, request)
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})


async def lifespan(receive: Receive, send: Send) -> None:
    """Load the model before the first request."""
    while (kind := (await receive())["type"]) != "lifespan.shutdown":
        await asyncio.to_thread(model)
        await send({"type": f"{kind}.complete"})
    await send({"type": "lifespan.shutdown.complete"})
