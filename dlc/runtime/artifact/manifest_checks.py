"""Checks that the tables of a manifest are consistent: weights, entry points, targets.

The container format and the hashes are checked before (`dlc.runtime.artifact.container`). Whether a target
runs on this machine, and its programs and memory plans, are checked when it is chosen
(`dlc.runtime.calling.sized_program`).
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType

from dlc.runtime.abi import (
    COLLECTIVES_ON_GPU,
    COMMUNICATOR,
    COORDINATE,
    MAX_ARGS,
    MAX_BLOCK,
    MAX_THREADS,
    MPI_OPERATIONS,
    WARP,
)
from dlc.runtime.arrays.dtypes import DTYPES, MAX_RANK, byte_count
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.container import padded
from dlc.runtime.artifact.manifest import (
    DATA,
    EVALUATE,
    NUMBER,
    OF_RANK,
    RATE,
    SEED,
    STEP,
    TOTAL,
    Default,
    Entry,
    GpuCode,
    Image,
    Input,
    Manifest,
    Output,
    Program,
    Target,
    Weight,
    is_portion,
)
from dlc.runtime.artifact.refusal import ErrorContext
from dlc.runtime.artifact.stage_checks import check_stages
from dlc.runtime.system.counts import counted

MAX_NAME = 255
MAX_TENSORS = 16_384
"""The most inputs, and the most outputs, of one entry point."""
MAX_ENTRY_POINTS = 4096
MAX_RANKS = 1 << 20
"""The most ranks along an axis of a mesh."""
MAX_SIZES = 4 << 20
"""The most characters of all size expressions: a training step of ResNet-50 has a million."""
MAX_SECTION_BYTES = {"certificate": 8 << 20, "program": 32 << 20}
"""The most bytes of all sections of a kind that is parsed item by item: 50 times that training step."""
_MOST_SHARED = 1 << 20
"""Bytes of shared memory that a launch asks for; no GPU has as many."""
_SHA256 = re.compile(r"[0-9a-f]{64}")

Refuse = Callable[[str], Exception]
"""Makes the error to raise, from its message."""


def check_tables(
    manifest: Manifest, sections: Mapping[str, memoryview], context: ErrorContext
) -> None:
    """Raises ArtifactError for the first table that is inconsistent."""

    def refuse(message: str) -> Exception:
        return context.error("D0611", message, section="manifest")

    _check_amounts(manifest, sections, refuse)
    _check_weights(manifest, sections, context)

    _check_names("entry points", (entry.name for entry in manifest.entries), refuse)
    for entry in (*manifest.entries, *[each.interface for each in manifest.staged]):
        _check_entry(entry, refuse)
    _check_training(manifest, refuse)
    promise = manifest.promise
    if promise is not None and not (promise.memory >= 0 and 1 <= promise.threads <= MAX_THREADS):
        raise refuse("its promise has a number out of range")
    _check_mesh(manifest, refuse)
    check_stages(manifest, refuse)
    _check_names("targets", (target.name for target in manifest.targets), refuse)
    for target in manifest.targets:
        _check_target(target, manifest.entries, sections, refuse)


def _check_mesh(manifest: Manifest, refuse: Refuse) -> None:
    """The axes of a mesh have names and sizes, and code communicates along these axes only."""
    _check_names("axes of the mesh", (axis.name for axis in manifest.mesh), refuse)
    if not all(1 <= axis.ranks <= MAX_RANKS for axis in manifest.mesh):
        raise refuse("its mesh has a number of ranks out of range")
    axes = {axis.name for axis in manifest.mesh}
    for target in manifest.targets:
        for name in () if target.cpu is None else target.cpu.code.imports:
            for prefix in (COMMUNICATOR, COORDINATE):
                if name.startswith(prefix) and name.removeprefix(prefix) not in axes:
                    raise refuse(f"its code imports {name[:80]}, and the mesh has no such axis")


def _check_amounts(manifest: Manifest, sections: Mapping[str, memoryview], refuse: Refuse) -> None:
    """Limit the amounts, so that checking a file takes no longer than its length justifies."""
    if len(manifest.entries) > MAX_ENTRY_POINTS:
        raise refuse(
            f"it has {len(manifest.entries)} entry points; at most {MAX_ENTRY_POINTS} are read"
        )
    for kind, most in MAX_SECTION_BYTES.items():
        size = sum(len(data) for name, data in sections.items() if name.startswith(f"{kind}/"))
        if size > most:
            raise refuse(f"its sections of kind {kind} have {size} bytes; at most {most} are read")
    characters = sum(len(size) for size in _sizes(manifest) if not size.isdecimal())
    if characters > MAX_SIZES:
        raise refuse(f"its sizes have {characters} characters; at most {MAX_SIZES} are read")


def _sizes(manifest: Manifest) -> Iterator[str]:
    """All size expressions in a manifest."""
    for entry in manifest.entries:
        for tensor in (*entry.inputs, *entry.outputs):
            yield from tensor.shape
        yield from [dim.measured.limit for dim in entry.dims if dim.measured is not None]
        yield from [size for need in entry.needs for size in need.sizes]
    for program in [program for target in manifest.targets for program in _programs(target)]:
        yield from (*program.sizes, program.arena, program.scratch, program.gpu_scratch)


def _programs(target: Target) -> list[Program]:
    """The programs of a target: those of the entry points, and the one that prepares the weights."""
    return [*target.programs.values(), *([target.prepare.program] if target.prepare else [])]


def _check_training(manifest: Manifest, refuse: Refuse) -> None:
    """A training artifact has `train_step` and `evaluate`, of a batch, weights, the step and a seed."""
    facts = manifest.training
    if facts is None:
        return
    entries = {entry.name: entry for entry in manifest.interfaces}
    divides = any(axis.name == DATA for axis in manifest.mesh)
    of_rank = {STEP + OF_RANK, EVALUATE + OF_RANK} if divides else set[str]()
    if entries.keys() != {STEP, EVALUATE, *of_rank}:
        raise refuse("what trains has the entry points train_step and evaluate, and no others")
    if (
        min(facts.batch, facts.epochs, facts.every, facts.accumulate) < 1
        or not 0 <= facts.seed < 1 << 64
    ):
        raise refuse("its training has a number out of range")
    weights = {
        weight.name: (weight.dtype, tuple(map(str, _shape_on_rank(weight, manifest, refuse))))
        for weight in manifest.weights
    }
    if not facts.splits.keys() <= weights.keys():
        raise refuse("its training splits what is not a weight")
    own = {*facts.inputs, NUMBER, TOTAL, SEED, RATE}
    for entry in entries.values():
        for item in entry.inputs:
            if item.name not in own and weights.get(item.name) != (item.dtype, item.shape):
                raise refuse(f"its training needs {item.name[:40]!r}, which is not such a weight")
        if any(output.updates and output.updates not in weights for output in entry.outputs):
            raise refuse("its training changes what is not a weight")


def _shape_on_rank(weight: Weight, manifest: Manifest, refuse: Refuse) -> tuple[int, ...]:
    """The shape of what a rank has of a weight."""
    facts, whole = manifest.training, MappingProxyType[str, int]({})
    splits = whole if facts is None else facts.splits.get(weight.name, whole)
    sizes = {axis.name: axis.ranks for axis in manifest.mesh}
    shape = list(weight.shape)
    for name, axis in splits.items():
        ranks = sizes.get(name, 0)
        if not 0 <= axis < len(shape) or ranks < 1 or shape[axis] % ranks:
            raise refuse(f"its training splits {weight.name[:40]!r} as it cannot be split")
        shape[axis] //= ranks
    return tuple(shape)


def _check_weights(
    manifest: Manifest, sections: Mapping[str, memoryview], context: ErrorContext
) -> None:
    """Weights follow each other at multiples of 64, each exactly as long as its type says."""

    def refuse(message: str) -> Exception:
        return context.error("D0607", message, section="weights", inside=end)

    end = 0
    _check_names("weights", (weight.name for weight in manifest.weights), refuse)
    for weight in manifest.weights:
        dtype = DTYPES.get(weight.dtype)
        if dtype is None:
            raise refuse(f"{weight.name} has the unknown dtype {weight.dtype[:40]!r}")
        if weight.bytes != byte_count(weight.shape, dtype):
            has = f"{weight.name} has {counted(weight.bytes, 'byte')}"
            raise refuse(f"{has}, which is not {list(weight.shape)} of {dtype}")
        if weight.offset != padded(end):
            raise refuse(f"{weight.name} must begin at byte {padded(end)}, not {weight.offset}")
        if weight.sha256 and not _SHA256.fullmatch(weight.sha256):
            raise refuse(f"{weight.name} has something else for a SHA-256")
        if not _is_stack(weight):
            raise refuse(f"{weight.name} has {len(weight.parts)} parts for {list(weight.shape)}")
        if weight.portion and not is_portion(weight.portion, weight.file_shape):
            raise refuse(f"{weight.name} has the portion {list(weight.portion)}")
        end = weight.offset + weight.bytes
    length = len(sections.get("weights", b""))
    if padded(end) != length:
        raise refuse(f"the arrays end at byte {padded(end)} of the section, which has {length}")


def _is_stack(weight: Weight) -> bool:
    """Whether a weight has as many parts as its stacked axes say, and is made of matrices if transposed."""
    rank = len(weight.shape)
    if not 0 <= weight.stacked <= rank or (weight.transposed and rank - weight.stacked < 2):
        return False
    return not weight.parts or prod(weight.shape[: weight.stacked]) == len(weight.parts)


def _check_names(what: str, names: Iterable[str], refuse: Refuse) -> None:
    """Names are short and printable, and no two are equal."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refuse(f"two {what} are called {name!r}")
        if not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise refuse(f"the name {name[:40]!r} of one of the {what} cannot be printed")
        seen.add(name)


