"""Hover: the type of a name, its documentation, its bytes, its operations."""

from __future__ import annotations

from dlc.driver.editor.meanings import Known, Place, Reading, Reference
from dlc.driver.editor.observed import Observed
from dlc.driver.reference import documentation
from dlc.driver.reference.keywords import ALIASES
from dlc.driver.reference.library import EXAMPLE
from dlc.errors import UsageError
from dlc.ir.dims import Size, product
from dlc.ir.types import TensorType
from dlc.text.model import ast
from dlc.text.model.lexer import NAME, tokenize
from dlc.text.model.tree import walk
from dlc.text.model.words import EXPRESSION_WORDS, NEVER_NAMES, OPENERS, TRAIN_WORDS
from dlc.text.source import Span

__all__ = ["head_of", "hover", "page_text"]

KEYWORDS = OPENERS | TRAIN_WORDS | EXPRESSION_WORDS | NEVER_NAMES | ALIASES.keys()


def hover(reading: Reading, observed: Observed | None, offset: int) -> tuple[Span, str] | None:
    """The text in Markdown about what stands at a place, and the span that it is about."""
    reference = reading.at(offset)
    if reference is not None:
        return reference.span, _about(reading, observed, reference)
    return _keyword(reading, offset)


def _about(reading: Reading, observed: Observed | None, reference: Reference) -> str:
    meaning = reference.meaning
    if isinstance(meaning, Known):
        return page_text(meaning.name)
    value = _value_at(reading, reference)
    type = None if observed is None or value is None else observed.type_of(value)
    parts = [f"```dlm\n{_headed(meaning, type)}\n```"]
    if observed is not None and value is not None:
        parts.append(_facts(observed, value))
    parts.append(_docs(meaning.node))
    if meaning.file is not reading.file:
        parts.append(f"*{meaning.file.source.name.strip('<>')}*")
    return "\n\n".join(filter(None, parts))


def _headed(place: Place, type: str | None) -> str:
    head = head_of(place)
    names_a_value = isinstance(
        place.node, ast.Let | ast.Parameter | ast.Carry | ast.NamePattern | ast.Const
    )
    return f"{place.name}: {type}" if type and names_a_value else head


def head_of(place: Place) -> str:
    """A declaration in one line, without its body."""
    node, text = place.node, place.file.source.text
    if isinstance(node, ast.File):
        return f"import {place.file.source.name.strip('<>')}"
    end = node.span.end
    match node:
        case ast.Fn(body=body):
            end = body.span.start
        case ast.Module(members=members) if "{" in text[node.span.start : end]:
            first = members[0].span.start if members else end
            end = text.rindex("{", node.span.start, first)
        case ast.Carry() | ast.NamePattern() | ast.Name():
            return place.name
        case _:
            pass
    return " ".join(text[node.span.start : end].split()).rstrip("= {")


def _value_at(reading: Reading, reference: Reference) -> ast.Node | None:
    """The expression whose value a place shows: itself, or for a declaration what it is given."""
    meaning = reference.meaning
    if not isinstance(meaning, Place):
        return None
    if meaning.span != reference.span:
        return next((n for n in walk(reading.file.tree) if _stands_at(n, reference.span)), None)
    match meaning.node:
        case ast.Let(pattern=ast.NamePattern(), value=value) | ast.Const(value=value):
            return value
        case ast.Use(value=value) | ast.Carry(value=value):
            return value
        case ast.Fn(body=body):
            return body
        case _:
            uses = [span for file, span in reading.uses(meaning) if file is reading.file]
            return next(
                (n for n in walk(reading.file.tree) if any(_stands_at(n, s) for s in uses)), None
            )


def _stands_at(node: ast.Node, span: Span) -> bool:
    match node:
        case ast.Name():
            return node.span == span
        case ast.Attribute(name_span=own):
            return own == span
        case _:
            return False


def _facts(observed: Observed, value: ast.Node) -> str:
    """Bytes of a tensor, and the operations that it is computed with."""
    facts: list[str] = []
    tensor = observed.tensor_of(value)
    if tensor is not None:
        facts.append(f"{_bytes_of(tensor)} bytes")
    cost = observed.cost_of(value)
    if cost is not None:
        kinds = [f"{n} × {kind}" if n > 1 else kind for kind, n in cost.kinds.most_common(5)]
        more = len(cost.kinds) - len(kinds)
        facts.append(", ".join(kinds) + (f" and {more} more kinds" if more else ""))
        if cost.flops != 0:
            facts.append(f"{_number(cost.flops)} floating-point operations in products")
    return " · ".join(facts)


def _bytes_of(tensor: TensorType) -> str:
    return _number(product(tensor.shape) * tensor.dtype.bytes)


def _number(size: Size) -> str:
    return f"{size:,}" if isinstance(size, int) else str(size)


def _docs(node: ast.Node) -> str:
    docs = node.docs if isinstance(node, ast.Documented | ast.File | ast.Let | ast.Dims) else ""
    return EXAMPLE.sub(r"\n\nExample: `\1`", docs).strip()


def page_text(name: str) -> str:
    """The page of a word of the language, in Markdown: as `dlc doc` prints it, with its example."""
    try:
        page = documentation(name)
    except UsageError:
        return f"```dlm\n{name}\n```"
    parts = [f"```dlm\n{page.signature}\n```", page.summary, page.details]
    if page.example:
        parts.append(
            f"```dlm\n{page.example}\n```" + (f"\ngives {page.gives}" if page.gives else "")
        )
    return "\n\n".join(filter(None, parts))


def _keyword(reading: Reading, offset: int) -> tuple[Span, str] | None:
    tokens = tokenize(reading.source)
    for kind, text, start, end in zip(
        tokens.kinds, tokens.texts, tokens.starts, tokens.ends, strict=True
    ):
        if start <= offset <= end and kind == NAME:
            return (Span(start, end), page_text(text)) if text in KEYWORDS else None
    return None
