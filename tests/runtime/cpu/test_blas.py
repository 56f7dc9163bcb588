"""scipy's BLAS from compiled code's point of view: Fortran's calls, many threads, one thread inside."""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.errors import ArtifactError
from dlc.runtime.cpu import blas
from dlc.runtime.cpu.blas import (
    SingleThreaded,
    library,
    numpy_library,
    numpy_single_threaded,
    single_threaded,
)

Matrix = NDArray[np.float32]
Integer = ctypes.c_int32


def sgemm(address: int, x: Matrix, y: Matrix) -> Matrix:
    """x @ y for row-major matrices, as (yᵀ xᵀ)ᵀ in Fortran's column order."""
    (m, k), n = x.shape, y.shape[1]
    out = np.empty((m, n), np.float32)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(address)
    plain, one, zero = ctypes.c_char(b"N"), ctypes.c_float(1), ctypes.c_float(0)
    integers = [Integer(number) for number in (n, m, k, n, k, n)]
    rows, columns, depth, first, second, third = (ctypes.addressof(i) for i in integers)
    plain_at, one_at, zero_at = (ctypes.addressof(value) for value in (plain, one, zero))
    call(
        *(plain_at, plain_at, rows, columns, depth, one_at, y.ctypes.data, first),
        *(x.ctypes.data, second, zero_at, out.ctypes.data, third),
    )
    return out


def matrices(size: int) -> tuple[Matrix, Matrix]:
    draw = np.random.default_rng(size)
    shape = (size, size)
    return draw.random(shape, np.float32), draw.random(shape, np.float32)


def get_threads() -> int:
    found = library().get_threads
    assert found is not None
    return found()


@pytest.fixture
def two_threads() -> object:
    """BLAS uses two threads during the test."""
    change = library().set_threads
    before = get_threads()
    assert change is not None
    change(2)
    yield None
    change(before)


def test_a_product_is_the_one_numpy_computes() -> None:
    x, y = matrices(100)
    assert np.allclose(sgemm(blas.address("sgemm_"), x, y), x @ y, rtol=1e-5)


def test_all_functions_are_found_without_importing_scipy() -> None:
    script = """
import sys
from dlc.runtime.cpu import blas
addresses = blas.library().addresses
assert set(addresses) == set(blas.NAMES) and all(addresses.values())
assert not [name for name in sys.modules if name.startswith("scipy")]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_scipys_own_table_of_functions_serves_where_the_libraries_hide_them() -> None:
    addresses = blas._capsules()  # pyright: ignore[reportPrivateUsage]
    x, y = matrices(100)
    direct = sgemm(blas.address("sgemm_"), x, y)
    assert set(addresses) == set(blas.NAMES)
    assert np.array_equal(sgemm(addresses["sgemm_"], x, y), direct)


def test_it_is_the_library_that_scipy_itself_uses(two_threads: None) -> None:
    importlib.import_module("scipy.linalg.blas")
    with open("/proc/self/maps") as lines:
        found = {Path(line.split()[-1]).name for line in lines if "libscipy_openblas-" in line}
    assert len(found) == 1


def test_openblas_says_its_version_and_core() -> None:
    assert library().config.startswith("OpenBLAS ")
    assert library().core


def test_the_core_follows_the_environment() -> None:
    script = "from dlc.runtime.cpu import blas; print(blas.library().core)"
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Nehalem"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Nehalem\n"


def test_inside_there_is_one_thread_and_outside_the_users_number(two_threads: None) -> None:
    with single_threaded as limited:
        assert limited
        assert get_threads() == 1
        with single_threaded:
            assert get_threads() == 1
        assert get_threads() == 1
    assert get_threads() == 2


def test_the_last_of_several_callers_restores_the_number(two_threads: None) -> None:
    inside = threading.Barrier(5)
    seen: list[int] = []

    def work() -> None:
        for _ in range(50):
            inside.wait()
            with single_threaded:
                seen.append(get_threads())

    callers = [threading.Thread(target=work) for _ in range(5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert set(seen) == {1} and len(seen) == 250
    assert get_threads() == 2


def test_a_number_set_meanwhile_by_the_user_stays(two_threads: None) -> None:
    change = library().set_threads
    assert change is not None
    with single_threaded:
        change(3)
    assert get_threads() == 3


def test_after_an_exception_the_number_is_restored(two_threads: None) -> None:
    with pytest.raises(ValueError, match="stop"), single_threaded:
        raise ValueError("stop")
    assert get_threads() == 2


def test_a_forked_child_gets_the_users_number_back() -> None:
    script = """
import os, threading
from dlc.runtime.cpu.blas import library, single_threaded
blas = library()
blas.set_threads(2)
entered, leave = threading.Event(), threading.Event()

def hold():
    with single_threaded:
        entered.set()
        leave.wait()

holder = threading.Thread(target=hold)
holder.start()
entered.wait()
child = os.fork()
if child == 0:
    assert blas.get_threads() == 2
    with single_threaded:
        assert blas.get_threads() == 1
    assert blas.get_threads() == 2
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert blas.get_threads() == 1
leave.set()
holder.join()
assert blas.get_threads() == 2
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_many_threads_call_at_once_and_each_gets_the_same_bits(two_threads: None) -> None:
    x, y = matrices(200)  # large enough for OpenBLAS to use its own threads, if it were let
    address = blas.address("sgemm_")
    wrong: list[Matrix] = []
    with single_threaded:
        expected = sgemm(address, x, y)

        def work() -> None:
            for _ in range(40):
                found = sgemm(address, x, y)
                if not np.array_equal(found, expected):
                    wrong.append(found)

        callers = [threading.Thread(target=work) for _ in range(6)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert not wrong


def test_products_of_numpy_can_be_kept_on_one_thread_too() -> None:
    found = numpy_library()
    if found.get_threads is None:
        pytest.skip("the BLAS of this NumPy has no switch")
    before, ours = found.get_threads(), get_threads()
    with numpy_single_threaded as limited:
        assert limited and found.get_threads() == 1 and get_threads() == ours
    assert found.get_threads() == before


def test_a_library_without_a_switch_says_so() -> None:
    silent = blas.Library({}, "", "", None, None)
    with SingleThreaded(lambda: silent) as limited:
        assert not limited


def test_without_scipy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_extension", lambda: None)
    library.cache_clear()
    try:
        with pytest.raises(ArtifactError, match="scipy is not installed") as caught:
            library()
    finally:
        library.cache_clear()
    assert caught.value.diagnostics[0].code == "D0614"
