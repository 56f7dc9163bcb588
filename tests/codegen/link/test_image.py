"""Linking object files into an image: what works the same after a copy, and what is refused by name."""

from __future__ import annotations

import ctypes
import hashlib

import numpy as np
import pytest

from dlc.codegen.link.image import CODE_ALIGNMENT, SLOT_BYTES, Image, link
from dlc.codegen.llvm.target_machine import assembly, compile_object
from dlc.errors import InternalError
from dlc.runtime.cpu.executable_memory import LoadedImage, load_image
from dlc.target.cpu import CpuTarget

X86_64 = CpuTarget.named("x86-64")


def image(*texts: str, target: CpuTarget = X86_64) -> Image:
    return link({f"kernel{n}": compile_object(text, target) for n, text in enumerate(texts)})


def load(made: Image) -> LoadedImage:
    return load_image(made.code, hashlib.sha256(made.code).digest(), made.imports)


def call(made: Image, name: str, *arguments: int) -> int:
    """Loads the image and calls a function of 64-bit integers."""
    loaded = load(made)
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))
    return prototype(loaded.base + made.entries[name])(*arguments)


def refused(*texts: str) -> str:
    with pytest.raises(InternalError) as caught:
        image(*texts)
    return str(caught.value)


# ---- what an image can hold


def test_a_function_that_needs_nothing_is_its_bytes() -> None:
    made = image("define i64 @two() { ret i64 2 }")
    assert (made.imports, dict(made.entries)) == ((), {"two": 0})
    assert made.code == bytes.fromhex("b802000000c3")


def test_functions_of_one_file_call_those_of_another() -> None:
    made = image(
        "declare i64 @double(i64)\n"
        "define i64 @f(i64 %x) { %y = call i64 @double(i64 %x) %z = add i64 %y, 1 ret i64 %z }",
        "define i64 @double(i64 %x) { %y = mul i64 %x, 2 ret i64 %y }",
    )
    assert call(made, "f", 20) == 41
    assert all(offset % CODE_ALIGNMENT == 0 for offset in made.entries.values())


SWITCH = """
define i64 @pick(i64 %k) {
  switch i64 %k, label %other [ i64 0, label %a i64 1, label %b i64 2, label %c
                                i64 3, label %d i64 4, label %e i64 5, label %f ]
a:
  %ra = call i64 @mix(i64 3, i64 %k)
  ret i64 %ra
b:
  %rb = call i64 @mix(i64 %k, i64 5)
  ret i64 %rb
c:
  ret i64 -7
d:
  %rd = mul i64 %k, %k
  ret i64 %rd
e:
  %re = call i64 @mix(i64 %k, i64 %k)
  ret i64 %re
f:
  ret i64 1000
other:
  ret i64 -1
}
define internal i64 @mix(i64 %x, i64 %y) noinline {
  %z = mul i64 %x, 10
  %w = add i64 %z, %y
  ret i64 %w
}
"""


def test_jump_tables_lead_to_the_right_places() -> None:
    made = image(SWITCH)
    assert "jmpq\t*%" in assembly(SWITCH, X86_64)
    assert [call(made, "pick", k) for k in range(-1, 7)] == [-1, 30, 15, -7, 9, 44, 1000, -1]


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_vector_constants_keep_their_alignment(lanes: int) -> None:
    target = CpuTarget.named({4: "x86-64-v2", 8: "x86-64-v3", 16: "x86-64-v4"}[lanes])
    numbers = ", ".join(f"float {lane}.5" for lane in range(lanes))
    text = f"""
define void @add(ptr %x) "prefer-vector-width"="512" "min-legal-vector-width"="512" {{
  %v = load <{lanes} x float>, ptr %x, align 4
  %w = fadd <{lanes} x float> %v, <{numbers}>
  store <{lanes} x float> %w, ptr %x, align 4
  ret void
}}
"""
    made = image("define i8 @odd() { ret i8 1 }", text, target=target)
    expected = np.arange(lanes, dtype=np.float32) + np.float32(0.5)
    start = made.code.index(expected.tobytes())
    assert start % (4 * lanes) == 0
    if lanes <= CpuTarget.named("host").vector_bytes // 4:
        x = np.zeros(lanes, np.float32)
        call(made, "add", x.ctypes.data)
        assert np.array_equal(x, expected)


def test_constant_tables_are_found_by_global_and_by_private_names() -> None:
    body = """
@{name} = {linkage} constant [4 x i64] [i64 2, i64 3, i64 5, i64 7]
define i64 @at(i64 %i) {{
  %p = getelementptr i64, ptr @{name}, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}}
define i64 @where() {{ ret i64 ptrtoint (ptr @{name} to i64) }}
"""
    for linkage in ("private", "internal", "linkonce_odr hidden", ""):
        made = image(body.format(name="table", linkage=linkage))
        assert [call(made, "at", i) for i in range(4)] == [2, 3, 5, 7]
        loaded = load(made)
        where = ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.base + made.entries["where"])()
        assert ctypes.c_int64.from_address(where + 8).value == 3


