"""The root module: which one it is, its parameters, and the table of its layers and weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.errors import Diagnostic, ModelError, UsageError
from dlc.frontend.definitions import ModuleDefinition
from dlc.frontend.evaluator import Evaluator
from dlc.frontend.files import File
from dlc.frontend.instances import Core, Instance, adopt, cores_in
from dlc.frontend.layers import instantiate
from dlc.frontend.scope import Scope
from dlc.frontend.values import Argument, Arguments, Datum, Items
from dlc.frontend.weights import Weight
from dlc.text import ast
from dlc.text.parser import parse
from dlc.text.source import Source
from dlc.text.suggest import suggest

__all__ = [
    "Layer", "blaming_settings", "instances_of", "layers_of", "root_definition", "root_instance",
    "weights_of",
]  # fmt: skip

MAX_INSTANCES = 20_000


@dataclass(frozen=True, slots=True)
class Layer:
    """One instance of a module, for the table of layers: its own trained numbers, stacks included."""

    path: str
    type: str
    parameters: int


def root_definition(ev: Evaluator, file: File, name: str | None) -> ModuleDefinition | None:
    """The module that is asked for; else the one with entry points; else the one that is trained."""
    modules = {item.name: item for item in file.tree.items if isinstance(item, ast.Module)}
    if name is not None:
        if name not in modules:
            near = suggest(name, modules)
            known = f"it has {', '.join(modules)}" if modules else "it has no modules"
            raise UsageError(
                f"{file.source.name} has no module {name}",
                help=f"did you mean {near}?" if near else known,
            )
        return _definition(file, name)
    exporting = [known for known in modules if _definition(file, known).exports]
    if len(exporting) > 1:
        raise ev.at.fail(
            "D0207",
            f"{' and '.join(exporting)} both have entry points",
            modules[exporting[1]].name_span,
            help=f"say which one is meant: --module {exporting[0]}",
        )
    if exporting:
        return _definition(file, exporting[0])
    trained = [item.name for item in file.tree.items if isinstance(item, ast.Train)]
    return _definition(file, trained[0]) if trained and trained[0] in modules else None


def _definition(file: File, name: str) -> ModuleDefinition:
    found = file.find(name)
    assert isinstance(found, ModuleDefinition)
    return found


def root_instance(
    ev: Evaluator, file: File, definition: ModuleDefinition, settings: Mapping[str, object]
) -> Instance:
    """The instance that the entry points belong to, its parameters from `settings` or their defaults."""
    ev.at.source = file.source
    span = definition.declaration.name_span
    parameters = {p.name: p for p in definition.declaration.parameters}
    named: dict[str, Argument] = {}
    for name, setting in settings.items():
        if name not in parameters:
            near = suggest(name, parameters)
            known = f"it has {', '.join(parameters)}" if parameters else "it has none"
            raise UsageError(
                f"{definition.name} has no parameter {name}",
                help=f"did you mean {near}?" if near else known,
            )
        value = _setting(ev, file, name, setting)
        _check_kind(definition.name, parameters[name], value, ev, file)
        named[name] = Argument(value, parameters[name].span)
    missing = [n for n, p in parameters.items() if p.default is None and n not in named]
    if missing:
        texts = " ".join(f"--set {name}=..." for name in missing)
        raise UsageError(
            f"the module {definition.name} needs {' and '.join(missing)}",
            help=f"give {'it' if len(missing) == 1 else 'them'}: {texts}",
        )
    root = instantiate(ev, definition, Arguments((), named, file.source, span))
    adopt(root, "", None)
    return root


def _setting(ev: Evaluator, file: File, name: str, setting: object) -> Datum:
    """A setting as a value: a number, or a text that is read as an expression."""
    if isinstance(setting, bool | int | float | Items):
        return setting
    assert isinstance(setting, str)
    source = Source(f"--set {name}", f"dlc 1\nconst value = {setting}")
    parsed = parse(source)
    items = parsed.file.items
    if parsed.errors or len(items) != 1 or not isinstance(items[0], ast.Const):
        raise UsageError(f"{name} is set to {setting}, which is no value")
    try:
        with ev.elsewhere(source):
            return ev.eval(items[0].value, Scope(file))
    except ModelError as error:
        message = error.diagnostics[0].message
        raise UsageError(f"{name} is set to {setting}: {message}") from None


def blaming_settings(diagnostic: Diagnostic, settings: Mapping[str, object]) -> Diagnostic:
    """The error, with a word about the setting that has the number which it complains of."""
    for name, value in settings.items():
        number = rf"(?<![\w.]){re.escape(str(value))}(?![\w.])"
        if diagnostic.help is None and re.search(number, diagnostic.message):
            return replace(diagnostic, help=f"{name} is set to {value}: give another value")
    return diagnostic


def _check_kind(
    module: str, parameter: ast.Parameter, value: Datum, ev: Evaluator, file: File
) -> None:
    """Refuse a setting of another kind than the default has."""
    if parameter.default is None:
        return
    default = ev.eval(parameter.default, Scope(file))
    if type(value) is type(default) or (isinstance(default, float) and type(value) is int):
        return
    plain = (bool, int, float, str)
    if isinstance(default, plain) or isinstance(value, plain):
        raise UsageError(
            f"{parameter.name} of {module} is {_kind(default)}, it cannot be set to {_kind(value)}"
        )


def _kind(value: Datum) -> str:
    kinds: Sequence[tuple[type, str]] = (
        (bool, "true or false"),
        (int, "a whole number"),
        (float, "a number"),
        (str, "a text"),
    )
    return next((text for kind, text in kinds if isinstance(value, kind)), "a function or a dtype")


# Tables -------------------------------------------------------------------------------------------


def instances_of(root: Instance) -> Iterator[Core]:
    """All instances, each once, outer before inner, in the order of the text; all members made."""
    seen: set[int] = set()
    waiting = [root.core]
    while waiting:
        core = waiting.pop()
        if id(core) in seen:
            continue
        seen.add(id(core))
        if len(seen) > MAX_INSTANCES:
            raise core.ev.at.stop(
                "D0216",
                f"the model has more than {MAX_INSTANCES:,} instances of modules",
                help="stack equal layers: L * Block(...)",
            )
        core.force()
        yield core
        inner = [
            child
            for node in core.definition.members.values()
            if isinstance(node, ast.Use)
            for child in cores_in(core.values.get(node.name))
        ]
        waiting += reversed(inner)


def layers_of(root: Instance) -> tuple[Layer, ...]:
    """The table of layers."""
    return tuple(
        [Layer(core.path or "", core.written, core.parameters()) for core in instances_of(root)]
    )


def weights_of(root: Instance) -> list[Weight]:
    """All weights that have elements, in the order of the text."""
    every = [item for core in instances_of(root) for item in core.weights.values()]
    return [item for item in every if item.type.size != 0]
