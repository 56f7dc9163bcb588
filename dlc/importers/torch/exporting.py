"""Modules of PyTorch by `torch.export`, and its programs as facts."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dlc.errors import DlcError, Unsupported, UsageError
from dlc.importers.identifiers import Identifiers
from dlc.importers.torch.decompositions import before_autograd
from dlc.importers.torch.detectors import any_number_of_boxes
from dlc.importers.torch.dynamic import Dynamic, dynamic_shapes
from dlc.importers.torch.facts import Graph, Input, Result, Weight
from dlc.importers.torch.importing import GRADIENTS, TorchModel, import_graph, importer_of
from dlc.importers.torch.own_derivatives import refusing_own_derivatives
from dlc.importers.torch.reading import Reader, array_of, bounds_of_range, outputs_of
from dlc.importers.torch.unknown_classes import unknown_classes
from dlc.importers.torch.whole_layers import whole_layers
from dlc.ir.dims import Bounds
from dlc.ir.dims import names as names_of

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

DECOMPOSED = frozenset({
    "aten.addcdiv", "aten.addcmul", "aten.lerp", "aten.dropout", "aten.reflection_pad1d",
    "aten.upsample_bicubic2d",
})  # fmt: skip
"""Operators that are imported in their parts all the same, since the parts say what is computed."""


def torch_needed() -> None:
    """Raise UsageError (D0921) where PyTorch is not installed."""
    if find_spec("torch") is None:
        raise UsageError(
            "torch is not installed, which modules of PyTorch and .pt2 files need",
            code="D0921",
            help="pip install -e '.[torch]' in a clone of dlc brings it, or pip install torch",
        )


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported program as facts, and what a call passes and gets.

    `inputs` are the numbers of the leaves of a call's arguments that are inputs of the graph, `outputs` for
    each leaf of what the module returns the number of the result, or the constant that it always is.
    """

    graph: Graph
    program: ExportedProgram
    """In operators that are imported."""
    source: ExportedProgram
    """In those that the module itself uses, which autograd differentiates."""
    sizes: Mapping[str, str]
    """The names of symbolic sizes, by PyTorch's."""
    inputs: tuple[int, ...]
    outputs: tuple[tuple[int | None, object], ...]
    states: Mapping[str, int]
    """Buffers and parameters that a call changes, by path: inputs of the graph behind the call's own, in
    this order, each with the number of the result that is its new value."""
    trained: tuple[str, ...] = ()
    """Parameters that are arguments of each call, by path: the last inputs of the graph."""
    wrt: frozenset[str] = frozenset()
    """The inputs of the graph that gradients are asked for, by name."""


def exported(
    module: torch.nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    dynamic: Dynamic,
    *,
    gradients: bool = False,
) -> ExportedProgram:
    """A module as a program of `torch.export`.

    Raises Unsupported (D0717) with what PyTorch says of it, and where gradients are asked for and the
    module brings a derivative of its own.
    """
    import torch

    chosen = dynamic_shapes(dynamic, module, args, kwargs)
    try:
        with (
            quiet(),
            whole_layers(),
            any_number_of_boxes(),
            refusing_own_derivatives() if gradients else nullcontext(),
        ):
            return torch.export.export(
                module, tuple(args), dict(kwargs), dynamic_shapes=chosen, strict=False
            )
    except DlcError:
        raise
    except Exception as error:  # what PyTorch raises here has no common class
        told = str(error).strip().splitlines()
        raise Unsupported(
            f"torch.export does not export {type(module).__name__}: {told[0] if told else error!r}",
            code="D0717",
            help="torch.export.export(module, args) shows what it says in full; "
            "torch.compile(module, backend='dlc') compiles parts of what cannot be exported",
        ) from error


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """The program in Core ATen and in what dlc has as one operator."""
    import torch

    table = torch.export.default_decompositions()
    for op in list(table.keys()):
        kind = str(op)
        if kind.rpartition(".")[0] not in DECOMPOSED and importer_of(kind) is not None:
            del table[op]
    table.update(before_autograd())
    with quiet(), _without_guards(program):
        return program.run_decompositions(table)


