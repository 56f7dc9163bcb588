"""What an artifact says about itself: these classes are the schema of the manifest (`docs/artifact.md`).

`dlc.runtime.artifact.schema` mirrors them to JSON and back; `dlc.runtime.artifact.manifest_checks` says
what must hold between the fields. Sizes are texts that `dlc.runtime.artifact.size_expressions` reads:
numbers, or expressions over the dims of their entry point.
"""

# Without deferred annotations: the schema reads the classes as they are, at every load.
from collections.abc import Mapping
from math import prod
from typing import Literal, NamedTuple, TypeAlias

from dlc.runtime.abi import COPY, ON_GPU


class Compiler(NamedTuple):
    """What made the artifact, with the flags that could change a byte of it."""

    name: str
    version: str
    flags: tuple[str, ...] = ()


class Measured(NamedTuple):
    """A size that the call itself finds out: the value of an integer scalar output.

    Storage is at `limit`, an expression over the other dims; an output of such a size is written
    densely from the start of its storage.
    """

    output: str
    limit: str


class Dim(NamedTuple):
    """A named size of an entry point. One that no input's shape mentions is given by the caller."""

    name: str
    lower: int = 0
    upper: int | None = None
    measured: Measured | None = None


class Need(NamedTuple):
    """A size that a call must not make negative, or that must equal `equals`, if that is not empty.

    Both are expressions over the dims that are not measured. Where the condition does not hold, the call
    fails with error `code` before anything runs. `told` says why, `{n}` in it standing for what the size is
    and `{m}` for what the other one is; `place` and `end` are as in `Op`.
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
    """The value of an input that the caller leaves out: little-endian elements in base64."""

    shape: tuple[int, ...]
    data: str


class Input(NamedTuple):
    """One parameter of an entry point; `shape` has one size per axis."""

    name: str
    dtype: str
    shape: tuple[str, ...] = ()
    default: Default | None = None
    doc: str = ""


class Output(NamedTuple):
    """One result. A hidden one is computed (a measured size) but not handed to the caller.

    The name may be empty if it is the only one that is not hidden. `updates` names the input that it is
    written over, which has its dtype and shape; empty for one with memory of its own.
    """

    name: str
    dtype: str
    shape: tuple[str, ...] = ()
    hidden: bool = False
    doc: str = ""
    updates: str = ""


class Entry(NamedTuple):
    """What a caller sees of an entry point."""

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    dims: tuple[Dim, ...] = ()
    doc: str = ""
    needs: tuple[Need, ...] = ()


class Op(NamedTuple):
    """One operation of a program, for messages, traces and profiles. Its place in the table is its id.

    `place` is `file:line:col` or empty, `end` the column behind what stands there, or 0. `{a}` and `{b}` in
    `message` stand for the status words.
    """

    name: str
    place: str = ""
    kernel: str = ""
    message: str = ""
    end: int = 0


class Program(NamedTuple):
    """One entry point compiled for one target: what the engine needs besides the kernels.

    `sizes` is the list that program words index; an entry may refer to an earlier one as `$k`, and so
    may `arena` (bytes), `scratch` (bytes for each thread), and `gpu_scratch` (bytes on the GPU of a target
    that is a processor and a GPU). `section` and `certificate` name the sections with the table of steps
    and with the memory plan.
    """

    section: str
    certificate: str
    sizes: tuple[str, ...] = ()
    arena: str = "0"
    scratch: str = "0"
    ops: tuple[Op, ...] = ()
    gpu_scratch: str = "0"


class Prepare(NamedTuple):
    """The program that turns weights as stored into weights as the kernels read them.

    It reads root SOURCES and writes root WEIGHTS, a block of `bytes` bytes. `cached` names a section
    that holds this block for the weights of the artifact, or is empty.
    """

    program: Program
    bytes: int
    cached: str = ""


class Symbol(NamedTuple):
    """Where in an image a function begins."""

    name: str
    offset: int


class Image(NamedTuple):
    """Machine code in a section of its own. The image begins with 8 bytes for each import, in order.

    `sha256` is of the whole section: the loader hashes its private copy once more before it runs.
    """

    section: str
    sha256: str
    imports: tuple[str, ...]
    symbols: tuple[Symbol, ...]


class Library(NamedTuple):
    """A library that the code calls, as it was when the artifact was made."""

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
    """A kernel in a module of PTX: a block of `threads` threads does a tile. Its place is its number."""

    name: str
    threads: int


class GpuCode(NamedTuple):
    """Code for one kind of NVIDIA GPU: sections with PTX and, unless empty, with machine code of it."""

    architecture: str
    ptx: str
    cubin: str
    kernels: tuple[GpuKernel, ...]


class Target(NamedTuple):
    """One kind of machine that the artifact has code for: a processor, a GPU, or a processor with a GPU.

    `programs` maps each entry point to its program. Without `prepare` the kernels read the weights as they
    are stored: root WEIGHTS is then root SOURCES.
    """

    name: str
    abi: int
    programs: Mapping[str, Program]
    cpu: CpuCode | None = None
    gpu: GpuCode | None = None
    prepare: Prepare | None = None

    @property
    def processor(self) -> str:
        """The processor or the GPU that it is for, or both."""
        cpu = [] if self.cpu is None else [self.cpu.processor]
        gpu = [] if self.gpu is None else [self.gpu.architecture]
        return " + ".join([*cpu, *gpu])

    @property
    def features(self) -> tuple[str, ...]:
        """What the processor must have, in LLVM's names."""
        return () if self.cpu is None else self.cpu.features

    @property
    def kernels(self) -> dict[int, str]:
        """The kernels by the numbers that programs call them by."""
        symbols = () if self.cpu is None else self.cpu.code.symbols
        found = {symbol.offset: symbol.name for symbol in symbols}
        if self.gpu is None:
            return found
        first = 0 if self.cpu is None else ON_GPU
        on_gpu = {first + number: kernel.name for number, kernel in enumerate(self.gpu.kernels)}
        return {**found, **on_gpu, **({COPY: "copy"} if first else {})}


