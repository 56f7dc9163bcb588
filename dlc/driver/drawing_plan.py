"""The plan of entry points as a picture: the arena from left to right in waves, bottom to top in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from dlc.dialects import mem
from dlc.dialects.comm import HOST
from dlc.driver.svg import MARGIN, TITLE, document
from dlc.ir.core import Value
from dlc.ir.evaluation import Evaluation
from dlc.ir.types import ViewType
from dlc.lowering.plan_evaluation import arena_offsets

HEIGHT = 300.0
"""The height of the whole arena."""
COLUMN = 68.0
"""The width of a wave."""
DEVICE = 40.0
"""The room for a device's name."""
_SMALL = 6.7
_LINE = 15.0
_LEAST = 2.0
"""The least height of what is drawn, however few its bytes."""


def draw_plans(programs: Sequence[mem.Program]) -> str:
    """An SVG picture of where programs keep their values, one above the other.

    Named sizes have their lowest values, those that a call measures their limits. A rectangle is a
    value in the arena while it is alive, with the type of what is written there first; below each wave
    stand its kernels. Lines part the devices, where there are several.
    """
    parts: list[str] = []
    top, widest = MARGIN, 0.0
    for program in programs:
        picture = _Picture(program, top)
        parts += picture.parts()
        top += picture.height + MARGIN
        widest = max(widest, picture.width)
    return document(widest, top, parts)


class _Picture:
    """One program, drawn from `top` on."""

    def __init__(self, program: mem.Program, top: float) -> None:
        self.program = program
        self.top = top
        self.sizes = {name: low for name, (low, _) in program.bounds.items()}
        known = Evaluation(self.sizes)
        self.sizes |= {name: known.size(size) for name, size in program.limit_of.items()}
        self.at = Evaluation(self.sizes)
        self.roots = {
            root.number: root
            for root in program.walk()
            if isinstance(root, mem.Root) and root.kind == "arena"
        }
        self.starts = arena_offsets(self.roots.values(), self.at)
        self.peak = max([self._end(number) for number in self.roots], default=0)
        self.kernels = [list(_kernels(wave)) for wave in _waves(program)]
        self.begins: dict[str, int] = {}
        for number, root in self.roots.items():
            device, start = root.device or HOST, self.starts[number]
            self.begins[device] = min(start, self.begins.get(device, start))
        self.named = DEVICE if self.begins.keys() - {HOST} else 0.0

    @property
    def width(self) -> float:
        return max(len(self.title) * 9.0, len(self.kernels) * COLUMN + self.named) + 2 * MARGIN

    @property
    def height(self) -> float:
        rows = max(map(len, self.kernels), default=0)
        return TITLE + (HEIGHT if self.peak else 0) + (rows + 1) * _LINE + 10

    @property
    def title(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        where = f" at {sizes}" if sizes else ""
        return f"{self.program.sym_name}: {self.peak:,} bytes{where}"

    def parts(self) -> Iterator[str]:
        yield f'<text class="title" x="{MARGIN:g}" y="{self.top + 12:g}">{escape(self.title)}</text>'
        floor = self.top + TITLE + (HEIGHT if self.peak else 0)
        width = len(self.kernels) * COLUMN
        yield f'<path d="M{MARGIN:g} {floor:g}H{MARGIN + width:g}"/>'
        for number, kernels in enumerate(self.kernels):
            x = MARGIN + (number + 0.5) * COLUMN
            for row, text in enumerate([str(number), *kernels]):
                yield _small(x, floor + 14 + row * _LINE, text)
        yield from self._device_floors(floor, width)
        for number, root in self.roots.items():
            yield from self._rectangle(number, root, floor)

    def _device_floors(self, floor: float, width: float) -> Iterator[str]:
        """A line where the part of each device begins, with its name, where one is not the host."""
        for device, start in self.begins.items() if self.named else ():
            y = floor - start * HEIGHT / self.peak
            yield f'<path d="M{MARGIN:g} {y:.1f}H{MARGIN + width + self.named:g}"/>'
            yield _small(MARGIN + width + self.named / 2, y - 4, device)

    def _rectangle(self, number: int, root: mem.Root, floor: float) -> Iterator[str]:
        scale = HEIGHT / self.peak if self.peak else 0
        x = MARGIN + root.first * COLUMN + 1
        width = (root.last - root.first + 1) * COLUMN - 2
        height = max((self._end(number) - self.starts[number]) * scale - 1, _LEAST)
        y = floor - self.starts[number] * scale - height
        kind = _type(root.result)
        said = f"{kind}: {self.at.size(root.bytes):,} bytes at {self.starts[number]:,}"
        yield (
            f'<rect class="input" x="{x:g}" y="{y:.1f}" width="{width:g}" height="{height:.1f}" '
            f'rx="3"><title>{escape(said)}</title></rect>'
        )
        if height >= _LINE and len(kind) * _SMALL <= width:
            yield _small(x + width / 2, y + height / 2 + 4, kind)

    def _end(self, number: int) -> int:
        return self.starts[number] + self.at.size(self.roots[number].bytes)


def _waves(program: mem.Program) -> list[mem.Wave]:
    return [op for op in program.walk() if isinstance(op, mem.Wave)]


def _kernels(wave: mem.Wave) -> Iterator[str]:
    """What the operations of a wave are called, without numbers and dialects, and how many there are."""
    names = [
        op.kernel.name if isinstance(op, mem.Call) else op.name
        for op in wave.body
        if not op.terminator
    ]
    kinds = Counter(name.rpartition(".")[2].rstrip("0123456789_") for name in names)
    for kind, count in kinds.items():
        yield kind if count == 1 else f"{count} {kind}"


def _type(root: Value) -> str:
    """The type of the first view of a root, as the language writes it."""
    view = next((use.result.type for use in root.uses if use.results), None)
    if not isinstance(view, ViewType):
        return ""
    return f"{view.dtype.name}[{', '.join(map(str, view.shape))}]"


def _small(x: float, y: float, text: str) -> str:
    return f'<text class="small" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'
