"""A reader of ELF64 relocatable object files, limited to the needs of `dlc.codegen.link.image`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple

_FILE = struct.Struct("<16sHH20xQ12xHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_RELOCATABLE = 1


class _Header(NamedTuple):
    """A row of the section table."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_bytes: int

    def content(self, data: bytes) -> bytes:
        return data[self.offset : self.offset + self.size]


class _SymbolRow(NamedTuple):
    """A row of the symbol table."""

    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


class Machine(IntEnum):
    """The processors whose object files can be read (`e_machine`)."""

    X86_64 = 62


class SectionKind(IntEnum):
    """Kinds of sections that the linker handles (`sh_type`)."""

    PROGBITS = 1
    SYMTAB = 2
    RELA = 4
    NOTE = 7
    NOBITS = 8


class SectionFlag(IntFlag):
    """Properties of a section (`sh_flags`)."""

    WRITE = 0x1
    ALLOC = 0x2
    EXEC = 0x4
    TLS = 0x400


class Special(IntEnum):
    """Special section numbers of symbols outside all sections (`st_shndx`)."""

    UNDEFINED = 0
    RESERVED = 0xFF00  # from here on: absolute, common ...


class Binding(IntEnum):
    """The visibility of a symbol."""

    LOCAL = 0
    GLOBAL = 1
    WEAK = 2


class SymbolKind(IntEnum):
    """The kind of entity that a symbol names; the linker refuses other kinds."""

    NOTYPE = 0
    OBJECT = 1
    FUNCTION = 2
    SECTION = 3
    FILE = 4
    COMMON = 5
    TLS = 6
    INDIRECT = 10


@dataclass(frozen=True, slots=True)
class Section:
    """A section of an object file; `data` is empty for a section of zeros (`.bss`)."""

    name: str
    kind: int
    flags: SectionFlag
    size: int
    alignment: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named address: offset `value` in section number `section`, unless that is a `Special`."""

    name: str
    kind: int
    binding: int
    hidden: bool
    section: int
    value: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """Bytes at `offset` of section number `section` that depend on the final address of `symbol`."""

    section: int
    offset: int
    kind: int
    symbol: Symbol
    addend: int


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """An object file: sections by number, symbols and relocations in the order of the file."""

    machine: Machine
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


def read_object(data: bytes) -> ObjectFile:
    """Parse a little-endian ELF64 relocatable object file, which must come from our own compiler."""
    first: int
    names: int
    ident, kind, machine, first, count, names = _FILE.unpack_from(data)
    assert ident[:6] == b"\x7fELF\x02\x01" and kind == _RELOCATABLE, "not an ELF64 object file"
    end = first + count * _SECTION.size
    headers = [_Header(*row) for row in _SECTION.iter_unpack(data[first:end])]
    sections = tuple(_section(data, header, headers[names].offset) for header in headers)
    symbols = _symbols(data, headers)
    return ObjectFile(Machine(machine), sections, symbols, _relocations(data, headers, symbols))


def _section(data: bytes, header: _Header, names: int) -> Section:
    stored = header.kind != SectionKind.NOBITS
    return Section(
        name=_string(data, names + header.name),
        kind=header.kind,
        flags=SectionFlag(header.flags),
        size=header.size,
        alignment=max(1, header.alignment),
        data=header.content(data) if stored else b"",
    )


def _symbols(data: bytes, headers: Sequence[_Header]) -> tuple[Symbol, ...]:
    for header in headers:
        if header.kind == SectionKind.SYMTAB:
            names = headers[header.link].offset
            rows = _SYMBOL.iter_unpack(header.content(data))
            return tuple(_symbol(data, _SymbolRow(*row), names) for row in rows)
    return ()


def _symbol(data: bytes, row: _SymbolRow, names: int) -> Symbol:
    return Symbol(
        name=_string(data, names + row.name),
        kind=row.info & 15,
        binding=row.info >> 4,
        hidden=row.other & 3 != 0,
        section=row.section,
        value=row.value,
    )


def _relocations(
    data: bytes, headers: Sequence[_Header], symbols: Sequence[Symbol]
) -> tuple[Relocation, ...]:
    found: list[Relocation] = []
    for header in headers:
        if header.kind == SectionKind.RELA:
            for row in _RELOCATION.iter_unpack(header.content(data)):
                offset, info, addend = (int(word) for word in row)
                symbol = symbols[info >> 32]
                found.append(Relocation(header.info, offset, info & 0xFFFFFFFF, symbol, addend))
    return tuple(found)


def _string(data: bytes, start: int) -> str:
    return data[start : data.index(0, start)].decode()
