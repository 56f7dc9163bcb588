"""Linking object files into one flat, position-independent image, which a loader only has to copy.

An image consists of the import table (8 bytes for each imported function, zero until the loader writes the
address), a stub for each imported function, the code, and the constants. References between these are
relative, so the linker resolves all of them. Anything that needs more work of the loader is refused by
name: absolute addresses, thread-local storage, writable data, initialisers, functions outside the list of
imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

from dlc.codegen.link.elf import (
    Binding,
    Machine,
    ObjectFile,
    Relocation,
    Section,
    SectionFlag,
    SectionKind,
    Special,
    Symbol,
    SymbolKind,
    read_object,
)
from dlc.errors import InternalError
from dlc.runtime.abi import IMPORTS, is_collective

ANONYMOUS = "kernel"
"""A function of this name has the name of its file, so that equal functions are one file of a cache."""

SLOT_BYTES = 8
CODE_ALIGNMENT = 64
PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Image:
    """The bytes of code and constants in memory, from any page boundary on.

    `entries` maps each global function to its offset. `imports` names the imported functions: the loader
    writes the address of number k to the 8 bytes at offset 8 * k, which are zero in the image.
    """

    code: bytes
    entries: Mapping[str, int]
    imports: tuple[str, ...]


class Reach(Enum):
    """The target of the distance that a relocation stores."""

    PLACE = auto()  # the symbol itself, or the stub of an imported function
    SLOT = auto()  # the eight bytes that hold the symbol's address


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for a kind of relocation, which stores a signed 32-bit distance at its offset."""

    name: str
    reach: Reach


RULES: Mapping[Machine, Mapping[int, Rule]] = {
    Machine.X86_64: {
        2: Rule("R_X86_64_PC32", Reach.PLACE),
        4: Rule("R_X86_64_PLT32", Reach.PLACE),
        9: Rule("R_X86_64_GOTPCREL", Reach.SLOT),
        41: Rule("R_X86_64_GOTPCRELX", Reach.SLOT),
        42: Rule("R_X86_64_REX_GOTPCRELX", Reach.SLOT),
    },
}

REFUSED: Mapping[Machine, Mapping[int, str]] = {
    Machine.X86_64: {
        1: "R_X86_64_64, an absolute address",
        10: "R_X86_64_32, an absolute address",
        11: "R_X86_64_32S, an absolute address",
        19: "R_X86_64_TLSGD, thread-local storage",
        20: "R_X86_64_TLSLD, thread-local storage",
        22: "R_X86_64_GOTTPOFF, thread-local storage",
        23: "R_X86_64_TPOFF32, thread-local storage",
    },
}

_MOV, _LEA = 0x8B, 0x8D


def link(objects: Mapping[str, bytes]) -> Image:
    """Link object files, given by name in the order of their layout, into an image.

    Global functions of a file can be called from the others; one that is `ANONYMOUS` has the name of its
    file. Raises `InternalError`, naming file and symbol, for two functions of the same name and for
    anything that an image cannot hold.
    """
    linker = _Linker({name: read_object(data) for name, data in objects.items()})
    return linker.link()


@dataclass(frozen=True, slots=True)
class _Place:
    """A symbol with its file, to look up the offset of its section."""

    file: str
    symbol: Symbol


