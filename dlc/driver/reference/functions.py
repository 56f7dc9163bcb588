"""The pages of the functions that the compiler knows, and of the initial values of weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dlc.driver.reference.derivatives import derivative_through
from dlc.driver.reference.example_graph import operations_of, result_type
from dlc.driver.reference.page import Page, Part
from dlc.driver.source.weight_initializers import INITIALISERS as FORMULAS
from dlc.frontend.builtins.registry import BUILTINS, KINDS, SPECIALS
from dlc.frontend.elaboration.evaluator import Special
from dlc.frontend.elaboration.values import Builtin
from dlc.frontend.weights.initialisers import INITIALISERS


def pages() -> Iterator[Page]:
    """The pages of all functions, without what their examples become, then those of initialisers.

    Where a function and an initialiser have one name, the function's page speaks of both.
    """
    functions: dict[str, Builtin | Special] = {**BUILTINS, **SPECIALS}
    for name, function in functions.items():
        details = f"Behind a `param`: {_beginning(name)}" if name in INITIALISERS else ""
        yield Page(
            name,
            f"language: {function.group}",
            function.signature,
            function.doc,
            details,
            _parameters(function),
            function.example,
        )
    for name in INITIALISERS:
        if name not in functions:
            yield _initialiser_page(name)


def complete(page: Page) -> Page:
    """The page with what the example gives, the operations that it becomes, and the derivative."""
    function = BUILTINS.get(page.name) or SPECIALS.get(page.name)
    if function is None:
        return page
    kinds = operations_of(function)
    return replace(
        page,
        gives=_result(function),
        operations=tuple([kind.name for kind in kinds]),
        derivative=derivative_through(kinds) if kinds else _of_no_operation(function),
    )


def _parameters(function: Builtin | Special) -> tuple[Part, ...]:
    if isinstance(function, Special):
        return ()
    return tuple([Part(p.name, p.kind, KINDS[p.kind]) for p in function.parameters])


def _result(function: Builtin | Special) -> str:
    """The result of the example, with its type; empty without an example."""
    if not function.example:
        return ""
    type = result_type(function)
    return type if type == function.result else f"{function.result}: {type}"


def _of_no_operation(function: Builtin | Special) -> str:
    if not function.example:
        return "none: what is read from a file is a constant"
    return "that of what it chooses or gives on; a number or a size has none"


def _initialiser_page(name: str) -> Page:
    numbers = ", ".join(
        parameter if default is None else f"{parameter} = {default}"
        for parameter, default in INITIALISERS[name]
    )
    given = ", ".join("0.5" for _, default in INITIALISERS[name] if default is None)
    return Page(
        name,
        "language: initialisers",
        f"{name}({numbers})",
        (FORMULAS[name].__doc__ or "").partition("\n")[0],
        "How a `param` or a `state` begins, from the seed and the path of the weight.",
        example=f"param w: f32[3, 4] = {name}({given})",
        derivative="none: the numbers that a weight begins with are constants",
    )


def _beginning(name: str) -> str:
    """The meaning of a function's name as the initial value of a weight."""
    page = _initialiser_page(name)
    return f"`{page.signature}`: {page.summary[:1].lower()}{page.summary[1:]}"
