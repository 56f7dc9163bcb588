"""From a model text to graph IR: reads the files, finds the entry points, elaborates each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.dialects.limits import attach_limits
from dlc.dialects.text_mesh import attach_text_mesh
from dlc.errors import Diagnostic, DlcError, ModelError, UsageError
from dlc.frontend.constructs import Evaluator
from dlc.frontend.elaboration.calls import Function
from dlc.frontend.elaboration.problems import Poisoned, Problems, Stop
from dlc.frontend.elaboration.scope import Home, Scope
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.weight import Weight
from dlc.frontend.exports import entry_point
from dlc.frontend.modules.file_names import FileNames
from dlc.frontend.modules.instances import Core, Instance
from dlc.frontend.modules.roots import (
    Layer,
    instances_of,
    layers_of,
    root_definition,
    root_instance,
    weights_of,
)
from dlc.frontend.sources.files import File
from dlc.frontend.sources.imports import Loader
from dlc.frontend.sources.mesh import check_stages, declared_mesh
from dlc.frontend.sources.names import resolve
from dlc.frontend.sources.promises import (
    check_limits,
    check_places,
    checked_places,
    limits_in,
    unkept,
)
from dlc.frontend.sources.settings import blaming_settings
from dlc.frontend.training.block import Training, check_training
from dlc.frontend.training.blocks import (
    BlockName,
    block_names,
    blocks_of,
    check_blocks,
    chosen_block,
    module_of,
)
from dlc.frontend.training.step import Purpose, train_functions
from dlc.frontend.weights.symbols import source_of
from dlc.ir.dims import MAX_FACTOR, Dim, symbol
from dlc.ir.location import FileLocation
from dlc.ir.value_map import ValueMap
from dlc.runtime.system.gc_pause import without_collections
from dlc.runtime.system.stack import FEW_CALLS, is_deep, with_room
from dlc.text.model import ast
from dlc.text.source import Source, Span

__all__ = ["Elaborated", "elaborate", "examine"]


@dataclass(frozen=True, slots=True)
class Elaborated:
    """A model as graph IR, with what else its text says."""

    module: Module
    layers: tuple[Layer, ...]
    trainings: tuple[Training, ...]
    """The checked `train` blocks of the root module; if functions that train were made, their block."""
    blocks: tuple[BlockName, ...]
    """All `train` blocks of the text."""
    warnings: tuple[Diagnostic, ...]
    texts: Mapping[str, str]
    unkept: tuple[Diagnostic, ...]
    """Limits and devices that compiled code would not respect: the compiler refuses them."""

    @property
    def train(self) -> Training | None:
        """The first of the checked `train` blocks."""
        return self.trainings[0] if self.trainings else None


def elaborate(
    path: str | Path | Source,
    *,
    text: str | None = None,
    module: str | None = None,
    settings: Mapping[str, object] | None = None,
    values: ValueMap | None = None,
    purpose: Purpose = "call",
    places: Mapping[str, str] | None = None,
    block: str | None = None,
) -> Elaborated:
    """The graph IR of the model in a file; with `text`, of that text under the name `path`.

    `module` names the root module where several have entry points, `settings` gives values to its
    parameters. `values` learns which value of the IR each name of the text is. `purpose` says which
    functions are made: the entry points, or those that a `train` block of the root module makes, which is
    called `block` where it has a name. `places` puts submodules, by path, on devices, as
    `use ... on cpu:1` does.
    Raises ModelError with everything that is wrong, UsageError (D0539) for a block that is not there.
    """
    source, folder = _root(path, text)
    problems = Problems()
    loader = Loader(problems, folder)
    wanted = _Wanted(module, settings or {}, purpose, places or {}, block)
    checked = _checked(loader, source, wanted, values)
    if checked is None or problems.errors:
        diagnostics = [blaming_settings(problem, settings or {}) for problem in problems.in_order()]
        raise ModelError(diagnostics, sources=loader.texts)
    return Elaborated(
        _module_of(checked, loader),
        layers_of(checked.instances),
        checked.trainings,
        block_names(checked.file),
        tuple(problems.warnings),
        loader.texts,
        unkept(_own(loader)),
    )


def examine(
    loader: Loader, source: Source, evaluator: Callable[[Trace], Evaluator] = Evaluator
) -> list[Diagnostic]:
    """Every error and warning of a text, in order: what an editor shows. Nothing is raised for it.

    `loader` may have read the text already, and then goes on from there. `evaluator` may note what the
    values of expressions are.
    """
    try:
        _checked(loader, source, _Wanted(), None, evaluator)
    except DlcError as error:  # what ends the elaboration of the whole text
        loader.problems.errors.extend(error.diagnostics)
    return [*loader.problems.in_order(), *unkept(_own(loader))]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which functions of a text are made, and how: the parameters of `elaborate`."""

    module: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    purpose: Purpose = "call"
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    block: str | None = None


