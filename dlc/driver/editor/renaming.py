"""Renaming: every place that names a declaration, in all texts that are open and those that they import."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from dlc.driver.editor.meanings import Place, Reading
from dlc.driver.editor.texts import path_of_uri
from dlc.errors import UsageError
from dlc.text.model.lexer import NAME, tokenize
from dlc.text.model.words import NEVER_NAMES
from dlc.text.source import Source, Span

__all__ = ["Edits", "renamable", "rename", "uses_of"]

Edits = Mapping[str, tuple[Source, list[tuple[Span, str]]]]
"""For each address its text, and the spans to replace in it."""


def renamable(reading: Reading, offset: int) -> tuple[Place, Span]:
    """The declaration that a place names, and the place.

    Raises UsageError (D0960) where nothing is named that could have another name.
    """
    reference = reading.at(offset)
    if reference is None or not isinstance(reference.meaning, Place):
        raise UsageError("there is no name here that this text declares", code="D0960")
    place = reference.meaning
    if place.span == Span(0, 0):
        raise UsageError("a file is renamed where it lies", code="D0960")
    if place.file.source.name.startswith("<"):
        raise UsageError(f"{place.name} is a name of the library", code="D0960")
    return place, reference.span


def uses_of(
    readings: Sequence[Reading], owner: Reading, place: Place
) -> dict[str, tuple[Source, list[Span]]]:
    """Every place that names a declaration, by address, in these texts and in what they import."""
    home = owner.address_of(place.file.source.name)
    found: dict[str, tuple[Source, list[Span]]] = {}
    for reading in readings:
        for name, file in reading.loader.files.items():
            if reading.address_of(name) != home:
                continue
            same = Place(file, place.node, place.span)
            for user, span in reading.uses(same):
                spans = found.setdefault(reading.address_of(user.source.name), (user.source, []))[1]
                if span not in spans:
                    spans.append(span)
    return found


def rename(readings: Sequence[Reading], owner: Reading, offset: int, name: str) -> Edits:
    """The edits that give what stands at a place another name.

    Raises UsageError (D0960) for what is not a name, and where the new name would mean something else at a
    place or the old one would be left over: the text with the edits is read again and compared.
    """
    place, _ = renamable(owner, offset)
    if not _is_name(name):
        raise UsageError(f"`{name}` cannot be a name", code="D0960")
    edits: dict[str, tuple[Source, list[tuple[Span, str]]]] = {}
    for address, (source, spans) in uses_of(readings, owner, place).items():
        edits[address] = (source, [(span, name) for span in sorted(spans)])
    _check(readings, edits, place.name, name)
    return edits


def _is_name(text: str) -> bool:
    tokens = tokenize(Source("", text))
    whole = len(tokens.kinds) == 2 and tokens.kinds[0] == NAME and tokens.texts[0] == text
    return whole and not tokens.problems and text not in NEVER_NAMES


def _check(readings: Sequence[Reading], edits: Edits, old: str, new: str) -> None:
    """Refuse a renaming after which a name has another meaning than before."""
    unsaved = dict(readings[0].unsaved) if readings else {}
    changed = {address: applied(source.text, spans) for address, (source, spans) in edits.items()}
    for address, text in changed.items():
        path = path_of_uri(address)
        if path is not None:
            unsaved[path.resolve()] = text
    for reading in readings:
        if not edits.keys() & {reading.address_of(name) for name in reading.loader.files}:
            continue
        text = changed.get(reading.address_of(reading.source.name), reading.source.text)
        after = Reading(Source(reading.source.name, text), reading.path, reading.uri, unsaved)
        if _structure(after) != _structure(reading):
            raise UsageError(
                f"{old} cannot become {new}: a name would mean something else then",
                code="D0960",
                help="choose a name that nothing else has there",
            )


def _structure(reading: Reading) -> list[int]:
    """Which places of a text name the same, whatever the names are: a number for each place."""
    starts: dict[Source, list[int]] = {}
    numbers: dict[object, int] = {}
    structure: list[int] = []
    for reference in reading.references:
        meaning = reference.meaning
        key: object = meaning
        if isinstance(meaning, Place):
            source = meaning.file.source
            if source not in starts:
                starts[source] = tokenize(source).starts
            # The number of a token is the same after any renaming; its offset is not.
            key = (source.name, bisect_left(starts[source], meaning.span.start))
        structure.append(numbers.setdefault(key, len(numbers)))
    structure.append(-len(reading.loader.problems.errors))
    return structure


def applied(text: str, edits: Sequence[tuple[Span, str]]) -> str:
    """The text with spans replaced."""
    for span, new in sorted(edits, reverse=True):
        text = text[: span.start] + new + text[span.end :]
    return text