def _check_entry(entry: Entry, refuse_: Refuse) -> None:
    def refuse(message: str) -> Exception:
        return refuse_(f"entry point {entry.name}: {message}")

    if max(len(entry.inputs), len(entry.outputs)) > MAX_TENSORS or not entry.outputs:
        raise refuse(f"it has no output, or more than {MAX_TENSORS} inputs or outputs")
    _check_names("inputs", (item.name for item in entry.inputs), refuse)
    names = [output.name for output in entry.outputs]
    if [output.name for output in entry.outputs if not output.hidden] == [""]:
        names.remove("")
    _check_names("outputs", names, refuse)
    _check_names("dims", (dim.name for dim in entry.dims), refuse)
    _check_dims(entry, refuse)
    input_dims = {dim.name for dim in entry.dims if dim.measured is None}
    for item in entry.inputs:
        _check_type(item, input_dims, refuse)
        if item.default is not None:
            default_bytes(item, item.default, refuse)
    all_dims = {dim.name for dim in entry.dims}
    for output in entry.outputs:
        _check_type(output, all_dims, refuse)
    _check_updates(entry, refuse)
    for size in [size for need in entry.needs for size in need.sizes]:
        check_size(size, input_dims, 0, refuse)


def _check_updates(entry: Entry, refuse: Refuse) -> None:
    """An output that updates an input has its type, and is the only one that updates it."""
    types = {item.name: (item.dtype, item.shape) for item in entry.inputs}
    for output in entry.outputs:
        if not output.updates:
            continue
        if types.pop(output.updates, None) != (output.dtype, output.shape):
            raise refuse(f"the output {output.name} cannot update {output.updates[:40]!r}")


