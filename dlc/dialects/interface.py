"""The interface of functions and plans: attributes `dlc.*` that tell callers names, bounds and promises.

`dlc.dims = ["B = 1..1024", "T = 1.."]` names the symbolic sizes and their bounds, `dlc.inputs` and
`dlc.results` the arguments and results as the user knows them, `dlc.defaults` default values (an empty
string where there is none), `dlc.updates` for each result the argument whose memory it takes over (an
empty string for memory of its own), `dlc.needs` the sizes that a call must not make negative (each with
the code, the message and the place of the error, and the size that it must equal instead, if any),
`dlc.hidden` how many of the last results the caller does not see: what is written over `inout`
parameters, then sizes that the call measures,
`dlc.doc` the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from dlc.dialects.measured import dims_of
from dlc.ir.attributes import Attribute, Dense
from dlc.ir.core import Block, Op
from dlc.ir.define import attribute, region
from dlc.ir.types import FunctionType, TensorType
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.manifest import Need
from dlc.runtime.artifact.manifest_checks import MAX_NAME
from dlc.runtime.artifact.size_expressions import BadExpression

Bounds = dict[str, tuple[int, int | None]]
"""Lowest and highest value of named sizes."""

HIDDEN = "dlc.hidden"
NEEDS = "dlc.needs"
_BOUND = re.compile(r"([A-Za-z_]\w*) = (\d{1,19})\.\.(\d{0,19})")


class Interface(Op):
    """What a function and the plan made of it have in common: what their callers see."""

    body: Block = region()
    sym_name: str = attribute()
    function_type: FunctionType = attribute()

    pure = False
    isolated = True

    @property
    def bounds(self) -> Bounds:
        """Lowest and highest value of each named dim."""
        found: Bounds = {}
        for text in _texts(self, "dlc.dims"):
            match = _BOUND.fullmatch(text)
            if match is None:
                raise self.fail(f"{text!r} is not a bound of a dim; write 'B = 1..64' or 'B = 1..'")
            found[match[1]] = (int(match[2]), int(match[3]) if match[3] else None)
        return found

    @property
    def input_names(self) -> tuple[str, ...]:
        """The user's names of the arguments."""
        count = len(self.function_type.inputs)
        return _texts(self, "dlc.inputs") or tuple(f"arg{index}" for index in range(count))

    @property
    def result_names(self) -> tuple[str, ...]:
        """The user's names of the results; empty where they have none."""
        return _texts(self, "dlc.results")

    @property
    def hidden_results(self) -> int:
        """How many of the last results the caller does not see: new values of arguments, then counts."""
        count = self.attributes.get(HIDDEN, 0)
        return count if isinstance(count, int) else 0

    @property
    def call_needs(self) -> tuple[Need, ...]:
        """The sizes that a call must not make negative, in order of text."""
        needs = self.attributes.get(NEEDS, ())
        assert isinstance(needs, tuple)
        return tuple(map(self._need, needs))

    def _need(self, row: Attribute) -> Need:
        match row:
            case (
                str(size),
                "D0804" | "D0807" as code,
                str(told),
                str(place),
                int(end),
                str(equals),
            ):
                return Need(size, code, told, place, end, equals)
            case _:
                raise self.fail(f"@{self.sym_name} has something else for {NEEDS}: {row!r}")

    @property
    def updates(self) -> dict[int, int]:
        """For each result that is written over an argument: the numbers of both."""
        inputs = self.attributes.get("dlc.inputs", ())
        updates = self.attributes.get("dlc.updates", ())
        assert isinstance(inputs, tuple)
        assert isinstance(updates, tuple)
        return {result: inputs.index(name) for result, name in enumerate(updates) if name}


def bounds_around(op: Op) -> Bounds:
    """The bounds of the named sizes where an operation stands; none outside of functions and plans."""
    around: Op | None = op
    while around is not None and not isinstance(around, Interface):
        around = None if around.parent is None else around.parent.parent
    return {} if around is None else around.bounds


def bounds_attribute(bounds: Mapping[str, tuple[int, int | None]]) -> tuple[Attribute, ...]:
    """The attribute `dlc.dims` for these bounds."""
    return tuple(
        f"{name} = {low}..{'' if high is None else high}" for name, (low, high) in bounds.items()
    )


def _texts(op: Op, key: str) -> tuple[str, ...]:
    values = op.attributes.get(key, ())
    assert isinstance(values, tuple)
    return tuple([value for value in values if isinstance(value, str)])


