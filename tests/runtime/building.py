"""Small compiled models for the tests of the runtime, assembled by hand on the real engine.

`kernel` writes one kernel as LLVM text, `Assembler` a table of steps, and the functions at the end whole
artifacts: what the compiler does, in a form in which every number can be made wrong on purpose.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain

import numpy as np

from dlc.codegen.engine.assemble import engine_image
from dlc.codegen.link.image import Image as LinkedImage
from dlc.codegen.link.image import link
from dlc.codegen.llvm.target_machine import compile_object
from dlc.runtime import abi
from dlc.runtime.artifact.certificate import Certificate, RootRecord, certificate_bytes
from dlc.runtime.artifact.container import Data
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import (
    Compiler,
    CpuCode,
    Default,
    Dim,
    Entry,
    Image,
    Input,
    Layer,
    Library,
    Manifest,
    Measured,
    Op,
    Output,
    Prepare,
    Program,
    Symbol,
    Target,
    Weight,
)
from dlc.target.cpu import CpuTarget

TARGET = "cpu"
TEXT = "dlc 1\nexport fn f(x: f32[B, 4]) -> f32[B, 4] = x\n"

_LOOP = """
define void @{name}(ptr %args, i64 %first, i64 %last, ptr %fault) {{
entry:
{head}
  %any = icmp slt i64 %first, %last
  br i1 %any, label %body, label %done
body:
  %i = phi i64 [ %first, %entry ], [ %next, %body ]
{body}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %body, label %done
done:
  ret void
}}
"""


def _elementwise(name: str, operation: str) -> str:
    """out[i] = a[i] op b[i] in f32, one element for each tile; arguments out, a, b."""
    pointers = ("out", "a", "b")
    head = "\n".join(
        f"  %{p}.slot = getelementptr i64, ptr %args, i64 {k}\n  %{p} = load ptr, ptr %{p}.slot"
        for k, p in enumerate(pointers)
    )
    places = "\n".join(f"  %{p}.i = getelementptr float, ptr %{p}, i64 %i" for p in pointers)
    body = f"""{places}
  %x = load float, ptr %a.i
  %y = load float, ptr %b.i
  %z = {operation} float %x, %y
  store float %z, ptr %out.i"""
    return _LOOP.format(name=name, head=head, body=body)


_OTHERS = """
; out = table[index], or a fault; arguments out, table, index (pointer to i64), extent
define void @pick(ptr %args, i64 %first, i64 %last, ptr %fault) {
  %out = load ptr, ptr %args
  %1 = getelementptr i64, ptr %args, i64 1
  %table = load ptr, ptr %1
  %2 = getelementptr i64, ptr %args, i64 2
  %index.at = load ptr, ptr %2
  %index = load i64, ptr %index.at
  %3 = getelementptr i64, ptr %args, i64 3
  %extent = load i64, ptr %3
  %good = icmp ult i64 %index, %extent
  br i1 %good, label %read, label %fail
read:
  %place = getelementptr float, ptr %table, i64 %index
  %value = load float, ptr %place
  store float %value, ptr %out
  ret void
fail:
  store i64 1, ptr %fault
  %f1 = getelementptr i64, ptr %fault, i64 1
  store i64 %first, ptr %f1
  %f2 = getelementptr i64, ptr %fault, i64 2
  store i64 %index, ptr %f2
  %f3 = getelementptr i64, ptr %fault, i64 3
  store i64 %extent, ptr %f3
  ret void
}

; the places of the positive numbers, and how many; arguments places, count, x, extent
define void @positive(ptr %args, i64 %first, i64 %last, ptr %fault) {
entry:
  %places = load ptr, ptr %args
  %1 = getelementptr i64, ptr %args, i64 1
  %count = load ptr, ptr %1
  %2 = getelementptr i64, ptr %args, i64 2
  %x = load ptr, ptr %2
  %3 = getelementptr i64, ptr %args, i64 3
  %extent = load i64, ptr %3
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i.next, %step ]
  %n = phi i64 [ 0, %entry ], [ %n.next, %step ]
  %more = icmp slt i64 %i, %extent
  br i1 %more, label %look, label %done
look:
  %x.i = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %x.i
  %is = fcmp ogt float %value, 0.0
  br i1 %is, label %note, label %step
note:
  %place = getelementptr i64, ptr %places, i64 %n
  store i64 %i, ptr %place
  br label %step
