"""The manifest of an artifact: these classes are its schema (`docs/artifact.md`).

`dlc.runtime.artifact.schema` converts them to JSON and back; `dlc.runtime.artifact.manifest_checks` checks
the relations between the fields. Sizes are texts that `dlc.runtime.artifact.size_expressions` parses:
numbers, or expressions over the dims of their entry point.
"""

# Without deferred annotations: the schema reads the classes as they are, at every load.
import re
from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from dlc.runtime.abi import COPY, ON_GPU

Shape: TypeAlias = tuple[int, ...]


class Compiler(NamedTuple):
    """The compiler that made the artifact, with the flags that can change a byte of it."""

    name: str
    version: str
    flags: tuple[str, ...] = ()


class Measured(NamedTuple):
    """A size that is computed during the call: the value of an integer scalar output.

    Memory is reserved for `limit`, an expression over the other dims; an output of such a size is
    contiguous from the beginning of its memory.
    """

    output: str
    limit: str


class Dim(NamedTuple):
    """A named size of an entry point. The caller passes those that no shape of an input contains."""

    name: str
    lower: int = 0
    upper: int | None = None
    measured: Measured | None = None


class Need(NamedTuple):
    """A size that must not be negative in a call, or that must equal `equals`, if that is not empty.

    Both are expressions over the dims that are not measured. If the condition does not hold, the call
    fails with the error `code` before anything runs. `told` is the message, in which `{n}` stands for the
    value of the size and `{m}` for that of the other one; `place` and `end` are as in `Op`.
    """

    size: str
    code: Literal["D0804", "D0807"]
    told: str
    place: str = ""
    end: int = 0
    equals: str = ""

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes that are compared: one with 0, or two with each other."""
        return (self.size, self.equals) if self.equals else (self.size,)

    @property
    def condition(self) -> str:
        """What holds in every call, such as `S + T == 2*T` or `T - 96 >= 0`."""
        return f"{self.size} == {self.equals}" if self.equals else f"{self.size} >= 0"


class Default(NamedTuple):
    """The default value of an input: little-endian elements in base64."""

    shape: tuple[int, ...]
    data: str


class Input(NamedTuple):
    """An input of an entry point; `shape` has one size for each axis."""

    name: str
    dtype: str
    shape: tuple[str, ...] = ()
    default: Default | None = None
    doc: str = ""


class Output(NamedTuple):
    """A result of an entry point. A hidden one (a measured size) is not returned to the caller.

    The name may be empty for the only output that is not hidden. `updates` names the input that the output
    overwrites, of the same dtype and shape; it is empty for an output with separate memory.
    """

    name: str
    dtype: str
    shape: tuple[str, ...] = ()
    hidden: bool = False
    doc: str = ""
    updates: str = ""


class Entry(NamedTuple):
    """The interface of an entry point."""

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    dims: tuple[Dim, ...] = ()
    doc: str = ""
    needs: tuple[Need, ...] = ()

    @property
    def inouts(self) -> tuple[str, ...]:
        """The names of the inputs that a call changes in place, in their order."""
        changed = {output.updates for output in self.outputs if output.hidden}
        return tuple([item.name for item in self.inputs if item.name in changed])


class Op(NamedTuple):
    """An operation of a program, for messages, traces and profiles. Its index in the table is its id.

    `place` is `file:line:col` or empty, `end` the column after the marked characters, or 0. `{a}` and
    `{b}` in `message` stand for the status words.
    """

    name: str
    place: str = ""
    kernel: str = ""
    message: str = ""
    end: int = 0


class Program(NamedTuple):
    """An entry point compiled for a target: the data that the engine needs besides the kernels.

    `sizes` is the list that words of the program index. `$k` refers to entry k in later entries, in
    `arena` (bytes), `scratch` (bytes for each thread), and `gpu_scratch` (bytes on the GPU, if the target
    is a processor and a GPU). `section` and `certificate` name the sections with the step table and with
    the memory plan. `checks` is the op id of the last check of indices before the work, or -1.
    """

    section: str
    certificate: str
    sizes: tuple[str, ...] = ()
    arena: str = "0"
    scratch: str = "0"
    ops: tuple[Op, ...] = ()
    gpu_scratch: str = "0"
    checks: int = -1


class Prepare(NamedTuple):
    """The program that computes the prepared weights, which kernels read, from the stored weights.

    It reads the root SOURCES and writes the root WEIGHTS, a block of `bytes` bytes. `cached` names the
    section with this block for the weights of the artifact, or is empty.
    """

    program: Program
    bytes: int
    cached: str = ""


class Symbol(NamedTuple):
    """The offset of a function in an image."""

    name: str
    offset: int


class Image(NamedTuple):
    """Machine code in a separate section. The image begins with 8 bytes for each import, in order.

    `sha256` is that of the section: the loader hashes its private copy again before it runs.
    """

    section: str
    sha256: str
    imports: tuple[str, ...]
    symbols: tuple[Symbol, ...]


class Library(NamedTuple):
    """A library that the code calls, with its version at compile time."""

    name: str
    version: str
    core: str = ""


class CpuCode(NamedTuple):
    """Code for one kind of processor: `code` has the kernels, `engine` the function `dlc_enter`."""

    triple: str
    processor: str
    features: tuple[str, ...]
    code: Image
    engine: Image
    library: Library | None = None
    pointer_bits: int = 64
    byte_order: Literal["little", "big"] = "little"
    page_bytes: int = 4096


class GpuKernel(NamedTuple):
    """A kernel in a PTX module: a block of `threads` threads computes a tile. Its index is its number.

    A launch asks for `shared` bytes of shared memory, besides what the module declares. `narrow` are the
    positions of arguments that are at most `MOST_NUMBERED`.
    """

    name: str
    threads: int
    shared: int = 0
    narrow: tuple[int, ...] = ()


class GpuCollective(NamedTuple):
    """What ranks do together where a program calls the kernel of this name, with arrays on their GPUs.

    `function` is an operation of the dialect `comm` along an axis of the mesh, `place` its root or shift.
    Argument number `elements` is how many of these a rank sends to each other one.
    """

    name: str
    function: str
    axis: str
    dtype: str
    combine: str = "sum"
    place: int = 0
    elements: int = 0


class GpuCode(NamedTuple):
    """Code for a kind of NVIDIA GPU: sections with PTX and, unless empty, with its machine code.

    The numbers of `collectives` follow those of `kernels`.
    """

    architecture: str
    ptx: str
    cubin: str
    kernels: tuple[GpuKernel, ...]
    collectives: tuple[GpuCollective, ...] = ()


class Target(NamedTuple):
    """A kind of machine that the artifact has code for: a processor, a GPU, or a processor with a GPU.

    `programs` maps each entry point to its program. Without `prepare` the kernels read the stored weights:
    the root WEIGHTS is then the root SOURCES.
    """

    name: str
    abi: int
    programs: Mapping[str, Program]
    cpu: CpuCode | None = None
    gpu: GpuCode | None = None
    prepare: Prepare | None = None

    @property
    def processor(self) -> str:
        """The processor or the GPU of the target, or both."""
        cpu = [] if self.cpu is None else [self.cpu.processor]
        gpu = [] if self.gpu is None else [self.gpu.architecture]
        return " + ".join([*cpu, *gpu])

    @property
    def features(self) -> tuple[str, ...]:
        """The required features of the processor, by LLVM's names."""
        return () if self.cpu is None else self.cpu.features

    @property
    def kernels(self) -> dict[int, str]:
        """The kernels by the numbers that programs use."""
        symbols = () if self.cpu is None else self.cpu.code.symbols
        found = {symbol.offset: symbol.name for symbol in symbols}
        if self.gpu is None:
            return found
        first = 0 if self.cpu is None else ON_GPU
        called = [*self.gpu.kernels, *self.gpu.collectives]
        on_gpu = {first + number: kernel.name for number, kernel in enumerate(called)}
        return {**found, **on_gpu, **({COPY: "copy"} if first else {})}