class Weight(NamedTuple):
    """One source weight: where it lies in the section `weights`, and what it is called elsewhere.

    `key` is its name in weight files, where that differs from `name`; `parts` are the names of its copies
    where files have one array for each, which the first `stacked` axes count. `transposed` says that under
    these names the last two axes are the other way round. A `constant` is never replaced by other weights.
    `sha256` is of its bytes, and may be empty until the artifact is written.
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
    constant: bool = False

    @property
    def file_key(self) -> str:
        """What weight files call it, if it is one array there."""
        return self.key or self.name


class Layer(NamedTuple):
    """One row of the layer table: a module instance and the number of its own parameters."""

    path: str
    type: str
    parameters: int


DataKind: TypeAlias = Literal["npz", "npy", "safetensors", "csv", "text", "pictures"]


class DataSource(NamedTuple):
    """Where the examples of a training come from. `fields` maps inputs to what the source calls them.

    `test_part` is how much is kept for the test, such as `0.2` as text; `test_path` another file with the
    examples of the test; `limit` how many examples are used in all. `header` says whether a table begins
    with the names of its columns (null: that is found out), `separator` what stands between two cells,
    `size` the height and width that pictures are brought to.
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
NUMBER, TOTAL, SEED = "step", "total_steps", "seed"
"""Inputs of a training step that are neither batch nor weight: its number, counted from 0, how many steps
there are in all, and what its random numbers come from."""


class Training(NamedTuple):
    """How an artifact trains: entry point `train_step` makes a step, `evaluate` measures.

    `module` is what is trained, `inputs` are what a batch has. `checkpoint` is a file beside the model, if
    there is one, written every so many epochs.
    """

    module: str
    inputs: tuple[str, ...]
    data: DataSource
    batch: int
    epochs: int
    seed: int
    checkpoint: str = ""
    every: int = 1


class Promise(NamedTuple):
    """What a call keeps within: bytes of memory, its results and the weights included.

    For that it uses at most so many threads.
    """

    memory: int
    threads: int


class Section(NamedTuple):
    """A stretch of the file: offset counts from the first byte after the manifest's padding."""

    name: str
    offset: int
    bytes: int
    chunks: tuple[str, ...]
    """SHA-256 of each 4 MiB, the last one shorter, in lower-case hexadecimal."""


class Manifest(NamedTuple):
    """Everything that an artifact says about itself; `model` is the name of its text's root file."""

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

    @property
    def parameters(self) -> int:
        """How many trained numbers there are; of a model without a table of layers, all numbers."""
        if self.layers:
            return sum(layer.parameters for layer in self.layers)
        return sum(prod(weight.shape) for weight in self.weights if not weight.constant)