class _Checked(NamedTuple):
    """A text in which everything was looked at: what a module is made of."""

    at: Trace
    file: File
    entries: Sequence[func.Func]
    instances: Sequence[Core]
    weights: Sequence[Weight]
    """Those that the entry points have; each as weight files from elsewhere call it."""
    trainings: tuple[Training, ...]


def _checked(
    loader: Loader,
    source: Source,
    wanted: _Wanted,
    values: ValueMap | None,
    evaluator: Callable[[Trace], Evaluator] = Evaluator,
) -> _Checked | None:
    """What a text elaborates to, or None where the problems of the loader tell why not."""
    if is_deep(FEW_CALLS):
        return with_room(lambda: _checked_here(loader, source, wanted, values, evaluator))
    return _checked_here(loader, source, wanted, values, evaluator)


def _checked_here(
    loader: Loader,
    source: Source,
    wanted: _Wanted,
    values: ValueMap | None,
    evaluator: Callable[[Trace], Evaluator],
) -> _Checked | None:
    problems = loader.problems
    try:
        with without_collections():
            file = loader.files.get(source.name) or loader.load(source)
            at = Trace(file.source, problems, values)
            at.folder = loader.folder
            module = wanted.module or module_of(file, wanted.block)
            wanted = replace(wanted, module=module)
            if len(problems.errors) > loader.repaired:
                _look_further(evaluator(at), file, loader, wanted.module, wanted.settings)
                return None
            at.places.update(checked_places(wanted.places))
            return _elaborated(evaluator(at), file, loader, wanted)
    except Stop as stop:
        problems.errors.append(stop.last)
    return None


def _root(path: str | Path | Source, text: str | None) -> tuple[Source, Path | None]:
    """The text to read, called by its name in its folder, and the folder."""
    if isinstance(path, Source):
        return path, None
    whole = Path(path)
    if text is not None:
        return Source(whole.name, text), whole.parent if whole.exists() else None
    return Source.read(whole, whole.name), whole.parent


def _elaborated(
    ev: Evaluator,
    file: File,
    loader: Loader,
    wanted: _Wanted,
) -> _Checked:
    at = ev.at
    own = _own(loader)
    for other in own:
        resolve(other, at.problems)
    check_limits(ev, own)
    root, entries, instances = _reached(ev, file, loader, wanted.module, wanted.settings)
    weights = weights_of(instances)
    if not at.problems.errors:
        check_places(at.places, [core.path or "" for core in instances])
    trainings = _trainings(ev, file, root, loader, weights, wanted.purpose != "call", wanted.block)
    if wanted.purpose != "call":
        if not trainings and not at.problems.errors:
            raise _no_training(ev, file, root)
        entries, states = (
            train_functions(ev, trainings[0], weights, wanted.purpose) if trainings else ([], [])
        )
        weights = [*weights, *states]
    names = {} if root is None else _foreign_names(ev, file, root, instances)
    weights = [names.get(item.symbol, item) for item in [*weights, *at.stored.values()]]
    return _Checked(at, file, entries, instances, weights, trainings)


def _module_of(checked: _Checked, loader: Loader) -> Module:
    """The module of the IR of a text without errors: an editor, which only checks texts, needs none."""
    module = Module.empty(FileLocation(checked.file.source.name, 1, 1))
    attach_limits(module, limits_in(_own(loader)))
    attach_text_mesh(module, checked.at.mesh)
    for op in [*map(source_of, checked.weights), *checked.entries]:
        module.body.append(op)
    return module


def _own(loader: Loader) -> list[File]:
    """The files of the model, without those of the library."""
    return [file for file in loader.files.values() if not file.source.is_library]


def _reached(
    ev: Evaluator, file: File, loader: Loader, module: str | None, settings: Mapping[str, object]
) -> tuple[Instance | None, list[func.Func], list[Core]]:
    """The root module, the entry points, and all instances of modules."""
    at = ev.at
    for other in loader.files.values():
        other.ev = ev
    at.source = file.source
    _declare_dims(ev, file)
    at.mesh = declared_mesh(ev, file)
    check_stages(ev, _own(loader), at.mesh)
    for other in _own(loader):
        other.force()
    at.source = file.source
    root = _root_module(ev, file, module, settings)
    entries = _entry_points(ev, file, root)
    return root, entries, [] if root is None else list(instances_of(root))


def _look_further(
    ev: Evaluator, file: File, loader: Loader, module: str | None, settings: Mapping[str, object]
) -> None:
    """After errors of syntax: find wrong types, and wrong control flow, in what could be read.

    A missing name proves nothing, so names are not reported.
    """
    errors = ev.at.problems.errors
    before = len(errors)
    with suppress(DlcError, Stop):  # the text is refused anyway
        _reached(ev, file, loader, module, settings)
    errors[before:] = [d for d in errors[before:] if d.code[:3] in ("D03", "D04")]