@contextmanager
def _without_guards(program: ExportedProgram) -> Generator[None]:
    """Within it, the program's module does not check sizes: dlc does at each call.

    Decomposing would trace the checks too, which with symbolic sizes takes longer than all the rest.
    """
    usual = program.module
    if "check_guards" in signature(usual).parameters:  # PyTorch 2.9
        vars(program)["module"] = partial(usual, check_guards=False)
    try:
        yield
    finally:
        vars(program).pop("module", None)


@contextmanager
def quiet() -> Generator[None]:
    """PyTorch's warnings about its own functions, which no user of dlc can fix, are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load_program(path: Path) -> ExportedProgram:
    """The program in a `.pt2` file. Raises UsageError (D0903) for a file that is none."""
    torch_needed()
    import torch

    try:
        with quiet(), unknown_classes():
            return torch.export.load(path)
    except Exception as error:  # whatever PyTorch's reader raises
        told = str(error).strip().splitlines()
        raise UsageError(
            f"{path.name} is not read as a program of torch.export: {told[0] if told else error!r}",
            code="D0903",
            help="torch.export.save(torch.export.export(module, args), path) writes one",
        ) from error


def read_pt2(path: Path) -> TorchModel:
    """The model in a `.pt2` file. Raises Unsupported with every operator that is not imported."""
    return import_graph(read_program(load_program(path), path.name).graph)


def read_program(
    program: ExportedProgram,
    file: str,
    names: Mapping[str, str] | None = None,
    wrt: Collection[int] | None = None,
) -> Exported:
    """An exported program as facts; `names` are those of its symbolic sizes, by PyTorch's.

    Where `wrt` is given, gradients are asked for: by the leaves of a call's arguments with these numbers,
    and by the parameters that require one, which become arguments.
    """
    source, program = program, decomposed(program)
    signature = program.graph_signature
    values = {
        node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"
    }
    called = _named_sizes(values, signature.user_inputs, names or {})
    ranges = {
        called.get(str(symbol), str(symbol)): bounds_of_range(found)
        for symbol, found in program.range_constraints.items()
    }
    reader = Reader(called, file, ranges)
    given = _user_inputs(signature.user_inputs, values, reader)
    results, outputs, changed = _results(program, reader)
    states = _held_inputs(program, changed, values, reader)
    required = () if wrt is None else _trained(program, changed)
    trained = _held_inputs(program, required, values, reader)
    inputs = (*given.values(), *states, *trained)
    passed = {each.label for each in (*states, *trained)}
    graph = Graph(
        file.rpartition(".")[0] or file,
        file,
        inputs,
        tuple([each for each in _weights(program, reader) if each.path not in passed]),
        reader.nodes(program.graph_module),
        results,
        _bounds(ranges, inputs),
    )
    differentiated = [each for number, each in given.items() if number in (wrt or ())]
    return Exported(
        graph,
        program,
        source,
        called,
        tuple(given),
        outputs,
        {each.label: changed[each.label] for each in states},
        tuple([each.label for each in trained]),
        frozenset([each.name for each in (*differentiated, *trained)]),
    )


def _user_inputs(
    names: Sequence[object], values: Mapping[str, object], reader: Reader
) -> dict[int, Input]:
    """The tensors among the arguments of a call, by the numbers of the arguments."""
    types = {
        number: (name, reader.type(values.get(name)))
        for number, name in enumerate(names)
        if isinstance(name, str)
    }
    return {
        number: Input(name, name, type, tuple(range(type.rank)))
        for number, (name, type) in types.items()
        if type is not None
    }


def _held_inputs(
    program: ExportedProgram,
    paths: Collection[str],
    values: Mapping[str, object],
    reader: Reader,
) -> list[Input]:
    """The parameters and buffers at these paths, as inputs of the graph."""
    signature = program.graph_signature
    held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    types = [
        (name, path, reader.type(values[name])) for name, path in held.items() if path in paths
    ]
    return [
        Input(name, path, type, tuple(range(type.rank)))
        for name, path, type in types
        if type is not None
    ]


def _trained(program: ExportedProgram, states: Collection[str]) -> tuple[str, ...]:
    """The parameters that require a gradient and that no call changes, by path."""
    held = program.state_dict
    return tuple(
        [
            path
            for path in program.graph_signature.inputs_to_parameters.values()
            if held[path].requires_grad and path not in states
        ]
    )


def _named_sizes(
    values: Mapping[str, object], inputs: Sequence[object], names: Mapping[str, str]
) -> dict[str, str]:
    """The names, and for sizes that have none the name of an input and the number of an axis.

    A name that is one of an input or of an entry point gets a number behind it.
    """
    called = Identifiers("size", taken=(*map(str, inputs), "run", GRADIENTS))
    found = {symbol: called.of(name) for symbol, name in names.items()}
    for name in inputs:
        shape: Sequence[object] = getattr(values.get(str(name)), "shape", ())
        for axis, size in enumerate(shape):
            if str(size).isidentifier():
                found.setdefault(str(size), f"{name}_{axis}")
    return found


def _weights(program: ExportedProgram, reader: Reader) -> tuple[Weight, ...]:
    """Parameters, buffers and constants, each by its path in the module."""
    signature = program.graph_signature
    values = {
        node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"
    }
    held = {**program.constants, **program.state_dict}
    found: list[Weight] = []
    tables = (
        (signature.inputs_to_parameters, True, False),
        (signature.inputs_to_buffers, False, False),
        (signature.inputs_to_lifted_tensor_constants, False, True),
    )
    for table, trained, constant in tables:
        for name, path in table.items():
            type = reader.held_type(values[name])
            tensor = held.get(path)
            if type is None or tensor is None:
                raise Unsupported(f"{path} is not a tensor", code="D0710")
            array = array_of(cast("torch.Tensor", tensor))
            found.append(Weight(name, path, type, array, trained, constant))
    return tuple(found)


def _results(
    program: ExportedProgram, reader: Reader
) -> tuple[tuple[Result, ...], tuple[tuple[int | None, object], ...], dict[str, int]]:
    """The results of the graph, and which of them each leaf of what the module returns is."""
    results: list[Result] = []
    outputs: list[tuple[int | None, object]] = []
    states: dict[str, int] = {}
    returned = outputs_of(program.graph_module)
    for spec, made in zip(program.graph_signature.output_specs, returned, strict=True):
        value = reader.argument(made)
        reader.type(getattr(made, "meta", {}).get("val"))  # says which dtypes are not imported
        kind = spec.kind.name
        if kind == "USER_INPUT_MUTATION":
            raise Unsupported(
                f"the module changes its input {spec.target} in place",
                code="D0710",
                help="return the new value instead",
            )
        if kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
            states[str(spec.target)] = len(results)
            results.append(Result(value, f"new_{spec.target}", updates=True))
        elif hasattr(made, "meta"):
            outputs.append((len(results), None))
            results.append(Result(value, spec.arg.name))
        else:
            outputs.append((None, getattr(spec.arg, "value", made)))
    return tuple(results), tuple(outputs), states


def _bounds(ranges: Bounds, inputs: Sequence[Input]) -> dict[str, tuple[int, int | None]]:
    """The lowest and highest values of the sizes that inputs have."""
    bounds: dict[str, tuple[int, int | None]] = {}
    for declared in inputs:
        for size in declared.type.shape:
            for name in sorted(names_of(size)):
                bounds[name] = ranges.get(name, (1, None))
    return bounds