def check_interface(op: Interface, measured: Callable[[], Collection[str]]) -> None:
    """Raises ModelError where the attributes of a function or a plan do not fit its type and its body.

    `measured` gives the sizes that it counts itself; every other must have bounds.
    """
    name, type = op.sym_name, op.function_type
    if not _is_name(name):
        raise op.fail(f"the name {name[:40]!r} cannot be printed, or is too long")
    for key, value in op.attributes.items():
        kind = _KINDS.get(key)
        if kind is not None and not isinstance(value, kind):
            raise op.fail(f"@{name} has something else for {key}: {value!r}")
    _check_names(op, name, "dlc.inputs", len(type.inputs))
    _check_names(op, name, "dlc.results", len(type.results) - op.hidden_results)
    _check_defaults(op, name, type)
    _check_updates(op, name, type)
    _check_bounds(op, name, measured)


_KINDS: dict[str, type[object]] = {
    "dlc.dims": tuple,
    "dlc.inputs": tuple,
    "dlc.results": tuple,
    "dlc.defaults": tuple,
    "dlc.updates": tuple,
    HIDDEN: int,
    NEEDS: tuple,
    "dlc.doc": str,
}


def _check_names(op: Op, name: str, key: str, count: int) -> None:
    """As many names as there are arguments or results, none twice."""
    names = op.attributes.get(key, ())
    assert isinstance(names, tuple)
    wrong = len(names) != count or len(set(names)) < count
    if count < 0 or (names and (wrong or not all(map(_is_name, names)))):
        raise op.fail(f"@{name} has {key} = {list(names)}, which is not a name for each of {count}")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isprintable() and len(name) <= MAX_NAME


def _check_defaults(op: Op, name: str, type: FunctionType) -> None:
    defaults = op.attributes.get("dlc.defaults", ())
    assert isinstance(defaults, tuple)
    if len(defaults) > len(type.inputs):
        raise op.fail(f"@{name} has {len(defaults)} defaults for {len(type.inputs)} arguments")
    for default, of in zip(defaults, type.inputs, strict=False):
        if default != "" and not (isinstance(default, Dense) and _fits(default.type, of)):
            raise op.fail(f"@{name} has the default {default} for an argument {of}")


def _fits(default: TensorType, type: object) -> bool:
    """Whether a constant may be given for an argument; each may fit a symbolic size."""
    return (
        isinstance(type, TensorType)
        and default.dtype is type.dtype
        and default.rank == type.rank
        and all(
            one == other or not isinstance(other, int)
            for one, other in zip(default.shape, type.shape, strict=True)
        )
    )


def _check_updates(op: Op, name: str, type: FunctionType) -> None:
    """Each result that takes over an argument is of its type, and no two take the same."""
    updates, inputs = op.attributes.get("dlc.updates", ()), op.attributes.get("dlc.inputs", ())
    assert isinstance(updates, tuple)
    assert isinstance(inputs, tuple)
    taken = [each for each in updates if each != ""]
    if len(updates) > len(type.results) or len(set(taken)) < len(taken):
        raise op.fail(
            f"@{name} has dlc.updates = {list(updates)}, which is not one for each result"
        )
    for result, updated in zip(type.results, updates, strict=False):
        if updated != "" and (
            updated not in inputs or type.inputs[inputs.index(updated)] != result
        ):
            raise op.fail(f"@{name} cannot update {updated!r}: that is not an argument {result}")


def _check_need(op: Interface, text: str, bounds: Bounds) -> None:
    """Raises ModelError for a size of a need that is none, or is of dims without bounds."""
    try:
        size = size_expressions.parse(text)
    except BadExpression as error:
        raise op.fail(f"@{op.sym_name} needs what is not a size: {error}") from None
    if size.earlier:
        raise op.fail(f"@{op.sym_name} needs {text}, and there is no list that `$` is of")
    unknown = size.names - bounds.keys()
    if unknown:
        raise op.fail(f"@{op.sym_name} needs {text}, and dlc.dims does not bound {min(unknown)}")


def _check_bounds(op: Interface, name: str, measured: Callable[[], Collection[str]]) -> None:
    bounds = op.bounds
    for dim, (low, high) in bounds.items():
        if high is not None and high < low:
            raise op.fail(f"@{name} bounds {dim} by {low}..{high}")
    for need in op.call_needs:
        for size in need.sizes:
            _check_need(op, size, bounds)
    unknown = dims_of(op) - bounds.keys()
    unknown = unknown and unknown.difference(measured())
    if unknown:
        raise op.fail(
            f"@{name} mentions the size {min(unknown)}, which dlc.dims does not bound",
            help=f"write dlc.dims = [..., '{min(unknown)} = 1..64']",
        )