def _foreign_names(
    ev: Evaluator, file: File, root: Instance, instances: Sequence[Core]
) -> dict[str, Weight]:
    """The weights that weight files from elsewhere call otherwise, as all `names` blocks say."""
    names = FileNames()
    for core in instances:
        for node in core.definition.declaration.members:
            if isinstance(node, ast.Names):
                ev.at.source = core.definition.home.source
                names.add(ev, Instance(core), node)
    ev.at.source = file.source
    for node in file.tree.items:
        if isinstance(node, ast.Names):
            names.add(ev, root, node)
    return names.weights


def _trainings(
    ev: Evaluator,
    file: File,
    root: Instance | None,
    loader: Loader,
    weights: Sequence[Weight],
    trains: bool,
    block: str | None,
) -> tuple[Training, ...]:
    """The checked `train` blocks of the root module: all of them, or the one that trains."""
    check_blocks(ev, file)
    module = None if root is None else root.core.definition.name
    nodes = blocks_of(file, module)
    if trains and not ev.at.problems.errors:
        nodes = [node for node in [chosen_block(file, module, block)] if node is not None]
    if root is None or not nodes:
        return ()
    library = loader.library("optimizers", ev)
    checked = [check_training(ev, node, root, library, weights) for node in nodes]
    return tuple([training for training in checked if training is not None])


def _no_training(ev: Evaluator, file: File, root: Instance | None) -> ModelError:
    name = "MODULE" if root is None else root.core.definition.name
    return ev.at.fail(
        "D0531",
        f"{file.source.name} has no train block for the module that it would train",
        Span(0, 0),
        help=f"write train {name} {{ data = ...  loss(...) = ...  optimizer = adam() }}",
    )


def _root_module(
    ev: Evaluator, file: File, module: str | None, settings: Mapping[str, object]
) -> Instance | None:
    try:
        definition = root_definition(ev, file, module)
        if definition is None:
            if settings:
                raise UsageError(f"{file.source.name} has no module whose parameters can be set")
            return None
        return root_instance(ev, file, definition, settings)
    except ModelError as error:
        ev.report(error)
    except Poisoned:
        pass
    return None


def _entry_points(ev: Evaluator, file: File, root: Instance | None) -> list[func.Func]:
    """The functions of the IR for all entry points that are right."""
    dims: dict[Home, dict[str, Dim]] = {
        home: {name: symbol(name) for name in file.dims() if home.is_dim(name)}
        for home in (file, root)
        if home is not None
    }
    functions = [entry_point(ev, f, dims[f.home]) for f in _entries(file, root)]
    return [entry for entry in functions if entry is not None]


def _entries(file: File, root: Instance | None) -> list[Function]:
    """The entry points of the file and of its root module, in the order of the text."""
    entries: list[Function] = []
    for item in file.tree.items:
        if isinstance(item, ast.Fn) and item.exported and file.is_sound(item):
            entries.append(Function(item, file))
        elif isinstance(item, ast.Module) and root is not None:
            definition = root.core.definition
            if definition.declaration is item:
                entries += [Function(node, root) for node in definition.exports]
    return entries


def _declare_dims(ev: Evaluator, file: File) -> None:
    """Note the bounds of the dims that the file declares."""
    scope = Scope(file)
    for name, entry in file.dims().items():
        ev.at.stand(entry.span)
        try:
            low = 1 if entry.low is None else ev.integer(entry.low, scope)
            high = None if entry.high is None else ev.integer(entry.high, scope)
            _check_bounds(ev, entry, low, high)
        except ModelError as error:
            if file.is_sound(entry):  # else it was said already what is wrong with a number in it
                ev.report(error)
            low, high = 1, None
        except Poisoned:
            low, high = 1, None
        ev.at.bounds[name] = (low, high)


def _check_bounds(ev: Evaluator, entry: ast.DimEntry, low: int, high: int | None) -> None:
    """Raises ModelError (D0335) for bounds that no size is in, and for such as none can have."""
    name = entry.name
    least, most = min(low, low if high is None else high), max(low, high or 0)
    if least < 0:
        message, help = (
            f"{name} cannot be {least}",
            f"a size is 0 or more: {name} = 0..{max(most, 0)}",
        )
    elif most > MAX_FACTOR:
        message = f"{name} cannot be {most}, which is beyond 2**62"
        help = f"without an upper bound it may be any: {name} = {min(low, 1)}.."
    elif high is not None and high < low:
        message, help = f"no size is in {low}..{high}", f"write {name} = {high}..{low}"
    else:
        return
    raise ev.at.fail("D0335", message, entry.span, help=help)