class Weight(NamedTuple):
    """A source weight: its position in the section `weights`, and its names in weight files.

    `key` is its name in weight files if that differs from `name`. If files hold the weights of repeated
    blocks as separate arrays, `parts` are their names, and the first `stacked` axes index the blocks.
    `transposed` says that these arrays have the last two axes swapped, `portion` which part of such an
    array the weight is, where several lie in one: (first, last, whole, axis), from `first` to `last` of
    `whole` equal parts of the axis; without the axis, of the one that the array has longer than the weight.
    A `constant` is never replaced by other weights. `sha256` is that of its bytes, and may be empty until
    the artifact is written.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    sha256: str = ""
    key: str = ""
    parts: tuple[str, ...] = ()
    stacked: int = 0
    transposed: bool = False
    portion: tuple[int, ...] = ()
    constant: bool = False

    @property
    def file_key(self) -> str:
        """Its name in weight files, if it is a single array there."""
        return self.key or self.name

    @property
    def file_shape(self) -> Shape:
        """Its shape in the arrays of weight files."""
        return file_shape(self.shape, self.stacked, self.parts, self.transposed)


def file_shape(shape: Shape, stacked: int, parts: Sequence[str], transposed: bool) -> Shape:
    """The shape that a weight has in the arrays of weight files, each of which is one block of a stack."""
    own = shape[stacked if parts else 0 :]
    return (*own[:-2], *own[:-3:-1]) if transposed else own


def is_portion(numbers: Sequence[int], shape: Shape) -> bool:
    """Whether these may be the `portion` of a weight with this shape in weight files."""
    if not 3 <= len(numbers) <= 4 or not shape:
        return False
    first, last, whole, *axes = numbers
    return 0 <= first < last <= whole and all(
        0 <= axis < len(shape) and shape[axis] % (last - first) == 0
        for axis in axes or range(len(shape))
    )


class Layer(NamedTuple):
    """A row of the layer table: a module instance and its number of parameters without submodules."""

    path: str
    type: str
    parameters: int


DataKind: TypeAlias = Literal["npz", "npy", "safetensors", "csv", "text", "pictures"]


class DataSource(NamedTuple):
    """The source of the examples of a training. `fields` maps inputs to their names in the source.

    Without a `path` they are given when the training begins.
    `test_part` is the fraction reserved for the test, such as `0.2`, as text; `test_path` another file
    with the test examples; `limit` the largest number of examples. `header` says whether a table begins
    with column names (null: detected), `separator` separates cells, `size` is the height and width to
    which pictures are resized.
    """

    kind: DataKind
    path: str
    fields: Mapping[str, str]
    test_part: str = ""
    test_path: str = ""
    limit: int | None = None
    shuffle: bool = True
    header: bool | None = None
    separator: str = ""
    size: tuple[int, ...] | None = None


STEP, EVALUATE = "train_step", "evaluate"
"""The entry points of an artifact that trains."""
OF_RANK = "_of_rank"
"""What the names of these end in where a rank of a mesh runs them, on its part of a batch."""
OF_STAGE = re.compile(r"_stage([0-9]+)_(?:before|each|after)[0-9]+$")
"""What the names of the parts of a function that the stages of a pipeline run end in, with the stage."""
DATA, STAGE = "data", "stage"
"""The axes of a mesh along which batches are divided, and whose ranks are the stages of a pipeline."""
NUMBER, TOTAL, SEED, RATE = "step", "total_steps", "seed", "$rate"
"""Inputs of a training step that are neither batch nor weight: its number, counted from 0, the number of
all steps, the seed of its random numbers, and the part of the learning rates that a plateau has left."""


class Watched(NamedTuple):
    """A measure after each epoch that decides something; the best is the least, or with `mode` "max" the
    greatest. A training stops once it has not become better in `patience` epochs."""

    metric: str
    mode: Literal["min", "max"] = "min"
    patience: int = 1


class Plateau(NamedTuple):
    """What lowers the learning rates once a measure gets no better (`rate = plateau(...)`).

    Numbers with fractions are texts. A measure is better than the best so far if it is by more than
    `threshold`, which is a part of it or with `threshold_mode` "abs" a difference. After more than
    `patience` epochs without a better one the rates are multiplied by `factor`, down to the part `least` of
    what the text says; the next `cooldown` epochs do not count.
    """

    metric: str
    mode: Literal["min", "max"] = "min"
    factor: str = "0.1"
    patience: int = 10
    threshold: str = "0.0001"
    threshold_mode: Literal["rel", "abs"] = "rel"
    cooldown: int = 0
    least: str = "0.0"


class Training(NamedTuple):
    """The training of an artifact with the entry points `train_step` and `evaluate`.

    `module` is the trained module, `block` the name of the `train` block, if it has one, `inputs` are those
    from a batch. `checkpoint` is the path of the
    checkpoint relative to the model, if there is one, which is written after every `every` epochs.
    A step goes through `accumulate` batches; `parts` are the numbers that the loss gives besides itself.
    `stop` ends the training early, `keep` says which checkpoint is the best, `rate` lowers the learning
    rates. Products are computed in `precision`; `skips` says that a step tells whether it was skipped, as
    those of a dynamic loss scale do. `splits` are the weights and states of which each rank of a mesh has a
    part, with the axis of the array that each axis of the mesh splits.
    """

    module: str
    inputs: tuple[str, ...]
    data: DataSource
    batch: int
    epochs: int
    seed: int
    checkpoint: str = ""
    every: int = 1
    block: str = ""
    accumulate: int = 1
    parts: tuple[str, ...] = ()
    stop: Watched | None = None
    keep: Watched | None = None
    rate: Plateau | None = None
    precision: str = "f32"
    skips: bool = False
    splits: Mapping[str, Mapping[str, int]] = MappingProxyType({})

    @property
    def examples(self) -> int:
        """The number of examples in a step."""
        return self.batch * self.accumulate


class Promise(NamedTuple):
    """The limits of a call: its bytes of memory, including results and weights, and its threads."""

    memory: int
    threads: int


class Section(NamedTuple):
    """A section of the file; `offset` counts from the body, which begins after the padded manifest."""

    name: str
    offset: int
    bytes: int
    chunks: tuple[str, ...]
    """SHA-256 of each 4 MiB, the last one shorter, in lower-case hexadecimal."""


class MeshAxis(NamedTuple):
    """An axis of the mesh of ranks that run the model together; the last axis varies fastest."""

    name: str
    ranks: int


MICROBATCH = "%microbatch"
"""The input of a part that is the number of the microbatch, an i64."""


class StagePart(NamedTuple):
    """An entry point that a stage of a pipeline runs: before the microbatches, for each, or after them."""

    entry: str
    stage: int
    when: Literal["before", "each", "after"]


class Staged(NamedTuple):
    """A function that the stages of a pipeline run together, of which callers see `interface`.

    `parts` are in an order in which they can run. Their inputs and outputs are values by name: those of
    the function, and others, which go from part to part and from rank to rank. `results` are the names
    of what the function returns and that overwrites nothing. Only the stage in `homes` has a weight or
    a state. A microbatch takes a row of the value that `rows` names; what is `carried` goes from one to
    the next. Microbatches that are `in_order` do not overlap on a stage.
    """

    interface: Entry
    stages: int
    parts: tuple[StagePart, ...]
    results: tuple[str, ...]
    homes: Mapping[str, int] = MappingProxyType({})
    microbatches: int = 1
    rows: Mapping[str, str] = MappingProxyType({})
    carried: tuple[str, ...] = ()
    in_order: bool = False


def function_of(name: str) -> str:
    """The function of the text that an entry point computes a part of; messages name that.

    >>> function_of("train_step_of_rank_stage1_each2")
    'train_step'
    """
    return OF_STAGE.sub("", name).removesuffix(OF_RANK)


class Manifest(NamedTuple):
    """The manifest; `model` is the name of the root file of the model text."""

    compiler: Compiler
    model: str
    opset: int
    entries: tuple[Entry, ...]
    targets: tuple[Target, ...]
    weights: tuple[Weight, ...] = ()
    layers: tuple[Layer, ...] = ()
    training: Training | None = None
    promise: Promise | None = None
    sections: tuple[Section, ...] = ()
    mesh: tuple[MeshAxis, ...] = ()
    staged: tuple[Staged, ...] = ()

    @property
    def interfaces(self) -> tuple[Entry, ...]:
        """The entry points, with functions of stages in place of their parts."""
        parts = {part.entry for each in self.staged for part in each.parts}
        own = [entry for entry in self.entries if entry.name not in parts]
        return (*[each.interface for each in self.staged], *own)

    @property
    def homes(self) -> Mapping[str, int]:
        """The stages of weights and states that one stage has alone."""
        return {name: stage for each in self.staged for name, stage in each.homes.items()}

    @property
    def called(self) -> tuple[Entry, ...]:
        """The entry points that callers see: without the programs of ranks, which stand behind them."""
        names = {entry.name for entry in self.interfaces} if self.mesh else set[str]()
        return tuple(
            [
                entry
                for entry in self.interfaces
                if not (entry.name.endswith(OF_RANK) and entry.name.removesuffix(OF_RANK) in names)
            ]
        )

    @property
    def parameters(self) -> int:
        """The number of parameters; without a layer table, the number of elements of all weights."""
        if self.layers:
            return sum(layer.parameters for layer in self.layers)
        return sum(prod(weight.shape) for weight in self.weights if not weight.constant)