def _check_dims(entry: Entry, refuse: Refuse) -> None:
    input_dims = {dim.name for dim in entry.dims if dim.measured is None}
    if both := input_dims & {item.name for item in entry.inputs}:
        raise refuse(f"{min(both)} is the name of an input and of a dim")
    scalars = {o.name for o in entry.outputs if o.dtype in ("i64", "i32") and not o.shape}
    for dim in entry.dims:
        if not dim.name.isidentifier() or dim.lower < 0:
            raise refuse(f"the dim {dim.name} is not a name or has a negative lower bound")
        if dim.upper is not None and dim.upper < dim.lower:
            raise refuse(f"the dim {dim.name} has bounds {dim.lower}..{dim.upper}")
        if dim.measured is not None:
            if dim.measured.output not in scalars:
                raise refuse(f"the dim {dim.name} is measured by no integer scalar output")
            check_size(dim.measured.limit, input_dims, 0, refuse)


def _check_type(tensor: Input | Output, dims: set[str], refuse: Refuse) -> None:
    if tensor.dtype not in DTYPES:
        raise refuse(f"{tensor.name} has the unknown dtype {tensor.dtype[:40]!r}")
    if len(tensor.shape) > MAX_RANK:
        raise refuse(f"{tensor.name} has {len(tensor.shape)} axes; at most {MAX_RANK} are read")
    for size in tensor.shape:
        check_size(size, dims, 0, refuse)


def check_size(text: str, dims: set[str], earlier: int, refuse: Refuse) -> None:
    """Check that a size is an expression over these dims and the first `earlier` entries of its list."""
    if text.isdecimal() and text.isascii() and len(text) < 19:
        return
    try:
        expression = size_expressions.parse(text)
    except size_expressions.BadExpression as error:
        raise refuse(str(error)) from None
    if unknown := expression.names - dims:
        raise refuse(
            f"the size {text} mentions {min(unknown)}, which is not a dim that is known here"
        )
    if any(index >= earlier for index in expression.earlier):
        raise refuse(f"the size {text} refers to an entry that does not come before it")


def default_bytes(item: Input, default: Default, refuse: Refuse) -> bytes:
    """The bytes of an input's default value. Raises if it does not have the input's type."""
    try:
        data = binascii.a2b_base64(default.data.encode("ascii"), strict_mode=True)
    except ValueError:
        raise refuse(f"the default of {item.name} is not base64") from None
    fits = len(default.shape) == len(item.shape) and all(
        text == str(size) or not text.isdecimal()
        for size, text in zip(default.shape, item.shape, strict=True)
    )
    if not fits or len(data) != byte_count(default.shape, DTYPES[item.dtype]):
        raise refuse(f"the default of {item.name} is not of its type")
    return data