step:
  %more.n = zext i1 %is to i64
  %n.next = add i64 %n, %more.n
  %i.next = add i64 %i, 1
  br label %test
done:
  store i64 %n, ptr %count
  ret void
}

; out[tile] = value; arguments out, value (pointer)
define void @fill(ptr %args, i64 %first, i64 %last, ptr %fault) {
entry:
  %out = load ptr, ptr %args
  %1 = getelementptr i64, ptr %args, i64 1
  %from = load ptr, ptr %1
  %value = load float, ptr %from
  br label %body
body:
  %i = phi i64 [ %first, %entry ], [ %next, %body ]
  %place = getelementptr float, ptr %out, i64 %i
  store float %value, ptr %place
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %body, label %done
done:
  ret void
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
; copies bytes; arguments out, in, count
define void @copy(ptr %args, i64 %first, i64 %last, ptr %fault) {
  %out = load ptr, ptr %args
  %1 = getelementptr i64, ptr %args, i64 1
  %in = load ptr, ptr %1
  %2 = getelementptr i64, ptr %args, i64 2
  %count = load i64, ptr %2
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %in, i64 %count, i1 false)
  ret void
}
"""

_PRODUCT = """
declare void @sgemm_(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)
; out = b a in Fortran's order, all 4 by 4; arguments out, a, b
define void @product(ptr %args, i64 %first, i64 %last, ptr %fault) {
  %out = load ptr, ptr %args
  %1 = getelementptr i64, ptr %args, i64 1
  %a = load ptr, ptr %1
  %2 = getelementptr i64, ptr %args, i64 2
  %b = load ptr, ptr %2
  %n = alloca i32
  store i32 4, ptr %n
  %one = alloca float
  store float 1.0, ptr %one
  %zero = alloca float
  store float 0.0, ptr %zero
  %no = alloca i8
  store i8 78, ptr %no
  call void @sgemm_(ptr %no, ptr %no, ptr %n, ptr %n, ptr %n, ptr %one, ptr %b, ptr %n, ptr %a, ptr %n,
                    ptr %zero, ptr %out, ptr %n)
  ret void
}
"""

KERNELS = _elementwise("add", "fadd") + _elementwise("multiply", "fmul") + _OTHERS


@cache
def code_image() -> LinkedImage:
    """All kernels, linked."""
    return link({"kernels": compile_object(KERNELS, CpuTarget.named("x86-64"))})


@cache
def blas_image() -> LinkedImage:
    """A kernel that calls BLAS, linked."""
    return link({"kernels": compile_object(_PRODUCT, CpuTarget.named("x86-64"))})


@dataclass
class Assembler:
    """A table of steps and its sizes; every method gives the number by which it is referred to."""

    inputs: int = 0
    code: LinkedImage = field(default_factory=code_image)
    steps: list[list[int]] = field(default_factory=list[list[int]])
    arguments: list[list[int]] = field(default_factory=list[list[int]])
    sizes: list[str] = field(default_factory=list[str])

    def size(self, text: str | int) -> int:
        self.sizes.append(str(text))
        return len(self.sizes) - 1

    def step(self, opcode: abi.Opcode, *fields: int) -> int:
        self.steps.append([opcode, *fields, *([0] * (abi.STEP_WORDS - 1 - len(fields)))])
        return len(self.steps) - 1

    def pointer(self, root: int, offset: str | int = 0) -> list[int]:
        return [abi.ArgKind.POINTER, root, self.size(offset), -1, -1]

    def input(self, number: int) -> list[int]:
        return self.pointer(abi.Root.INPUTS + number)

    def output(self, number: int) -> list[int]:
        return self.pointer(abi.Root.INPUTS + self.inputs + number)

    def value(self, text: str | int) -> list[int]:
        return [abi.ArgKind.SIZE, 0, self.size(text), -1, -1]

    def wave(
        self, kernel: str, tiles: str | int, *arguments: list[int], op: int = 0, cost: int = 1
    ) -> None:
        """One kernel in a wave of its own."""
        self.step(abi.Opcode.WAVE, 1)
        first = len(self.arguments)
        self.arguments += arguments
        offset = self.code.entries[kernel]
        fields = (offset, first, len(arguments), self.size(tiles), self.size(cost), op)
        self.step(abi.Opcode.CALL, *fields)

    def end(self) -> None:
        self.step(abi.Opcode.END)

    def words(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        head = [len(self.steps), abi.HEADER_WORDS + abi.STEP_WORDS * len(self.steps), 1]
        table = [*head, *chain(*self.steps, *self.arguments)]
        return np.array(table, "<i8")


@dataclass
class Draft:
    """An artifact in the making: change what you like, then `artifact()`."""

    entries: list[Entry] = field(default_factory=list[Entry])
    programs: dict[str, Program] = field(default_factory=dict[str, Program])
    sections: dict[str, Data] = field(default_factory=dict[str, Data])
    weights: tuple[Weight, ...] = ()
    prepare: Prepare | None = None
    features: tuple[str, ...] = ()
    triple: str = "x86_64-unknown-linux-gnu"
    abi: int = abi.ABI_VERSION
    imports: tuple[str, ...] | None = None
    code: LinkedImage = field(default_factory=code_image)
    library: Library | None = None

    def program(
        self,
        name: str,
        made: Assembler,
        *,
        arena: str = "0",
        roots: Sequence[RootRecord] = (),
        ops: Sequence[Op] = (Op("op"),),
    ) -> Program:
        """Adds the sections of a program whose roots are all in use at once."""
        section, certificate = f"program/{TARGET}/{name}", f"certificate/{TARGET}/{name}"
        self.sections[section] = made.words().tobytes()
        self.sections[certificate] = certificate_bytes(
            Certificate(arena, arena, roots=tuple(roots))
        )
        return Program(section, certificate, tuple(made.sizes), arena, "0", tuple(ops))

    def entry(self, entry: Entry, program: Program) -> None:
        self.entries.append(entry)
        self.programs[entry.name] = program

    def artifact(self) -> Artifact:
        code, engine = self.code, engine_image()
        sections: dict[str, Data] = {
            "text/model.dlm": TEXT.encode(),
            "graph": b"module {}",
            f"code/{TARGET}": code.code,
            f"engine/{TARGET}": engine.code,
            "constants": np.arange(16, dtype=np.float32).tobytes(),
            **self.sections,
        }
        native = CpuCode(
            triple=self.triple,
            processor="x86-64",
            features=self.features,
            code=_image(f"code/{TARGET}", code, self.imports),
            engine=_image(f"engine/{TARGET}", engine, None),
            library=self.library,
        )
        target = Target(TARGET, self.abi, self.programs, native, prepare=self.prepare)
        manifest = Manifest(
            Compiler("dlc", "0.0", ("-O2",)),
            "model.dlm",
            1,
            tuple(self.entries),
            (target,),
            self.weights,
            (Layer("", "Test", 16),),
        )
        return Artifact.of(manifest, sections)


def _image(section: str, image: LinkedImage, imports: tuple[str, ...] | None) -> Image:
    symbols = tuple(Symbol(name, offset) for name, offset in sorted(image.entries.items()))
    digest = hashlib.sha256(image.code).hexdigest()
    return Image(section, digest, image.imports if imports is None else imports, symbols)


def default_of(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Default:
    """A default value as a manifest holds it."""
    return Default(values.shape, base64.b64encode(values.tobytes()).decode())


def tiny() -> Draft:
    """`f(x: f32[B, 4], y: f32[B, 4]) -> (x + y) * w * 2`, w: f32[4, 4] prepared by adding it to itself.

    B is at most 4, so that the weights are as many numbers as the largest input.
    """
    draft = Draft()
    draft.weights = (Weight("layer.w", "f32", (4, 4), 0, 64, key="fc.weight"),)
    draft.sections["weights"] = np.arange(16, dtype=np.float32).tobytes()
    made = Assembler(inputs=2)
    made.wave("add", "4*B", made.pointer(abi.Root.ARENA), made.input(0), made.input(1))
    weights = made.pointer(abi.Root.WEIGHTS)
    made.wave("multiply", "4*B", made.output(0), made.pointer(abi.Root.ARENA), weights, op=1)
    made.end()
    size = "(16*B + 63)//64*64"
    program = draft.program(
        "f",
        made,
        arena=size,
        roots=[RootRecord("sum", size, 0, 1, "0", "model.dlm:2:44")],
        ops=[Op("x + y", "model.dlm:2:44", "add"), Op("* w", "model.dlm:2:44", "multiply")],
    )
    shape = ("B", "4")
    inputs = (Input("x", "f32", shape), Input("y", "f32", shape))
    entry = Entry("f", inputs, (Output("", "f32", shape),), (Dim("B", 1, 4),), doc="Adds & scales.")
    draft.entry(entry, program)
    prepare = Assembler()
    sources = prepare.pointer(abi.Root.SOURCES)
    prepare.wave("add", 16, prepare.pointer(abi.Root.WEIGHTS), sources, sources)
    prepare.end()
    draft.prepare = Prepare(draft.program("prepare", prepare), 64)
    return draft


def product(library: Library | None = None) -> Draft:
    """`f(a: f32[4, 4], b: f32[4, 4]) -> f32[4, 4]`, the matrix product by BLAS."""
    draft = Draft(code=blas_image(), library=library)
    made = Assembler(inputs=2, code=blas_image())
    made.wave("product", 1, made.output(0), made.input(0), made.input(1))
    made.end()
    square = ("4", "4")
    inputs = (Input("a", "f32", square), Input("b", "f32", square))
    draft.entry(Entry("f", inputs, (Output("", "f32", square),)), draft.program("f", made))
    return draft


def many() -> Draft:
    """Entry points for one feature each: named outputs, faults, given and measured sizes, bf16."""
    draft = Draft()
    _both(draft)
    _pick(draft)
    _positive(draft)
    _fill(draft)
    _forever(draft)
    _copy(draft)
    return draft


def _both(draft: Draft) -> None:
    """both(x: f32[4], y: f32[4] = 1..4) -> (total: f32[4], product: f32[4])"""
    made = Assembler(inputs=2)
    made.wave("add", 4, made.output(0), made.input(0), made.input(1))
    made.wave("multiply", 4, made.output(1), made.input(0), made.input(1))
    made.end()
    default = default_of(np.arange(1, 5, dtype=np.float32))
    inputs = (Input("x", "f32", ("4",)), Input("y", "f32", ("4",), default))
    outputs = (Output("total", "f32", ("4",)), Output("product", "f32", ("4",)))
    draft.entry(Entry("both", inputs, outputs), draft.program("both", made))


def _pick(draft: Draft) -> None:
    """pick(table: f32[N], index: i64) -> f32, which fails for an index out of range"""
    made = Assembler(inputs=2)
    made.wave("pick", 1, made.output(0), made.input(0), made.input(1), made.value("N"))
    made.end()
    ops = (Op("table[index]", "model.dlm:2:5", "pick"),)
    inputs = (Input("table", "f32", ("N",)), Input("index", "i64"))
    entry = Entry("pick", inputs, (Output("", "f32"),), (Dim("N"),))
    draft.entry(entry, draft.program("pick", made, ops=ops))


def _positive(draft: Draft) -> None:
    """positive(x: f32[N]) -> places: i64[n], with n measured by a hidden output"""
    made = Assembler(inputs=1)
    made.wave("positive", 1, made.output(0), made.output(1), made.input(0), made.value("N"))
    made.end()
    dims = (Dim("N"), Dim("n", measured=Measured("count", "N")))
    outputs = (Output("places", "i64", ("n",)), Output("count", "i64", hidden=True))
    entry = Entry("positive", (Input("x", "f32", ("N",)),), outputs, dims)
    draft.entry(entry, draft.program("positive", made))


def _fill(draft: Draft) -> None:
    """fill(value: f32) -> f32[N], with N given by the caller"""
    made = Assembler(inputs=1)
    made.wave("fill", "N", made.output(0), made.input(0))
    made.end()
    entry = Entry(
        "fill", (Input("value", "f32"),), (Output("", "f32", ("N",)),), (Dim("N", 1, 1000),)
    )
    draft.entry(entry, draft.program("fill", made))


def _forever(draft: Draft) -> None:
    """forever(x: f32) -> f32, which ends only when it is cancelled"""
    made = Assembler(inputs=1)
    made.wave("fill", 1, made.output(0), made.input(0))
    made.step(abi.Opcode.JUMP, 0)
    made.end()
    entry = Entry("forever", (Input("x", "f32"),), (Output("", "f32"),))
    draft.entry(entry, draft.program("forever", made))


def _copy(draft: Draft) -> None:
    """copy(x: bf16[N]) -> bf16[N]"""
    made = Assembler(inputs=1)
    made.wave("copy", 1, made.output(0), made.input(0), made.value("2*N"))
    made.end()
    entry = Entry("copy", (Input("x", "bf16", ("N",)),), (Output("", "bf16", ("N",)),), (Dim("N"),))
    draft.entry(entry, draft.program("copy", made))
