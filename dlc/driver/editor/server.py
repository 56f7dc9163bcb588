"""The language server: the protocol's requests, answered by the other modules of this folder.

A change is answered from the parser at once. Elaboration, which takes longer, runs in a thread when nobody
has typed for a moment; then diagnostics are published, and hints are asked for again.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Sequence
from typing import Final

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from dlc.driver.editor.completion import complete
from dlc.driver.editor.hover import hover
from dlc.driver.editor.meanings import Place, Reading
from dlc.driver.editor.outline import Symbol, hints, symbols
from dlc.driver.editor.positions import Encoding, location_range, offset_of, position_of, range_of
from dlc.driver.editor.renaming import renamable, rename, uses_of
from dlc.driver.editor.texts import OpenText, OpenTexts
from dlc.errors import Diagnostic, ModelError, UsageError
from dlc.text.model.fmt import format_source
from dlc.text.source import Source, Span
from dlc.version import VERSION

__all__ = ["make_server"]

PAUSE: Final = 0.05
"""Seconds without a change after which a text is elaborated."""
IDLE: Final = 2.0
"""Seconds after that without a change, after which garbage is collected."""
MOST_UNCOLLECTED: Final = 200_000
"""New objects after which garbage is collected whatever else happens: some 8 versions of 1,000 lines."""

SEVERITIES: Final = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "note": lsp.DiagnosticSeverity.Information,
}
SYMBOLS: Final = {
    "module": lsp.SymbolKind.Class,
    "function": lsp.SymbolKind.Function,
    "weight": lsp.SymbolKind.Field,
    "layer": lsp.SymbolKind.Property,
    "constant": lsp.SymbolKind.Constant,
    "size": lsp.SymbolKind.TypeParameter,
    "training": lsp.SymbolKind.Event,
}
COMPLETIONS: Final = {
    "member": lsp.CompletionItemKind.Field,
    "parameter": lsp.CompletionItemKind.Property,
    "name": lsp.CompletionItemKind.Variable,
    "function": lsp.CompletionItemKind.Function,
    "module": lsp.CompletionItemKind.Class,
    "keyword": lsp.CompletionItemKind.Keyword,
    "type": lsp.CompletionItemKind.TypeParameter,
}


class Editor(LanguageServer):
    """The server with the texts that are open."""

    def __init__(self) -> None:
        super().__init__("dlc", VERSION)  # pyright: ignore[reportUnknownMemberType] -- open arguments
        self.texts = OpenTexts()
        self._published: dict[str, set[str]] = {}
        """For each open text the addresses under which its problems were shown last."""

    @property
    def encoding(self) -> Encoding:
        """The units in which the client counts columns."""
        kind = self.workspace.position_encoding
        return kind.value if isinstance(kind, lsp.PositionEncodingKind) else "utf-16"

    def text(self, uri: str) -> OpenText:
        """An open text in its present version."""
        document = self.workspace.get_text_document(uri)
        opened = self.texts.by_uri.get(uri)
        version = document.version or 0
        if opened is None or (opened.version, opened.source.text) != (version, document.source):
            opened = self.texts.put(uri, version, document.source)
        return opened

    def at(self, uri: str, position: lsp.Position) -> tuple[OpenText, int]:
        """An open text and a place in it."""
        opened = self.text(uri)
        return opened, offset_of(opened.source, position, self.encoding)

    def range(self, source: Source, span: Span) -> lsp.Range:
        """A span in the client's units."""
        return range_of(source, span, self.encoding)

    def location(self, reading: Reading, source: Source, span: Span) -> lsp.Location:
        """A place of a text."""
        return lsp.Location(reading.address_of(source.name), self.range(source, span))

    # Diagnostics ----------------------------------------------------------------------------------

    async def changed(self, uri: str) -> None:
        """Elaborate a text, and those that import it, unless it changes again meanwhile."""
        opened = self.text(uri)
        await asyncio.sleep(PAUSE)
        if self.texts.by_uri.get(uri) is not opened:
            return
        for each in [opened, *self.texts.importers(opened)]:
            await asyncio.to_thread(each.observe)
            if self.texts.by_uri.get(each.uri) is each:
                self.publish(each)
        abilities = self.client_capabilities.workspace
        if abilities and abilities.inlay_hint and abilities.inlay_hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)
        await asyncio.sleep(IDLE)
        if self.texts.by_uri.get(uri) is opened:
            gc.collect()

    def publish(self, opened: OpenText) -> None:
        """Show the problems of a text, each in its file, and no longer those that were fixed."""
        by_uri: dict[str, list[lsp.Diagnostic]] = {opened.uri: []}
        for problem in opened.observe().diagnostics:
            file = problem.place.file if problem.place else opened.source.name
            own = file == opened.source.name
            by_uri.setdefault(opened.uri if own else opened.reading.address_of(file), []).append(
                self._diagnostic(opened, problem)
            )
        gone = self._published.get(opened.uri, set()) - by_uri.keys()
        self._published[opened.uri] = set(by_uri)
        for uri, found in [*by_uri.items(), *[(uri, []) for uri in gone]]:
            version = opened.version if uri == opened.uri else None
            self.text_document_publish_diagnostics(
                lsp.PublishDiagnosticsParams(uri, found, version)
            )

    def _diagnostic(self, opened: OpenText, problem: Diagnostic) -> lsp.Diagnostic:
        labels = [
            lsp.DiagnosticRelatedInformation(
                lsp.Location(
                    opened.reading.address_of(label.place.file),
                    location_range(file.source, label.place, self.encoding),
                ),
                label.text,
            )
            for label in problem.labels
            if (file := opened.reading.loader.files.get(label.place.file)) is not None
        ]
        place = problem.place
        file = None if place is None else opened.reading.loader.files.get(place.file)
        range = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
        if place is not None and file is not None:
            range = location_range(file.source, place, self.encoding)
        message = f"{problem.message}\n{problem.help}" if problem.help else problem.message
        return lsp.Diagnostic(
            range,
            message,
            SEVERITIES[problem.severity],
            code=problem.code,
            source="dlc",
            related_information=labels or None,
        )

    def serve(self) -> None:
        """Answer the editor on stdin and stdout until it ends.

        Python's collector would take a tenth of the time from a change to its diagnostics. Here it runs
        when nobody types, and not over what was imported, which stays.
        """
        gc.collect()
        gc.freeze()
        gc.set_threshold(MOST_UNCOLLECTED)
        self.start_io()

    def forget(self, uri: str) -> None:
        """Show nothing any more about a text that was closed."""
        self.texts.close(uri)
        for shown in self._published.pop(uri, set()):
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(shown, []))


