"""The language server, driven by pygls' client over a pipe."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from benchmarks.lsp import measure
from dlc.text.model.fmt import format_source
from tests.driver.editor.client import EditorClient

MODEL = """dlc 1
import nn (Linear)
import "blocks.dlm" (Block)
dim B = 1..64

## A small network.
module Net(hidden = 8) {
  use first = Linear(4, hidden)
  use block = Block(width=hidden)

  fn features(x: f32[B, 4]) {
    let h = relu(first(x))
    return block(h)
  }

  ## What it gives.
  export fn predict(x: f32[B, 4]) -> f32[B, 8] = softmax(features(x))
}
"""
BLOCKS = """dlc 1
import nn (Linear)

## A layer with a way around it.
module Block(width) {
  use inner = Linear(width, width)
  fn call(x: f32[.., width]) = x + inner(x)
}
"""


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditorClient]:
    root = tmp_path_factory.mktemp("models")
    (root / "blocks.dlm").write_text(BLOCKS, encoding="utf-8")
    client = EditorClient(root)
    yield client
    client.close()


@pytest.fixture
def model(editor: EditorClient) -> lsp.TextDocumentIdentifier:
    document = editor.open("net.dlm", MODEL)
    assert editor.diagnostics(document) == []
    return document


def hover(editor: EditorClient, document: lsp.TextDocumentIdentifier, mark: str) -> str:
    position = editor.place(document, mark)
    answer = editor.ask(
        editor.protocol.text_document_hover_async(lsp.HoverParams(document, position))
    )
    assert answer is not None
    assert isinstance(answer.contents, lsp.MarkupContent)
    return answer.contents.value


def labels(
    editor: EditorClient, document: lsp.TextDocumentIdentifier, mark: str, after: int
) -> list[str]:
    position = editor.place(document, mark, after)
    answer = editor.ask(
        editor.protocol.text_document_completion_async(lsp.CompletionParams(document, position))
    )
    assert isinstance(answer, lsp.CompletionList)
    return [item.label for item in answer.items]


def test_every_error_of_a_text_is_shown_with_its_code_and_place(editor: EditorClient) -> None:
    text = "dlc 1\nexport fn f(x: f32[3]) -> f32[4] = x\nexport fn g(x: f32[2]) -> f32[2] = y\n"
    found = editor.diagnostics(editor.open("wrong.dlm", text))
    assert [(d.code, d.range.start.line) for d in found] == [("D0321", 1), ("D0201", 2)]
    assert found[1].range == lsp.Range(lsp.Position(2, 35), lsp.Position(2, 36))
    assert all(d.severity == lsp.DiagnosticSeverity.Error for d in found)


def test_errors_go_when_the_text_is_fixed(editor: EditorClient) -> None:
    editor.diagnostics(editor.open("fixed.dlm", "dlc 1\nfn f(x: f32[3]) = x +"))
    assert editor.diagnostics(editor.open("fixed.dlm", "dlc 1\nfn f(x: f32[3]) = x + 1\n")) == []


def test_errors_of_an_imported_text_that_is_not_saved_are_shown_in_it(
    editor: EditorClient, model: lsp.TextDocumentIdentifier
) -> None:
    wrong = editor.open("blocks.dlm", BLOCKS.replace("inner(x)", "outer(x)"))
    assert [d.code for d in editor.diagnostics(wrong)] == ["D0201"]
    assert editor.diagnostics(editor.open("blocks.dlm", BLOCKS)) == []


def test_hover_shows_type_bytes_and_operations(
    editor: EditorClient, model: lsp.TextDocumentIdentifier
) -> None:
    text = hover(editor, model, "h = relu")
    assert "h: f32[B, 8]" in text
    assert "32*B bytes" in text
    assert "nn.linear" in text
    assert "64*B floating-point operations in products" in text


def test_hover_shows_documentation(editor: EditorClient, model: lsp.TextDocumentIdentifier) -> None:
    assert "A layer with a way around it." in hover(editor, model, "Block(width")
    assert "softmax(x: float" in hover(editor, model, "softmax(")
    assert "known when compiling" in hover(editor, model, "module Net")


def test_definitions_are_found_in_other_texts_and_in_the_library(
    editor: EditorClient, model: lsp.TextDocumentIdentifier
) -> None:
    def defined(mark: str) -> tuple[str, int]:
        params = lsp.DefinitionParams(model, editor.place(model, mark))
        answer = editor.ask(editor.protocol.text_document_definition_async(params))
        assert isinstance(answer, lsp.Location)
        return Path(answer.uri).name, answer.range.start.line

    assert defined("first(x)") == ("net.dlm", 7)
    assert defined("Block(width") == ("blocks.dlm", 4)
    assert defined("width=hidden") == ("blocks.dlm", 4)
    assert defined("Linear(4")[0] == "dense.dlm"


def test_references_are_found_in_every_text(
    editor: EditorClient, model: lsp.TextDocumentIdentifier
) -> None:
    editor.open("blocks.dlm", BLOCKS)
    params = lsp.ReferenceParams(
        context=lsp.ReferenceContext(include_declaration=True),
        text_document=model,
        position=editor.place(model, "Block(width"),
    )
    found = editor.ask(editor.protocol.text_document_references_async(params))
    assert found is not None
    assert sorted((Path(f.uri).name, f.range.start.line) for f in found) == [
        ("blocks.dlm", 4),
        ("net.dlm", 2),
        ("net.dlm", 8),
    ]


def test_renaming_a_parameter_renames_the_arguments_of_calls(
    editor: EditorClient, model: lsp.TextDocumentIdentifier
) -> None:
    params = lsp.RenameParams(
        text_document=model, position=editor.place(model, "width=hidden"), new_name="size_of"
    )
    edit = editor.ask(editor.protocol.text_document_rename_async(params))
    assert edit is not None
    assert edit.changes is not None
    assert {Path(uri).name: len(edits) for uri, edits in edit.changes.items()} == {
        "net.dlm": 1,
        "blocks.dlm": 4,
    }


@pytest.mark.parametrize("name", ["block", "let", "no name", "B"])
def test_renaming_to_a_name_that_means_something_there_is_refused(
    editor: EditorClient, model: lsp.TextDocumentIdentifier, name: str
) -> None:
    params = lsp.RenameParams(
        text_document=model, position=editor.place(model, "first ="), new_name=name
    )
    with pytest.raises(JsonRpcException, match="D0960"):
        editor.ask(editor.protocol.text_document_rename_async(params))


def test_completion_knows_members_parameters_names_and_words(
    editor: EditorClient, model: lsp.TextDocumentIdentifier
) -> None:
    assert labels(editor, model, "block(h)", 5)[:3] == ["h", "x", "predict"]
    unfinished = MODEL.replace("return block(h)", "return block.")
    document = editor.open("half.dlm", unfinished)
    assert labels(editor, document, "return block.", 13) == ["inner", "call", "width"]
    document = editor.open("half.dlm", MODEL.replace("Block(width=hidden)", "Block("))
    assert labels(editor, document, "= Block(", 8)[0] == "width="
    document = editor.open("half.dlm", "dlc 1\nimport nn (Lin")
    assert "LayerNorm" in labels(editor, document, "Lin", 3)
    document = editor.open("half.dlm", "dlc 1\nfn f(x: f32[3]) = x + ")
    assert labels(editor, document, "x + ", 4)[:2] == ["x", "f"]
    assert "softmax" in labels(editor, document, "x + ", 4)


def test_the_outline_has_modules_with_their_members(
    editor: EditorClient, model: lsp.TextDocumentIdentifier
) -> None:
    answer = editor.ask(
        editor.protocol.text_document_document_symbol_async(lsp.DocumentSymbolParams(model))
    )
    assert answer is not None
    net = next(symbol for symbol in answer if symbol.name == "Net")
    assert isinstance(net, lsp.DocumentSymbol)
    members = [member.name for member in net.children or ()]
    assert members == ["first", "block", "features", "predict"]


def test_hints_show_the_types_that_a_text_leaves_out(
    editor: EditorClient, model: lsp.TextDocumentIdentifier
) -> None:
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(99, 0))
    answer = editor.ask(
        editor.protocol.text_document_inlay_hint_async(lsp.InlayHintParams(model, whole))
    )
    assert [(hint.label, hint.position.line) for hint in answer or ()] == [
        (" -> f32[B, 8]", 10),
        (": f32[B, 8]", 11),
    ]


def test_formatting_gives_the_layout_of_dlc_fmt(editor: EditorClient) -> None:
    text = "dlc 1\nfn f(x: f32[3])   =   x+1\n"
    document = editor.open("layout.dlm", text)
    options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
    edits = editor.ask(
        editor.protocol.text_document_formatting_async(
            lsp.DocumentFormattingParams(document, options)
        )
    )
    assert [edit.new_text for edit in edits or ()] == [format_source(text, "layout.dlm")]


def test_a_name_that_an_import_lacks_and_a_wrong_limit_are_shown_together(
    editor: EditorClient,
) -> None:
    text = "dlc 1\nimport nn (Linea)\nlimit memory\nexport fn f(x: f32[3]) -> f32[3] = x\n"
    codes = [d.code for d in editor.diagnostics(editor.open("two.dlm", text))]
    assert codes[0] == "D0203"


def test_columns_count_in_utf_16(editor: EditorClient) -> None:
    text = "dlc 1\n# 𝛼\nfn f(x: f32[3]) = x # 𝛽\nexport fn g() -> f32 = require_𝛾\n"
    document = editor.open("wide.dlm", text)
    assert editor.diagnostics(document)
    assert "f32[3]" in hover(editor, document, "x: f32")


def test_a_text_that_was_never_saved_has_references_and_is_renamed(editor: EditorClient) -> None:
    text = "dlc 1\nfn f(x: f32[3]) -> f32[3] = x\nfn g(x: f32[3]) -> f32[3] = f(x)\n"
    document = editor.open("untitled:Untitled-1", text)
    place = editor.place(document, "f(x)\n")
    context = lsp.ReferenceContext(include_declaration=True)
    params = lsp.ReferenceParams(context, document, place)
    found = editor.ask(editor.protocol.text_document_references_async(params))
    assert [each.uri for each in found or ()] == ["untitled:Untitled-1"] * 2
    defined = editor.ask(
        editor.protocol.text_document_definition_async(lsp.DefinitionParams(document, place))
    )
    assert isinstance(defined, lsp.Location)
    assert defined.range.start == lsp.Position(1, 3)
    renaming = lsp.RenameParams(text_document=document, position=place, new_name="twice")
    edit = editor.ask(editor.protocol.text_document_rename_async(renaming))
    assert edit is not None
    assert len((edit.changes or {})["untitled:Untitled-1"]) == 2


@pytest.mark.parametrize("cut", range(0, len(MODEL), 37))
def test_a_half_written_text_is_answered(editor: EditorClient, cut: int) -> None:
    document = editor.open("cut.dlm", MODEL[:cut])
    labels(editor, document, MODEL[:cut], cut)
    params = lsp.HoverParams(document, editor.place(document, MODEL[:cut], max(0, cut - 1)))
    editor.ask(editor.protocol.text_document_hover_async(params))


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux counts this time")
def test_every_answer_about_a_thousand_lines_takes_less_than_100_ms() -> None:
    """Of processor time, which is that of an idle machine, and the less of two."""
    times = asyncio.run(measure(2))
    assert {"diagnostics", "formatting", "rename", "completion"} <= times.keys()
    slow = {name: min(worked for _, worked in found) for name, found in times.items()}
    assert not {name: worked for name, worked in slow.items() if worked >= 100}
