"""How soon `dlc lsp` answers an editor on a text of 1,000 lines: the protocol's requests over a pipe.

    python -m benchmarks lsp [--rounds 20]

After each change of the text every request is asked once and timed from the outside; the table shows the
median and the slowest, and the processor time of the server's answering thread, which other work of the
machine does not lengthen; for diagnostics it is that of all of its threads. "first after a change" includes
reading the changed text. Diagnostics are waited for after a change of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeAlias, cast

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

Question: TypeAlias = Callable[[], Awaitable[object]]

SERVER = """
import os
from dlc.driver.editor import server
server.VERSION = str(os.getpid())  # so that the client knows whose processor time to read
server.make_server().serve()
"""

BLOCK = """## Layer {k}.
module Block{k}(width = 64) {{
  use up = Linear(width, 2 * width)
  use down = Linear(2 * width, width)
  fn call(x: f32[..]) {{
    let h = relu(up(x))
    return x + down(h)
  }}
}}

"""


def text_of(blocks: int) -> str:
    """A network of as many layers: 12 lines for each."""
    parts = ["dlc 1\nimport nn (Linear)\ndim B = 1..1024\n\n"]
    parts += [BLOCK.format(k=k) for k in range(blocks)]
    parts.append("module Net {\n")
    parts += [f"  use b{k} = Block{k}()\n" for k in range(blocks)]
    parts.append("  export fn predict(x: f32[B, 64]) -> f32[B, 64] {\n    let h0 = x\n")
    parts += [f"    let h{k + 1} = b{k}(h{k})\n" for k in range(blocks)]
    parts.append(f"    return h{blocks}\n  }}\n}}\n")
    return "".join(parts)


def _worked(process: int) -> float:
    """Milliseconds of processor time that the server's main thread, which answers, has used."""
    return int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[0]) / 1e6


def _worked_by_all(process: int) -> float:
    """The same of all threads of the server."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(each.read_text(encoding="ascii").split()[0]) for each in threads) / 1e6


async def measure(rounds: int) -> dict[str, list[tuple[float, float]]]:
    """For each request the milliseconds until its answer, and those that the server worked for it."""
    client = LanguageClient("benchmark", "1")
    published = asyncio.Event()

    @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # pyright: ignore[reportUntypedFunctionDecorator] -- pygls has no types here
    def done(_: lsp.PublishDiagnosticsParams) -> None:
        published.set()

    start_io = cast("Callable[..., Awaitable[None]]", client.start_io)
    await start_io(sys.executable, "-c", SERVER)
    answer = await client.initialize_async(
        lsp.InitializeParams(capabilities=lsp.ClientCapabilities())
    )
    process = int((answer.server_info and answer.server_info.version) or 0)
    client.initialized(lsp.InitializedParams())
    times: dict[str, list[tuple[float, float]]] = {}
    with TemporaryDirectory() as folder:
        uri = f"file://{folder}/net.dlm"
        text = text_of(83)
        print(f"{text.count(chr(10))} lines, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        item = lsp.TextDocumentItem(uri, "dlm", 0, text)
        client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        await published.wait()
        for number in range(1, rounds + 1):
            published.clear()
            start, worked = time.perf_counter(), _worked_by_all(process)
            changed = _change(client, uri, text, 2 * number)
            await published.wait()
            waited = 1e3 * (time.perf_counter() - start)
            diagnosed = (waited, _worked_by_all(process) - worked)
            times.setdefault("diagnostics", []).append(diagnosed)
            published.clear()
            changed = _change(client, uri, text, 2 * number + 1)
            for name, question in questions(client, uri, changed).items():
                asked, worked = time.perf_counter(), _worked(process)
                await question()
                waited = 1e3 * (time.perf_counter() - asked)
                times.setdefault(name, []).append((waited, _worked(process) - worked))
            await published.wait()
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return times


def _change(client: LanguageClient, uri: str, text: str, number: int) -> str:
    """Change the text, and say to what."""
    changed = text.replace("## Layer 7.", f"## Layer 7, change {number}.")
    change = lsp.TextDocumentContentChangeWholeDocument(changed)
    document = lsp.VersionedTextDocumentIdentifier(number, uri)
    client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))
    return changed


def questions(client: LanguageClient, uri: str, text: str) -> dict[str, Question]:
    """The requests, in the order in which they are asked."""
    document = lsp.TextDocumentIdentifier(uri)

    def at(mark: str, after: int = 0) -> lsp.Position:
        before = text[: text.index(mark) + after]
        return lsp.Position(before.count("\n"), len(before) - before.rfind("\n") - 1)

    use = at("b40(h40)")
    context = lsp.ReferenceContext(include_declaration=True)
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(text.count("\n"), 0))
    options = lsp.FormattingOptions(2, insert_spaces=True)
    return {
        "hover, first after a change": lambda: client.text_document_hover_async(
            lsp.HoverParams(document, use)
        ),
        "hover": lambda: client.text_document_hover_async(lsp.HoverParams(document, use)),
        "definition": lambda: client.text_document_definition_async(
            lsp.DefinitionParams(document, use)
        ),
        "references": lambda: client.text_document_references_async(
            lsp.ReferenceParams(context=context, text_document=document, position=use)
        ),
        "completion": lambda: client.text_document_completion_async(
            lsp.CompletionParams(document, at("b40(h40)", 2))
        ),
        "symbols": lambda: client.text_document_document_symbol_async(
            lsp.DocumentSymbolParams(document)
        ),
        "hints": lambda: client.text_document_inlay_hint_async(
            lsp.InlayHintParams(document, whole)
        ),
        "rename": lambda: client.text_document_rename_async(
            lsp.RenameParams(text_document=document, position=use, new_name="another")
        ),
        "formatting": lambda: client.text_document_formatting_async(
            lsp.DocumentFormattingParams(document, options)
        ),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    times = asyncio.run(measure(parser.parse_args().rounds))
    print(f"{'request':30} {'median ms':>10} {'slowest ms':>11} {'processor ms':>13}")
    for name, found in times.items():
        waits = [waited for waited, _ in found]
        worked = median([each for _, each in found])
        print(f"{name:30} {median(waits):10.1f} {max(waits):11.1f} {worked:13.1f}")


if __name__ == "__main__":
    main()
