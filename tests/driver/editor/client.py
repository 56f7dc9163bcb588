"""pygls' client of the language server, over a pipe to a `dlc lsp` of its own, asked from plain tests."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar, cast

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds after which a silent server fails a test."""


class EditorClient:
    """An editor without a window: it opens and changes texts, asks, and keeps what is published."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._published: dict[tuple[str, int | None], list[lsp.Diagnostic]] = {}
        self._news = threading.Condition()
        self._versions: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self.protocol = LanguageClient("tests", "1")

        @self.protocol.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # pyright: ignore[reportUntypedFunctionDecorator] -- pygls has no types here
        def published(params: lsp.PublishDiagnosticsParams) -> None:
            self._keep(params)

        start = cast("Callable[..., Coroutine[Any, Any, None]]", self.protocol.start_io)
        self.ask(start(sys.executable, "-m", "dlc", "lsp"))
        capabilities = lsp.ClientCapabilities()
        params = lsp.InitializeParams(capabilities=capabilities, root_uri=root.as_uri())
        self.abilities = self.ask(self.protocol.initialize_async(params)).capabilities
        self.protocol.initialized(lsp.InitializedParams())

    def ask(self, question: Coroutine[Any, Any, T]) -> T:
        """The answer to a request."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(question, self._loop)
        return future.result(PATIENCE)

    def _keep(self, params: lsp.PublishDiagnosticsParams) -> None:
        with self._news:
            self._published[params.uri, params.version] = list(params.diagnostics)
            self._news.notify_all()

    def open(self, name: str, text: str) -> lsp.TextDocumentIdentifier:
        """Open a text, or change it to this if it is open; it need not be a file yet.

        `untitled:NAME` is the address of one that was never saved.
        """
        uri = name if name.startswith("untitled:") else (self.root / name).as_uri()
        version = self._versions[uri] = self._versions.get(uri, 0) + 1
        self._texts[uri] = text
        if version == 1:
            item = lsp.TextDocumentItem(uri, "dlm", version, text)
            self.protocol.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        else:
            document = lsp.VersionedTextDocumentIdentifier(version, uri)
            change = lsp.TextDocumentContentChangeWholeDocument(text)
            self.protocol.text_document_did_change(
                lsp.DidChangeTextDocumentParams(document, [change])
            )
        return lsp.TextDocumentIdentifier(uri)

    def diagnostics(self, document: lsp.TextDocumentIdentifier) -> list[lsp.Diagnostic]:
        """What is published about the present version of a text."""
        key = (document.uri, self._versions[document.uri])
        with self._news:
            assert self._news.wait_for(lambda: key in self._published, PATIENCE)
            return self._published[key]

    def place(
        self, document: lsp.TextDocumentIdentifier, mark: str, after: int = 0
    ) -> lsp.Position:
        """The place of the first `mark` in a text, some characters on."""
        text = self._texts[document.uri]
        offset = text.index(mark) + after
        before = text[:offset].rpartition("\n")
        return lsp.Position(before[0].count("\n") + len(before[1]), len(before[2]))

    def close(self) -> None:
        """End the server as the protocol says."""
        self.ask(self.protocol.shutdown_async(None))
        self.protocol.exit(None)
        self.ask(self.protocol.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