def test_imported_functions_are_reached_through_the_table() -> None:
    made = image("""
declare ptr @memset(ptr, i32, i64)
declare ptr @memcpy(ptr, ptr, i64)
define void @fill(ptr %x, i64 %n) {
  %1 = call ptr @memset(ptr %x, i32 7, i64 %n)
  %y = getelementptr i8, ptr %x, i64 %n
  %2 = call ptr @memcpy(ptr %y, ptr %x, i64 %n)
  ret void
}
define ptr @address() { ret ptr @memset }
""")
    assert made.imports == ("memcpy", "memset")
    assert made.code[: SLOT_BYTES * 2] == bytes(SLOT_BYTES * 2)
    x = np.zeros(2000, np.uint8)
    call(made, "fill", x.ctypes.data, 1000)
    assert (x == 7).all()
    expected = ctypes.cast(ctypes.CDLL(None).memset, ctypes.c_void_p).value
    assert call(made, "address") == expected


def test_the_same_objects_give_the_same_bytes() -> None:
    assert image(SWITCH) == image(SWITCH)


# ---- what it cannot


def test_writable_data_is_refused() -> None:
    said = refused("@n = internal global i64 5\ndefine ptr @f() { ret ptr @n }")
    assert "kernel0 has writable data in section .data" in said
    assert ".bss" in refused("@n = internal global i64 0\ndefine ptr @f() { ret ptr @n }")
    common = "@n = common global i64 0\ndefine ptr @f() { ret ptr @n }"
    assert "n belongs to no section" in refused(common)


def test_absolute_addresses_are_refused() -> None:
    said = refused("""
@a = private constant i64 1
@both = internal constant [2 x ptr] [ptr @a, ptr @both]
define ptr @f() { ret ptr @both }
""")
    assert "by R_X86_64_64, an absolute address" in said


def test_thread_local_storage_is_refused() -> None:
    text = "@n = internal thread_local global i64 {value}\ndefine ptr @f() {{ ret ptr @n }}"
    assert "thread-local storage" in refused(text.format(value=0))
    assert "thread-local storage" in refused(text.format(value=1))
    extern = "@n = external thread_local global i64\ndefine ptr @f() { ret ptr @n }"
    assert "thread-local storage" in refused(extern)


def test_unknown_functions_are_refused_by_name() -> None:
    said = refused(
        "declare void @system(ptr)\ndefine void @f(ptr %x) { call void @system(ptr %x) ret void }"
    )
    assert "kernel0 uses system, which is not on the list of imports" in said


def test_compiler_runtime_functions_are_refused_by_name() -> None:
    """Narrow floats on a processor without them must be converted by our own code."""
    said = refused("""
define void @f(float %x, ptr %p) {
  %h = fptrunc float %x to bfloat
  store bfloat %h, ptr %p
  ret void
}
""")
    assert "__truncsfbf2" in said
    fma = """
declare float @llvm.fma.f32(float, float, float)
define float @f(float %x) {
  %y = call float @llvm.fma.f32(float %x, float %x, float %x)
  ret float %y
}
"""
    assert "fmaf" in refused(fma)
    assert image(fma, target=CpuTarget.named("x86-64-v3")).imports == ()


def test_unknown_data_is_refused_by_name() -> None:
    said = refused("@environ = external global ptr\ndefine ptr @f() { ret ptr @environ }")
    assert "environ" in said


def test_initialisers_are_refused() -> None:
    said = refused("""
%entry = type { i32, ptr, ptr }
@llvm.global_ctors = appending global [1 x %entry] [%entry { i32 1, ptr @f, ptr null }]
declare i32 @sched_yield()
define void @f() {
  call i32 @sched_yield()
  ret void
}
""")
    assert "initialisers in section .ctors" in said


def test_two_functions_of_one_name_are_refused() -> None:
    text = "define void @f() { ret void }"
    assert "kernel1 and kernel0 both define f" in refused(text, text)


def test_anonymous_functions_have_the_names_of_their_files() -> None:
    made = image(*(f"define i64 @kernel() {{ ret i64 {n} }}" for n in (5, 7)))
    assert [call(made, f"kernel{n}") for n in (0, 1)] == [5, 7]


def test_indirect_functions_are_refused() -> None:
    text = """
@g = ifunc void (), ptr @choose
define ptr @choose() { ret ptr null }
define void @f() {
  call void @g()
  ret void
}
"""
    assert "g is of a kind that an image cannot hold" in refused(text)


# ---- text and targets


def test_llvms_complaint_comes_with_our_line() -> None:
    with pytest.raises(InternalError, match=r"line 2 of our text: .*'%y'.*: %x = add i32 1, %y"):
        compile_object("define void @f() {\n  %x = add i32 1, %y\n  ret void\n}", X86_64)


def test_llvms_verifier_is_asked() -> None:
    text = """
define i32 @f(i1 %c) {
  br i1 %c, label %a, label %b
a:
  %x = add i32 1, 2
  br label %b
b:
  ret i32 %x
}
"""
    with pytest.raises(InternalError, match="does not dominate"):
        compile_object(text, X86_64)


@pytest.mark.parametrize(
    "name", ["host", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "znver5"]
)
def test_every_target_compiles_at_every_level(name: str) -> None:
    for level in range(4):
        made = link({"k": compile_object(SWITCH, CpuTarget.named(name), level)})
        assert "pick" in made.entries
