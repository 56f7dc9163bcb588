"""The features of processors by LLVM's names, and those of this machine, detected without LLVM.

Compiled code records the features that it needs. The compiler and the loader read the same table, so the
loader checks every feature that the compiler uses.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CACHE_FACTS = ("level", "type", "size")

FEATURES: Mapping[str, str] = {
    "sse3": "pni",
    "ssse3": "ssse3",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "sse4a": "sse4a",
    "popcnt": "popcnt",
    "cx16": "cx16",
    "sahf": "lahf_lm",
    "avx": "avx",
    "f16c": "f16c",
    "avx2": "avx2",
    "fma": "fma",
    "fma4": "fma4",
    "xop": "xop",
    "tbm": "tbm",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "lzcnt": "abm",
    "movbe": "movbe",
    "prfchw": "3dnowprefetch",
    "gfni": "gfni",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
    "avxvnni": "avx_vnni",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
}
"""Features that LLVM may use when it selects instructions, each with its flag in Linux' /proc/cpuinfo."""

UNUSED = (
    *("avx10.1", "avx10.2", "avx512vp2intersect", "avxifma", "avxneconvert"),
    *("avxvnniint16", "avxvnniint8", "ccmp", "cf", "cmpccxadd", "egpr", "ndd", "nf", "ppx"),
    *("push2pop2", "raoint", "zu"),
)
"""Features that newer processors imply and our targets disable: Linux does not report all of them."""

_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_ICELAKE = (
    *(*_V4, "avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni"),
    *("avx512vpopcntdq", "gfni", "prfchw", "vaes", "vpclmulqdq"),
)
_ZEN = (*_V3, "prfchw", "sse4a")

LEVELS: Mapping[str, tuple[str, ...]] = {
    "x86-64": (),
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
}
"""The levels of the x86-64 psABI, each with its features."""

NAMED: Mapping[str, tuple[str, ...]] = {
    "haswell": _V3,
    "skylake": (*_V3, "prfchw"),
    "skylake-avx512": (*_V4, "prfchw"),
    "cascadelake": (*_V4, "avx512vnni", "prfchw"),
    "icelake-server": _ICELAKE,
    "sapphirerapids": (*_ICELAKE, "avx512bf16", "avx512fp16", "avxvnni"),
    "znver1": _ZEN,
    "znver2": _ZEN,
    "znver3": (*_ZEN, "vaes", "vpclmulqdq"),
    "znver4": (*_ICELAKE, "avx512bf16", "sse4a"),
    "znver5": (*_ICELAKE, "avx512bf16", "avxvnni", "sse4a"),
}
"""Processors that can be named as a target, each with its features among `FEATURES`."""


@cache
def host_features() -> frozenset[str]:
    """The features of this machine among `FEATURES`; empty if it is not x86-64 Linux."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return frozenset()
    flags = set(_cpuinfo("flags").split())
    return frozenset(feature for feature, flag in FEATURES.items() if flag in flags)


@cache
def host_model() -> str:
    """The model name that the processor reports, such as "AMD EPYC"; empty if unknown."""
    return _cpuinfo("model name")


@cache
def host_caches() -> Mapping[int, int]:
    """Bytes of the data caches of a core by level; empty if Linux does not report them."""
    caches: dict[int, int] = {}
    for folder in sorted(_CACHES.glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in _CACHE_FACTS)
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            caches[int(level)] = int(size.removesuffix("K")) * 1024
    return caches


def missing_features(required: Iterable[str]) -> list[str]:
    """The features (by LLVM's names) that this machine lacks, sorted, including unknown names."""
    return sorted(set(required) - host_features())


def _cpuinfo(key: str) -> str:
    """The value of a key for the first processor; the rest of the file repeats it for every core."""
    try:
        with _CPUINFO.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == key:
                    return value.strip()
    except OSError:
        pass
    return ""
