"""The root module: which one it is, its parameters, and the table of its layers and weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlc.errors import UsageError
from dlc.errors.options import option
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.definitions import ModuleDefinition
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.values import Argument, Arguments
from dlc.frontend.elaboration.weight import Weight
from dlc.frontend.modules.instances import Core, Instance, adopt, cores_in
from dlc.frontend.modules.layers import instantiate
from dlc.frontend.sources.files import File
from dlc.frontend.sources.settings import setting_value
from dlc.text.model import ast

_SETTINGS = ("accumulate", "average", "batch", "epochs", "optimizer")
"""Entries of a `train` block that may be taken for parameters of the module."""

__all__ = ["Layer", "instances_of", "layers_of", "root_definition", "root_instance", "weights_of"]

MAX_INSTANCES = 20_000


@dataclass(frozen=True, slots=True)
class Layer:
    """One instance of a module, for the table of layers: its own trained numbers, stacks included."""

    path: str
    type: str
    parameters: int


def root_definition(ev: Evaluator, file: File, name: str | None) -> ModuleDefinition | None:
    """The module that is asked for; else the one with entry points; else the one that is trained."""
    # A name that is declared twice was reported, and is the first that it is declared as.
    modules = {n: item for n, item in file.declared.items() if isinstance(item, ast.Module)}
    if name is not None:
        if name not in modules:
            known = f"it has {', '.join(modules)}" if modules else "it has no modules"
            raise UsageError(
                f"{file.source.name} has no module {name}",
                help=did_you_mean(name, modules) or known,
            )
        return _definition(file, name)
    exporting = [known for known in modules if _definition(file, known).exports]
    if len(exporting) > 1:
        raise ev.at.fail(
            "D0207",
            f"{' and '.join(exporting)} both have entry points",
            modules[exporting[1]].name_span,
            help=f"say which one is meant: {option('module', exporting[0])}",
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
            known = f"it has {', '.join(parameters)}" if parameters else "it has none"
            if name in _SETTINGS:
                known += f"; {name} belongs in the train block of the text: {name} = ..."
            raise UsageError(
                f"{definition.name} has no parameter {name}",
                help=did_you_mean(name, parameters) or known,
            )
        value = setting_value(ev, file, definition.name, parameters[name], setting)
        named[name] = Argument(value, parameters[name].span)
    missing = [n for n, p in parameters.items() if p.default is None and n not in named]
    if missing:
        way_out = option("settings", dict.fromkeys(missing, ...))
        raise UsageError(
            f"the module {definition.name} needs {' and '.join(missing)}",
            help=f"give {'it' if len(missing) == 1 else 'them'}: {way_out}",
        )
    root = instantiate(ev, definition, Arguments((), named, file.source, span))
    adopt(root, "", None)
    return root


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


def layers_of(instances: Sequence[Core]) -> tuple[Layer, ...]:
    """The table of layers."""
    return tuple([Layer(core.path or "", core.written, core.parameters()) for core in instances])


def weights_of(instances: Sequence[Core]) -> list[Weight]:
    """All weights that have elements, in the order of the text."""
    every = [item for core in instances for item in core.weights.values()]
    return [item for item in every if item.type.size != 0]
