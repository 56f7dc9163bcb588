"""Probes: calls of a program that hand a value over instead of computing one.

A program with probes has the kernels and the memory of the one without, and more waves: each stands behind
a wave that writes values, and calls a function of this process with their addresses. The machine code is
the same, and so are the results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.abi import HEADER_WORDS, STEP_WORDS, Opcode, StepWord
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.calling.sized_program import CompiledProgram

Array = NDArray[np.generic]
See = Callable[[int, Array], None]
"""Takes the number of a probe, and a copy of the bits of its value."""

PROBE = "dlc.probe"
"""What the kernel of a probe's call is called. No kernel of a model has a dot in its name."""

KERNEL = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_int64),
)
"""A kernel as `dlc.runtime.abi` describes it."""


class Probed(NamedTuple):
    """The value of a probe. Its call passes an address, the probe's number, the shape and the strides."""

    dtype: str
    rank: int


class Listener:
    """The function that the probes of a program call; it lives as long as the program may run."""

    def __init__(self, probes: Sequence[Probed], see: See) -> None:
        self._probes = probes
        self._see = see
        self._function = KERNEL(self._called)
        self.failures: list[Exception] = []
        """What `see` raised. An exception cannot leave a call of machine code."""

    def connect(self, program: CompiledProgram, code: int) -> None:
        """Let the probes of a program call this function, where kernels are mapped at `code`."""
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        assert address is not None
        words = program.words.view(np.dtype("<i8"))
        steps = words[HEADER_WORDS : HEADER_WORDS + int(words[0]) * STEP_WORDS]
        ops = program.program.ops
        for step in steps.reshape(-1, STEP_WORDS):
            is_call = step[StepWord.OPCODE] == Opcode.CALL
            if is_call and ops[int(step[StepWord.F])].kernel == PROBE:
                step[StepWord.A] = address - code

    def _called(self, arguments: list[int], first: int, last: int, fault: object) -> None:
        number = arguments[1]
        dtype, rank = DTYPES[self._probes[number].dtype].numpy, self._probes[number].rank
        shape = tuple([arguments[2 + k] for k in range(rank)])
        steps = tuple([arguments[2 + rank + k] * dtype.itemsize for k in range(rank)])
        try:
            self._see(number, _copied(arguments[0], dtype, shape, steps))
        except Exception as error:  # noqa: BLE001 - it is raised again when the call has ended
            self.failures.append(error)


def _copied(
    address: int, dtype: np.dtype[np.generic], shape: tuple[int, ...], steps: tuple[int, ...]
) -> Array:
    """The array at an address, copied; `steps` are in bytes."""
    if 0 in shape:
        return np.empty(shape, dtype)
    length = dtype.itemsize + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    memory = memoryview((ctypes.c_char * length).from_address(address))
    return np.ndarray(shape, dtype, memory, 0, steps).copy()