class _Linker:
    def __init__(self, objects: Mapping[str, ObjectFile]) -> None:
        self.objects = objects
        self.exported: dict[str, _Place] = {}
        self.imports: tuple[str, ...] = ()
        self.starts: dict[
            tuple[str, int], int
        ] = {}  # (file, section number) -> offset in the image
        self.code = bytearray()

    def link(self) -> Image:
        for name, found in self.objects.items():
            _refuse_sections(name, found)
            self._export(name, found)
        self.imports = self._imported_functions()
        self._write_imports()
        self._write_sections(SectionFlag.EXEC, filler=b"\xcc")
        self._write_sections(SectionFlag(0), filler=b"\x00")
        for name, found in self.objects.items():
            for relocation in found.relocations:
                if (name, relocation.section) in self.starts:
                    self._resolve(name, found.machine, relocation)
        entries = {
            name: self._offset(place.file, place.symbol)
            for name, place in sorted(self.exported.items())
            if place.symbol.kind == SymbolKind.FUNCTION
        }
        return Image(bytes(self.code), MappingProxyType(entries), self.imports)

    def _export(self, file: str, found: ObjectFile) -> None:
        for symbol in found.symbols:
            _refuse_symbol(file, symbol)
            if symbol.section == Special.UNDEFINED or symbol.hidden:
                continue
            if symbol.binding == Binding.GLOBAL:
                name = file if symbol.name == ANONYMOUS else symbol.name
                earlier = self.exported.setdefault(name, _Place(file, symbol))
                if earlier.symbol is not symbol:
                    raise InternalError(f"{file} and {earlier.file} both define {name}")

    def _imported_functions(self) -> tuple[str, ...]:
        names: set[str] = set()
        for file, found in self.objects.items():
            for relocation in found.relocations:
                symbol = relocation.symbol
                if symbol.section != Special.UNDEFINED or symbol.name in self.exported:
                    continue
                if symbol.name not in IMPORTS and not is_collective(symbol.name):
                    raise InternalError(
                        f"{file} uses {symbol.name}, which is not on the list of imports"
                    )
                names.add(symbol.name)
        return tuple(sorted(names))

    def _write_imports(self) -> None:
        """Write the import table, then the stub of each function: `jmp *slot(%rip)` and two trap bytes."""
        self.code += bytes(SLOT_BYTES * len(self.imports))
        for slot in range(len(self.imports)):
            after_jump = len(self.code) + 6
            distance = SLOT_BYTES * slot - after_jump
            self.code += b"\xff\x25" + distance.to_bytes(4, "little", signed=True) + b"\xcc\xcc"

    def _write_sections(self, wanted: SectionFlag, filler: bytes) -> None:
        """Write all executable sections, or all other sections of the image."""
        for file, found in self.objects.items():
            for number, section in enumerate(found.sections):
                if not _is_loaded(section) or section.flags & SectionFlag.EXEC != wanted:
                    continue
                alignment = max(section.alignment, CODE_ALIGNMENT if wanted else 1)
                self.code += filler * (-len(self.code) % alignment)
                self.starts[file, number] = len(self.code)
                self.code += section.data

    def _offset(self, file: str, symbol: Symbol) -> int:
        return self.starts[file, symbol.section] + symbol.value

    def _resolve(self, file: str, machine: Machine, relocation: Relocation) -> None:
        rule = RULES[machine].get(relocation.kind)
        symbol = relocation.symbol
        if rule is None:
            kind = REFUSED[machine].get(relocation.kind, f"relocation {relocation.kind}")
            raise InternalError(f"{file} refers to {symbol.name or 'a constant'} by {kind}")
        place = self.starts[file, relocation.section] + relocation.offset
        distance = self._target(file, symbol, rule, place) + relocation.addend - place
        if not -(1 << 31) <= distance < 1 << 31:
            raise InternalError(f"{file}: {symbol.name} is out of reach of a 32-bit distance")
        self.code[place : place + 4] = distance.to_bytes(4, "little", signed=True)

    def _target(self, file: str, symbol: Symbol, rule: Rule, place: int) -> int:
        """The offset in the image of the target of a relocation at `place`."""
        if symbol.section == Special.UNDEFINED and symbol.name not in self.exported:
            slot = self.imports.index(symbol.name)
            if rule.reach is Reach.SLOT:
                return SLOT_BYTES * slot
            return SLOT_BYTES * (len(self.imports) + slot)
        if rule.reach is Reach.SLOT:
            self._relax(file, symbol, rule, place)
        if symbol.section == Special.UNDEFINED:
            file, symbol = self.exported[symbol.name].file, self.exported[symbol.name].symbol
        if (file, symbol.section) not in self.starts:
            raise InternalError(f"{file} refers to {symbol.name}, which is not part of an image")
        return self._offset(file, symbol)

    def _relax(self, file: str, symbol: Symbol, rule: Rule, place: int) -> None:
        """Symbols of the image have no slot: `mov slot(%rip), %reg` becomes `lea symbol(%rip), %reg`."""
        if self.code[place - 2] != _MOV:
            raise InternalError(f"{file} refers to {symbol.name} by {rule.name} outside a move")
        self.code[place - 2] = _LEA


def _is_loaded(section: Section) -> bool:
    """Whether the image holds the section: unwind tables and notes are left out."""
    loaded = SectionFlag.ALLOC in section.flags and section.kind == SectionKind.PROGBITS
    return loaded and section.name != ".eh_frame"


def _refuse_sections(file: str, found: ObjectFile) -> None:
    for section in found.sections:
        if section.size == 0 or SectionFlag.ALLOC not in section.flags:
            continue
        if SectionFlag.TLS in section.flags:
            raise InternalError(f"{file} has thread-local storage in section {section.name}")
        if section.name.startswith((".init_array", ".fini_array", ".ctors", ".dtors")):
            raise InternalError(f"{file} has initialisers in section {section.name}")
        if SectionFlag.WRITE in section.flags and not section.name.startswith(".data.rel.ro"):
            raise InternalError(f"{file} has writable data in section {section.name}")
        if section.alignment > PAGE_BYTES:
            raise InternalError(f"{file}: section {section.name} is aligned to more than a page")


def _refuse_symbol(file: str, symbol: Symbol) -> None:
    if symbol.kind == SymbolKind.TLS:
        raise InternalError(f"{file} has thread-local storage: {symbol.name}")
    if symbol.kind in (SymbolKind.COMMON, SymbolKind.INDIRECT):
        raise InternalError(f"{file}: {symbol.name} is of a kind that an image cannot hold")
    if symbol.section >= Special.RESERVED and symbol.kind != SymbolKind.FILE:
        raise InternalError(f"{file}: {symbol.name} belongs to no section")
