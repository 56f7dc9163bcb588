"""`dlc ops` and `dlc doc`: everything that has a name, from where it is defined.

`functions` what the compiler knows · `keywords`, `signs` the words, operators and dtypes of the language ·
`library` layers and optimizers · `operations` of the IR, and passes · `page` what each of them fills in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Final

from dlc.driver.reference import functions, keywords, library, operations, signs
from dlc.driver.reference.page import Entry, Page
from dlc.driver.source.extensions import load_extensions
from dlc.errors import UsageError
from dlc.errors.suggest import suggestions

__all__ = ["Entry", "Page", "documentation", "list_entries"]

_COMPLETE: Final[Mapping[str, Callable[[Page], Page]]] = {
    "language": functions.complete,
    "operations": operations.complete,
}
"""The functions that add the slow parts of a page, by the first word of its group."""

_ALIASES: Final = {**keywords.ALIASES, **signs.ALIASES}


def list_entries(word: str | None = None) -> list[Entry]:
    """Everything whose name, group or description has the word in it; all without a word."""
    entries = sorted(
        (page.entry for page in _pages().values()), key=lambda entry: (entry.group, entry.name)
    )
    if word is None:
        return entries
    pattern = word.casefold()
    return [
        entry
        for entry in entries
        if pattern in f"{entry.name} {entry.group} {entry.summary}".casefold()
    ]


def documentation(name: str) -> Page:
    """The page of a function, a layer, an operation, or any other name that `dlc ops` lists.

    Names of the library may be given without their group. Raises UsageError (D0914) for other names.
    """
    if not name:
        raise UsageError("no name is given", code="D0914", help="`dlc ops` lists all names")
    pages = _pages()
    page = pages.get(name) or pages.get(_ALIASES.get(name, "")) or _by_last_part(pages, name)
    if page is None:
        raise UsageError(
            f"nothing is called {name}", code="D0914", help=_way_out(name, [*_ALIASES, *pages])
        )
    complete = _COMPLETE.get(page.group.partition(":")[0])
    return page if complete is None else complete(page)


@cache
def _pages() -> Mapping[str, Page]:
    """Every page by its name; where two have one name, the first holds."""
    load_extensions()
    pages: dict[str, Page] = {}
    for source in (functions, keywords, signs, library, operations):
        for page in source.pages():
            pages.setdefault(page.name, page)
    for page in _group_pages(list(pages.values())):
        pages.setdefault(page.name, page)
    return pages


def _group_pages(pages: list[Page]) -> Iterator[Page]:
    """A page for each part of the library and each dialect, with what belongs to it."""
    groups: dict[str, list[Entry]] = {}
    for page in pages:
        kind, _, name = page.group.partition(": ")
        if kind in ("library", "operations"):
            groups.setdefault(name, []).append(page.entry)
    for name, members in groups.items():
        is_library = name in library.TEXTS
        summary = library.group_summary(name) if is_library else operations.dialect_summary(name)
        what = "library" if is_library else "dialects"
        yield Page(name, what, name, summary, members=tuple(members))


def _by_last_part(pages: Mapping[str, Page], name: str) -> Page | None:
    """Resolve a name: `Linear` of a text is `nn.Linear` here; operations without dialect come last."""
    candidates = [page for page in pages.values() if page.name.partition(".")[2] == name]
    return next(iter(sorted(candidates, key=lambda page: page.group)), None)


def _way_out(name: str, names: list[str]) -> str:
    """The names that look most alike, those of the same dialect or library first; else where to look."""
    owner, dot, word = name.rpartition(".")
    same = [one for one in names if dot and one.startswith(f"{owner}.")]
    near = dict.fromkeys([*_alike(word, same), *_alike(word, names)])
    if not near:
        return "dlc ops lists everything"
    return f"did you mean {' or '.join(list(near)[:3])}?"


def _alike(word: str, names: list[str]) -> list[str]:
    """Names whose last part is like the word, or begins with it; of equal last parts the first."""
    folded = word.casefold()
    by_part = {one.rpartition(".")[2].casefold() or one: one for one in reversed(names)}
    begun = [part for part in by_part if len(folded) > 2 and part.startswith(folded)]
    close = suggestions(folded, by_part)
    return [by_part[part] for part in (*close, *begun)]
