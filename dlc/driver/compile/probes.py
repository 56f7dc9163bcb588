"""Probes in a compiled model: waves that hand values over as soon as they are in memory.

They are placed in a module at loop level, so nothing that was decided above changes: kernels, order and
memory are those of the artifact without probes. A value has a probe if one wave of the plan writes it.
One that was fused away, or that is a part of the memory of others, has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dlc.codegen.program.step_table import compile_program
from dlc.dialects import mem
from dlc.dialects.builtin import Module
from dlc.driver.compile.build_artifact import program_parts, weight_places
from dlc.ir.attributes import Symbol
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import names
from dlc.ir.types import ViewType
from dlc.ir.value_map import Origin, ValueMap
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.calling.probes import PROBE, Probed


@dataclass(frozen=True, slots=True)
class Probe:
    """A value in memory, and the values of the user's text that it holds."""

    probed: Probed
    origins: tuple[Origin, ...]


def place_probes(program: mem.Program, values: ValueMap) -> list[Probe]:
    """Place a probe behind each wave of a program, in place, for every value that it alone writes.

    The numbers of the probes are their positions in the list that is returned.
    """
    held: dict[Value, list[Origin]] = {}
    for origin in values:
        if origin.value is not None and _is_probed(origin.value, program):
            held.setdefault(origin.value, []).append(origin)
    writers: dict[Value, list[mem.Wave]] = {}
    waves = list(_waves(program.body))
    for wave in waves:
        for view in dict.fromkeys(_written(wave)):
            writers.setdefault(view, []).append(wave)
    behind: dict[mem.Wave, list[Value]] = {}
    for view in held:
        if len(writers.get(view, ())) == 1:
            behind.setdefault(writers[view][0], []).append(view)
    probes: list[Probe] = []
    for wave in waves:
        views = behind.get(wave, ())
        numbered = dict(enumerate(views, len(probes)))
        for view in views:
            type = _view_type(view)
            probes.append(Probe(Probed(type.dtype.name, len(type.shape)), tuple(held[view])))
        if numbered:
            _place(wave, numbered)
    _renumber(program, waves, set(behind))
    return probes


def _is_probed(value: Value, program: mem.Program) -> bool:
    """Whether a value is a view of the program whose sizes are known before the call.

    What an input was before its update has no probe: a wave that writes it makes the new value there.
    """
    op = value.op
    if not isinstance(op, mem.View) or op.parent is not program.body or op.before:
        return False
    sizes = (*op.type.shape, *op.type.strides)
    return not any(names(size) & set(program.measured) for size in sizes)


def _view_type(view: Value) -> ViewType:
    assert isinstance(view.type, ViewType)
    return view.type


def _waves(block: Block) -> Iterator[mem.Wave]:
    """The waves of a block in the order of the step table."""
    for op in block:
        if isinstance(op, mem.Wave):
            yield op
        else:
            for region in op.regions:
                yield from _waves(region)


def _written(wave: mem.Wave) -> Iterator[Value]:
    for call in wave.body:
        if isinstance(call, mem.Call):
            yield from call.views[len(call.views) - call.writes :]


def _place(wave: mem.Wave, views: Mapping[int, Value]) -> None:
    """A wave behind another one that calls a probe for each of these views."""
    body = Block()
    for number, view in views.items():
        type = _view_type(view)
        sizes = (number, *type.shape, *type.strides)
        call = mem.Call((view,), Symbol(PROBE), sizes, tiles=1, cost=1, writes=0)
        Builder(body, wave.location).place(call)
    Builder(body, wave.location).place(mem.End())
    assert wave.parent is not None
    Builder(wave.parent, wave.location, wave.next).place(mem.Wave(body, serial=True))


def _renumber(program: mem.Program, waves: list[mem.Wave], probed: set[mem.Wave]) -> None:
    """Count the waves anew in the lifetimes of roots: until a probe behind the last wave, too."""
    firsts: list[int] = []
    lasts: list[int] = []
    number = 0
    for wave in waves:
        firsts.append(number)
        number += 1 + (wave in probed)
        lasts.append(number - 1)
    for op in program.body:
        if isinstance(op, mem.Root) and waves:
            op.attributes["first"], op.attributes["last"] = firsts[op.first], lasts[op.last]
    program.attributes["waves"] = max(1, number)


# The artifact.


def with_probes(artifact: Artifact, module: Module, entry: str) -> Artifact:
    """The same artifact, with the same machine code, with the program of an entry point of `module`.

    The module is the one that the artifact was made from, with probes in that program.
    """
    (target,) = artifact.manifest.targets
    assert target.cpu is not None
    kernels = {symbol.name: symbol.offset for symbol in target.cpu.code.symbols}
    program = module.symbol(entry)
    assert isinstance(program, mem.Program)
    numbers = {**kernels, PROBE: min(kernels.values(), default=0)}
    places, _ = weight_places(module, artifact.manifest.weights)
    compiled = compile_program(program, numbers, places)
    record, parts = program_parts(target.name, entry, compiled)
    changed = target._replace(programs={**target.programs, entry: record})
    facts = artifact.manifest._replace(targets=(changed,))
    return Artifact.of(facts, {**artifact.sections, **parts}, artifact.name)