def make_server() -> Editor:
    """The server with every request that it answers; `serve()` runs it."""
    server = Editor()
    _follow_changes(server)
    _tell(server)
    _navigate(server)
    _edit(server)
    return server


def _follow_changes(server: Editor) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        await server.changed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        await server.changed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)

    _ = opened, changed, closed


def _tell(server: Editor) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hovering(params: lsp.HoverParams) -> lsp.Hover | None:
        opened, offset = server.at(params.text_document.uri, params.position)
        found = hover(opened.reading, opened.observed, offset)
        if found is None:
            return None
        content = lsp.MarkupContent(lsp.MarkupKind.Markdown, found[1])
        return lsp.Hover(content, server.range(opened.source, found[0]))

    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def hinting(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        opened = server.text(params.text_document.uri)
        if opened.observed is None:
            return []
        first = offset_of(opened.source, params.range.start, server.encoding)
        last = offset_of(opened.source, params.range.end, server.encoding)
        return [
            lsp.InlayHint(
                position_of(opened.source, hint.offset, server.encoding),
                hint.text,
                lsp.InlayHintKind.Type,
            )
            for hint in hints(opened.reading, opened.observed)
            if first <= hint.offset <= last
        ]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def outlining(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        opened = server.text(params.text_document.uri)
        return _document_symbols(server, opened.source, symbols(opened.reading.file.tree))

    _ = hovering, hinting, outlining


def _document_symbols(
    server: Editor, source: Source, found: Iterable[Symbol]
) -> list[lsp.DocumentSymbol]:
    return [
        lsp.DocumentSymbol(
            symbol.name,
            SYMBOLS[symbol.kind],
            server.range(source, symbol.span),
            server.range(source, symbol.name_span),
            symbol.detail or None,
            children=_document_symbols(server, source, symbol.members),
        )
        for symbol in found
    ]


def _navigate(server: Editor) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def defining(params: lsp.DefinitionParams) -> lsp.Location | None:
        opened, offset = server.at(params.text_document.uri, params.position)
        reference = opened.reading.at(offset)
        if reference is None or not isinstance(reference.meaning, Place):
            return None
        place = reference.meaning
        return server.location(opened.reading, place.file.source, place.span)

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def referring(params: lsp.ReferenceParams) -> list[lsp.Location]:
        opened, offset = server.at(params.text_document.uri, params.position)
        reference = opened.reading.at(offset)
        if reference is None or not isinstance(reference.meaning, Place):
            return []
        place = reference.meaning
        home = opened.reading.address_of(place.file.source.name)
        found: list[lsp.Location] = []
        for address, (source, spans) in uses_of(
            server.texts.readings(), opened.reading, place
        ).items():
            for span in sorted(spans):
                declares = span == place.span and address == home
                if params.context.include_declaration or not declares:
                    found.append(lsp.Location(address, server.range(source, span)))
        return found

    _ = defining, referring


def _edit(server: Editor) -> None:
    @server.feature(
        lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "("])
    )
    def completing(params: lsp.CompletionParams) -> lsp.CompletionList:
        opened, offset = server.at(params.text_document.uri, params.position)
        proposals = complete(opened.source, offset, opened.path, opened.unsaved)
        items = [
            lsp.CompletionItem(
                proposal.text,
                kind=COMPLETIONS[proposal.kind],
                detail=proposal.detail or None,
                sort_text=f"{number:05}",
            )
            for number, proposal in enumerate(proposals)
        ]
        return lsp.CompletionList(is_incomplete=False, items=items)

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    def preparing(params: lsp.PrepareRenameParams) -> lsp.PrepareRenamePlaceholder:
        opened, offset = server.at(params.text_document.uri, params.position)
        try:
            place, span = renamable(opened.reading, offset)
        except UsageError as error:
            raise _refused(error) from None
        return lsp.PrepareRenamePlaceholder(server.range(opened.source, span), place.name)

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    def renaming(params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        opened, offset = server.at(params.text_document.uri, params.position)
        try:
            edits = rename(server.texts.readings(), opened.reading, offset, params.new_name)
        except UsageError as error:
            raise _refused(error) from None
        return lsp.WorkspaceEdit(
            {address: _text_edits(server, *edit) for address, edit in edits.items()}
        )

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
        opened = server.text(params.text_document.uri)
        try:
            formatted = format_source(opened.source.text, opened.source.name)
        except ModelError:
            return None  # its errors are shown as diagnostics
        if formatted == opened.source.text:
            return []
        whole = server.range(opened.source, Span(0, len(opened.source.text)))
        return [lsp.TextEdit(whole, formatted)]

    _ = completing, preparing, renaming, formatting


def _text_edits(
    server: Editor, source: Source, edits: Sequence[tuple[Span, str]]
) -> list[lsp.TextEdit]:
    return [lsp.TextEdit(server.range(source, span), new) for span, new in edits]


def _refused(error: UsageError) -> JsonRpcInvalidParams:
    """The answer to a request that is refused, with the code and the reason."""
    return JsonRpcInvalidParams("; ".join(map(str, error.diagnostics)))
