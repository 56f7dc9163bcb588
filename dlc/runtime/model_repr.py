"""A model as `repr` and as a notebook show it: entry points with their types, weights, memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dlc.errors import visible
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.spelling import dims_text
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.signature import signature_text
from dlc.runtime.system.counts import counted

_MAX_ROWS = 200


class Model(Protocol):
    """What is shown of a model: `dlc.runtime.model.Model` has it."""

    @property
    def artifact(self) -> Artifact: ...

    @property
    def name(self) -> str: ...

    @property
    def entry_points(self) -> Mapping[str, EntryPoint]: ...

    @property
    def parameters(self) -> int: ...


def as_text(model: Model) -> str:
    """One line for each entry point, under a line with the model's name and size.

    Names come with the artifact: what a terminal obeys is not among them.
    """
    lines = [f"Model {model.name}: {_weights_text(model)}"]
    for entry in model.entry_points.values():
        dims = f" where {dims_text(entry.dims)}" if entry.dims else ""
        lines.append(f"  {signature_text(entry.entry)}{dims}")
    return visible("\n".join(lines))


def as_html(model: Model) -> str:
    """The same as tables, with the documentation and the working memory of each entry point."""
    import html  # its table of characters is loaded for notebooks only

    rows = [
        f"<tr><td><code>{html.escape(signature_text(entry.entry))}</code></td>"
        f"<td>{html.escape(dims_text(entry.dims))}</td><td>{html.escape(_memory_text(entry))}</td>"
        f"<td>{html.escape(entry.doc)}</td></tr>"
        for entry in list(model.entry_points.values())[:_MAX_ROWS]
    ]
    weights = [
        f"<tr><td><code>{html.escape(weight.name)}</code></td>"
        f"<td><code>{html.escape(weight.dtype)}{list(weight.shape)}</code></td></tr>"
        for weight in model.artifact.manifest.weights[:_MAX_ROWS]
    ]
    head = "<tr><th>entry point</th><th>dims</th><th>memory</th><th></th></tr>"
    return (
        f"<p><b>{html.escape(model.name)}</b>: {html.escape(_weights_text(model))}</p>"
        f"<table>{head}{''.join(rows)}</table>"
        f"<details><summary>weights</summary><table>{''.join(weights)}</table></details>"
    )


def bytes_text(count: int) -> str:
    """A number of bytes for people.

    >>> bytes_text(1), bytes_text(999), bytes_text(61_706 * 4), bytes_text(3 << 30)
    ('1 byte', '999 bytes', '241.0 KiB', '3.0 GiB')
    """
    if count < 1024:
        return counted(count, "byte")
    power = min((count.bit_length() - 1) // 10, 4)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def _weights_text(model: Model) -> str:
    table = model.artifact.manifest.weights
    if not table:
        return "no weights"
    size = bytes_text(sum(weight.bytes for weight in table))
    return f"{counted(model.parameters, 'parameter')} in {counted(len(table), 'weight')}, {size}"


def _memory_text(entry: EntryPoint) -> str:
    """What one call works in, at the lower and upper bounds of its dims."""
    return " to ".join(bytes_text(size) for size in entry.memory_at_bounds())
