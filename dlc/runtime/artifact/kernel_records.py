"""Records of kernels for profiles: what each op of a program computes and moves, and its name.

Loading does not read this section. With it a profile needs nothing of the compiler: amounts are sizes as in
the manifest, and the roof is that of the target that the code was made for.
"""

# Without deferred annotations: the schema reads the classes as they are.
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dlc.runtime.artifact import canonical_json, schema


class Roof(NamedTuple):
    """The best rates of a target: femtoseconds for an operation, and picoseconds for a byte by level.

    `levels` has the caches from the first on, as bytes and picoseconds for a byte; the last is memory.
    """

    operation: int = 0
    levels: tuple[tuple[int, int], ...] = ()


class KernelRecord(NamedTuple):
    """An op: the path of its module, what it computes, and how much, as sizes.

    `places` are those in the user's texts, as `file:line:col`, the main one first.
    """

    path: str = ""
    what: str = ""
    operations: str = "0"
    bytes: str = "0"
    places: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """`blocks.3.mlp.up · matmul 128×512×2048 + gelu`."""
        return " · ".join(part for part in (self.path, self.what) if part)


class KernelRecords(NamedTuple):
    """The ops of one program by op id, and the roof of its target."""

    roof: Roof = Roof()
    kernels: tuple[KernelRecord, ...] = ()


class GpuRoof(NamedTuple):
    """The best rates of a GPU: operations, or bytes, in a nanosecond."""

    operations: int = 0
    """Of f32 without matrix instructions; 0 if not known."""
    memory: int = 0
    cache_bytes: int = 0
    """What its second-level cache holds."""
    cache: int = 0
    """From and to there."""
    matrices: Mapping[str, int] = MappingProxyType({})
    """Operations of the kernels that have matrix instructions, by name."""


def gpu_roof_section(target: str) -> str:
    """The name of the section with the roof of a GPU."""
    return f"roof/{target}"


def read_gpu_roof(data: bytes) -> GpuRoof:
    """Parse a section. Raises ValueError, which says what is malformed."""
    return schema.decode(GpuRoof, canonical_json.load(data))


def gpu_roof_bytes(roof: GpuRoof) -> bytes:
    """What a section holds for this roof."""
    return canonical_json.dump(schema.encode(roof))


def kernels_section(target: str, entry: str) -> str:
    """The name of the section with the kernels of an entry point."""
    return f"kernels/{target}/{entry}"


def read_kernel_records(data: bytes) -> KernelRecords:
    """Parse a section. Raises ValueError, which says what is malformed."""
    return schema.decode(KernelRecords, canonical_json.load(data))


def kernel_records_bytes(records: KernelRecords) -> bytes:
    """What a section holds for these records."""
    return canonical_json.dump(schema.encode(records))
