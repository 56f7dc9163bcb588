"""Why a model became what it is: the decisions of the passes, beside the lines that they are about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects.text_mesh import read_text_mesh
from dlc.driver.compile.entries import find_entry, keep_entry
from dlc.driver.compile.rank_programs import compile_for_mesh
from dlc.driver.entry_choice import choose
from dlc.driver.memory.asked import compile_for_plan, models_of
from dlc.driver.run.outputs import JSON
from dlc.driver.run.request import CompileRequest
from dlc.errors import UsageError
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.decisions import SECTION, DecisionRecord, read_decisions
from dlc.runtime.system.counts import whole_number

_LEGEND = "+ what a pass did   - what it looked at and left as it was"
_MARKS = {"did": "+", "refused": "-"}


@dataclass(frozen=True, slots=True)
class Decided:
    """Decisions about a model, and the texts that their places point into."""

    model: str
    decisions: tuple[DecisionRecord, ...]
    texts: Mapping[str, str]


def decisions_of(
    request: CompileRequest, words: Sequence[str], entry: str | None = None
) -> Decided:
    """The decisions about a model or an entry point, or those in which all the words occur.

    A word is looked for in the pass, the decision, its subject and its place, and in the line of the text;
    it is not part of a longer word there. Of a model that trains, the functions of training are among it.
    Raises UsageError: D0904 for an entry point that does not exist, D0905 for one of several of an
    artifact, which keeps what was decided about all of them together.
    """
    texts: dict[str, str] = {}
    records: dict[DecisionRecord, None] = {}
    for artifact in _artifacts(request, entry):
        texts.update(artifact.texts())
        records.update(dict.fromkeys(_read(artifact)))
    forms = [_whole(word) for word in words]
    kept = (each for each in records if all(f.search(_searched(each, texts)) for f in forms))
    return Decided(request.path, tuple(kept), texts)


def decisions_text(decided: Decided) -> str:
    """The lines of the text, in their order, with what was decided about each below it."""
    if not decided.decisions:
        return "nothing was decided about that"
    by_line: dict[tuple[str, int], Counter[DecisionRecord]] = {}
    for each in decided.decisions:
        alike = by_line.setdefault(_line_of(each.place), Counter())
        alike[each._replace(place="", times=0)] += each.times
    order = {file: number for number, file in enumerate(decided.texts)}
    lines = sorted(by_line, key=lambda at: (order.get(at[0], len(order)), at))
    width = max(len(each.by) for each in decided.decisions)
    blocks = ["\n".join([_heading(at, decided.texts), *_rows(by_line[at], width)]) for at in lines]
    return "\n\n".join([_LEGEND, *blocks])


def decisions_data(decided: Decided) -> JSON:
    """The same for programs (`docs/json.md`)."""
    return {
        "model": decided.model,
        "decisions": [
            {
                "pass": each.by,
                "kind": each.kind,
                "what": each.what,
                "subject": each.subject,
                "place": None if each.place == "-" else each.place,
                "figures": list(each.figures),
                "times": each.times,
            }
            for each in decided.decisions
        ],
    }


def _artifacts(request: CompileRequest, entry: str | None) -> Iterator[Artifact]:
    """The artifacts that have the decisions: of that entry point alone, where one is named.

    The two functions of a training are always together, with those of a rank where the text has a mesh.
    """
    if entry is None and request.is_compiled:
        yield Artifact.read(request.path)
    elif entry is None:
        for model in models_of(request):
            mesh = read_text_mesh(model.module)
            if model.training is not None and mesh is not None:
                compile_for_mesh(model, model.training, mesh.axes)
            yield compile_for_plan(model, request)
    elif request.is_compiled:
        artifact = Artifact.read(request.path)
        names = [each.name for each in artifact.manifest.called]
        choose(names, entry)
        if len(names) > 1:
            raise UsageError(
                f"{request.path} keeps what was decided about all its entry points together",
                code="D0905",
                help="leave --entry out, or ask about the text of the model",
            )
        yield artifact
    else:
        for model in models_of(request, entry):
            find_entry(model.module, entry)
            if model.training is None:
                keep_entry(model.module, entry)
            yield compile_for_plan(model, request)


def _whole(word: str) -> re.Pattern[str]:
    """A word, in capitals or not, where it is not part of a longer one of letters and digits.

    >>> [bool(_whole("fuse").search(text)) for text in ("fuse x", "refused", "fuse_rows", "FUSED")]
    [True, False, True, False]
    """
    before = "(?<![^\\W_])" if word[:1].isalnum() else ""
    after = "(?![^\\W_])" if word[-1:].isalnum() else ""
    return re.compile(before + re.escape(word) + after, re.IGNORECASE)


def _read(artifact: Artifact) -> tuple[DecisionRecord, ...]:
    if SECTION not in artifact.sections:
        return ()
    try:
        return read_decisions(bytes(artifact.section(SECTION))).decisions
    except ValueError as error:
        raise artifact.error_context.error("D0610", str(error), section=SECTION) from None


def _searched(each: DecisionRecord, texts: Mapping[str, str]) -> str:
    line = _source_line(_line_of(each.place), texts)
    return f"{each.by} {each.kind} {each.what} {each.subject} {each.place} {line}"


def _line_of(place: str) -> tuple[str, int]:
    """The file and the line of a place; no file where there is none."""
    file, line, _ = place.rsplit(":", 2) if place.count(":") >= 2 else ("", "0", "")
    return file, whole_number(line) or 0


def _source_line(at: tuple[str, int], texts: Mapping[str, str]) -> str:
    file, number = at
    lines = texts.get(file, "").splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def _heading(at: tuple[str, int], texts: Mapping[str, str]) -> str:
    file, number = at
    if not file:
        return "without a place in the text"
    line = _source_line(at, texts)
    return f"{file}:{number}" + (f" | {line}" if line else "")


def _rows(decisions: Mapping[DecisionRecord, int], width: int) -> Iterator[str]:
    for each, times in decisions.items():
        notes = [*each.figures, *([f"{times} times"] if times > 1 else [])]
        note = f" ({', '.join(notes)})" if notes else ""
        yield f"  {_MARKS[each.kind]} {each.by:{width}}  {each.subject}: {each.what}{note}"