def _check_target(
    target: Target, entries: Sequence[Entry], sections: Mapping[str, memoryview], refuse_: Refuse
) -> None:
    def refuse(message: str) -> Exception:
        return refuse_(f"target {target.name}: {message}")

    if target.cpu is None and target.gpu is None:
        raise refuse("it is for no processor and for no GPU")
    if target.cpu is not None:
        for kind, image in (("code", target.cpu.code), ("engine", target.cpu.engine)):
            _check_section(kind, image.section, sections, refuse)
            _check_image(image, len(sections[image.section]), refuse)
    if target.gpu is not None:
        _check_gpu(target.gpu, sections, refuse)
    if set(target.programs) != {entry.name for entry in entries}:
        raise refuse("its programs are not those of the entry points")
    for entry in entries:
        dims = {dim.name for dim in entry.dims if dim.measured is None}
        _check_program(target.programs[entry.name], dims, sections, refuse)
    if target.prepare is not None:
        _check_program(target.prepare.program, set(), sections, refuse)
        if target.prepare.bytes < 0:
            raise refuse("the prepared weights have a negative size")
        if cached := target.prepare.cached:
            _check_section("prepared", cached, sections, refuse)
            if len(sections[cached]) != target.prepare.bytes:
                raise refuse(f"section {cached} is not as long as the prepared weights")
    _check_own_sections(target, refuse)


def _check_own_sections(target: Target, refuse: Refuse) -> None:
    """Each program has sections of its own: a shared one would make a short file as slow as a long one."""
    seen: set[str] = set()
    for program in _programs(target):
        for name in (program.section, program.certificate):
            if name in seen:
                raise refuse(f"section {name[:80]} is that of two programs")
            seen.add(name)


def _check_gpu(code: GpuCode, sections: Mapping[str, memoryview], refuse: Refuse) -> None:
    _check_section("code", code.ptx, sections, refuse)
    if code.cubin:
        _check_section("code", code.cubin, sections, refuse)
    called = [*code.kernels, *code.collectives]
    _check_names("kernels", (kernel.name for kernel in called), refuse)
    for kernel in code.kernels:
        if kernel.threads % WARP or not 0 < kernel.threads <= MAX_BLOCK:
            raise refuse(f"the kernel {kernel.name} has {kernel.threads} threads in a block")
        if not 0 <= kernel.shared <= _MOST_SHARED:
            raise refuse(f"the kernel {kernel.name} has {kernel.shared} bytes of shared memory")
        if not all(0 <= place < MAX_ARGS for place in kernel.narrow):
            raise refuse(f"the kernel {kernel.name} has no argument {max(kernel.narrow)}")
    for row in code.collectives:
        if row.function not in COLLECTIVES_ON_GPU or row.dtype not in DTYPES:
            raise refuse(f"{row.name} is no collective: {row.function[:80]} of {row.dtype[:80]}")
        if row.combine not in MPI_OPERATIONS or not 0 <= row.elements < MAX_ARGS or row.place < 0:
            raise refuse(
                f"the collective {row.name} has no such {row.combine[:80]}, count or place"
            )


def _check_section(
    kind: str, name: str, sections: Mapping[str, memoryview], refuse: Refuse
) -> None:
    if name not in sections or name.partition("/")[0] != kind:
        raise refuse(f"there is no section {name[:80]!r} of kind {kind}")


def _check_image(image: Image, length: int, refuse: Refuse) -> None:
    if not _SHA256.fullmatch(image.sha256):
        raise refuse(f"there is no SHA-256 of section {image.section}")
    table = 8 * len(image.imports)
    _check_names("imports", image.imports, refuse)
    _check_names("functions", (symbol.name for symbol in image.symbols), refuse)
    for symbol in image.symbols:
        if not table <= symbol.offset < length:
            raise refuse(f"the function {symbol.name} lies outside section {image.section}")
    if table > length:
        raise refuse(f"the import table is longer than section {image.section}")


def _check_program(
    program: Program, dims: set[str], sections: Mapping[str, memoryview], refuse: Refuse
) -> None:
    _check_section("program", program.section, sections, refuse)
    _check_section("certificate", program.certificate, sections, refuse)
    if len(sections[program.section]) % 8:
        raise refuse(f"section {program.section} is not made of 8-byte words")
    for index, size in enumerate(program.sizes):
        check_size(size, dims, index, refuse)
    if not -1 <= program.checks < len(program.ops):
        raise refuse(f"section {program.section} has no op {program.checks}")
    for size in (program.arena, program.scratch, program.gpu_scratch):
        check_size(size, dims, len(program.sizes), refuse)
