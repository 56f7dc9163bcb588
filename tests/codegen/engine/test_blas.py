"""BLAS called from the pool's threads: same bits for any number of them, and no threads of its own."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.codegen.link.image import link
from dlc.codegen.llvm.target_machine import compile_object
from dlc.runtime.abi import CallWord, Root, Status
from dlc.runtime.cpu import blas
from dlc.runtime.cpu.executable_memory import load_image
from dlc.target.cpu import CpuTarget
from tests.codegen.assembly import Call, Program, digest, kernel

N = 128
TILES = 24

# out[t] = x[t] @ y, n by n: Fortran sees the transposes, so it is told y first.
GEMM = "declare void @sgemm_(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)\n" + (
    kernel(
        "gemm",
        ["out", "x", "y", "n"],
        """
  %no = alloca i8
  %size = alloca i32
  %one = alloca float
  %zero = alloca float
  store i8 78, ptr %no
  store float 1.0, ptr %one
  store float 0.0, ptr %zero
  %size.value = trunc i64 %n to i32
  store i32 %size.value, ptr %size
  %elements = mul i64 %n, %n
  %start = mul i64 %elements, %t
  %x.t = getelementptr float, ptr %x.p, i64 %start
  %out.t = getelementptr float, ptr %out.p, i64 %start
  call void @sgemm_(ptr %no, ptr %no, ptr %size, ptr %size, ptr %size, ptr %one, ptr %y.p,
                    ptr %size, ptr %x.t, ptr %size, ptr %zero, ptr %out.t, ptr %size)""",
    )
)


def products(threads: int, x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    image = link({"gemm": compile_object(GEMM, CpuTarget.named("x86-64"))})
    assert image.imports == ("sgemm_",)
    loaded = load_image(image.code, digest(image.code), image.imports)
    out = np.zeros_like(x)
    program = Program()
    operands = [program.pointer(Root.INPUTS + k) for k in range(3)]
    step = program.call("nothing", *operands, program.number(N), tiles=TILES)
    program.wave([step[0], image.entries["gemm"], *step[2:]])
    call = Call(program, np.zeros(1, np.int64))
    call.words[CallWord.CODE] = loaded.base
    roots = np.concatenate([call.roots, [array.ctypes.data for array in (out, x, y)]])
    call.words[CallWord.ROOTS] = roots.ctypes.data
    with blas.single_threaded as limited:
        assert limited
        result = call.run(threads)
    assert (result.status, result.used) == (Status.OK, threads)
    return out


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_products_have_the_same_bits_on_any_number_of_threads(threads: int) -> None:
    draw = np.random.default_rng(0)
    x = draw.random((TILES, N, N), np.float32)
    y = draw.random((N, N), np.float32)
    alone = products(1, x, y)
    assert np.allclose(alone, x @ y, rtol=1e-5)
    for _ in range(5):
        assert np.array_equal(products(threads, x, y), alone)
