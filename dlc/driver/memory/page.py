"""The memory of a model as one HTML page that needs nothing else: pictures, tables, and a word on what is
under the pointer.

The pictures are those of `picture`. A small script shows what is said about a rectangle, tells for each
wave how much is in use and which ops run, and marks in the picture what a row of a table is about; where
scripts do not run the page shows the same but for the waves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

from dlc.driver.call_memory.facts import EntryMemory, Root, Work, sizes_text
from dlc.driver.memory.asked import ModelMemory
from dlc.driver.memory.picture import LEFT, STYLE, TOP, colours, draw, kind_of
from dlc.driver.memory.report import also_text, percent, waves_text
from dlc.runtime.model_repr import bytes_text

ROWS = 100
"""The most values in the table of a peak."""

_INTRODUCTION = (
    "A rectangle is a stretch of the arena while it is in use: its height is bytes, its width the waves "
    "from its first to its last use. Rest the pointer on one, on a wave, or on a row of a table."
)
_CSS = """
body{margin:0 auto;max-width:1330px;padding:24px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:22px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 8px}h3{font-size:15px;margin:20px 0 6px}
p,.soft{color:var(--soft)}p{margin:4px 0 12px}
code,td,.tip{font:12px/1.5 ui-monospace,Menlo,Consolas,monospace}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:12px 0}
.tile{border:1px solid var(--grid);border-radius:8px;padding:8px 14px;min-width:110px}
.tile b{display:block;font-size:19px}.tile span{font-size:12px;color:var(--soft)}
.scroll{overflow-x:auto}
section svg .title{display:none}
table{border-collapse:collapse;width:100%}
th{font-size:12px;text-align:left;color:var(--soft);font-weight:normal}
th,td{padding:3px 14px 3px 0;border-bottom:1px solid var(--grid);vertical-align:top}
.number{text-align:right;white-space:nowrap}
tbody tr:hover{background:var(--grid)}
.dot{display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:6px}
.tip{position:fixed;display:none;max-width:620px;padding:8px 12px;border-radius:8px;z-index:1;
background:var(--paper);border:1px solid var(--soft);box-shadow:0 4px 16px #0004;white-space:pre-wrap;
pointer-events:none}
"""

_SCRIPT = """
const tip = document.querySelector(".tip");
const bytes = n => n.toLocaleString("en-US") + " bytes";
function show(event, text) {
  tip.textContent = text;
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const below = event.clientY + 18 + box.height < innerHeight;
  tip.style.left = Math.max(8, x) + "px";
  tip.style.top = (below ? event.clientY + 18 : Math.max(8, event.clientY - box.height - 12)) + "px";
}
for (const section of document.querySelectorAll("section")) {
  const svg = section.querySelector("svg");
  const facts = JSON.parse(section.querySelector("script").textContent);
  for (const title of svg.querySelectorAll("title")) {
    title.parentNode.dataset.told = title.textContent;
    title.remove();
  }
  const hair = svg.querySelector(".hair");
  svg.addEventListener("mousemove", event => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const wave = Math.floor((at.x - facts.left) / facts.column);
    const inside = wave >= 0 && wave < facts.alive.length && at.y > facts.top;
    hair.setAttribute("visibility", inside ? "visible" : "hidden");
    if (!inside) { tip.style.display = "none"; return; }
    hair.setAttribute("x", facts.left + wave * facts.column);
    const told = event.target.dataset.told;
    const now = "wave " + wave + ": " + bytes(facts.alive[wave]) + " in use";
    show(event, told ? told + "\\n\\n" + now : [now, ...facts.work[wave]].join("\\n"));
  });
  svg.addEventListener("mouseleave", () => {
    tip.style.display = "none";
    hair.setAttribute("visibility", "hidden");
  });
  for (const row of section.querySelectorAll("tr[data-root]")) {
    const drawn = svg.querySelector('[data-root="' + row.dataset.root + '"]');
    if (!drawn) continue;
    row.addEventListener("mouseenter", () => drawn.classList.add("lit"));
    row.addEventListener("mouseleave", () => drawn.classList.remove("lit"));
  }
}
"""


def html_page(memory: ModelMemory) -> str:
    """The whole page."""
    sections = "\n".join(_section(memory, entry) for entry in memory.entries)
    name = escape(memory.model)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>Memory of {name}</title>\n"
        f"<style>\n{colours(':root')}{STYLE}{_CSS}</style>\n</head>\n<body>\n"
        f"<h1>Memory of {name}</h1>\n<p>{_INTRODUCTION}</p>\n{sections}\n"
        f'<div class="tip"></div>\n<script>{_SCRIPT}</script>\n'
        "</body>\n</html>\n"
    )


def _section(memory: ModelMemory, entry: EntryMemory) -> str:
    head = f"<h2>{escape(entry.name)}{escape(sizes_text(entry.dims))}</h2>"
    if not entry.roots:
        return f"{head}\n<p>Nothing is in the arena.</p>"
    tiles = "".join(_tile(*tile) for tile in _tiles(entry))
    return (
        f'<section>\n{head}\n<div class="tiles">{tiles}</div>\n'
        f'<div class="scroll">{_svg(memory, entry)}</div>\n'
        f"<h3>In use at the peak, wave {entry.peak}</h3>\n{_table(memory, entry)}\n</section>"
    )


def _tiles(entry: EntryMemory) -> Iterator[tuple[str, str, str]]:
    """The key figures: a name, an amount and a remark for each."""
    need = entry.need
    yield "arena", bytes_text(entry.arena), f"{len(entry.roots)} roots, {entry.waves} waves"
    yield "this order", bytes_text(entry.order_bound), percent(entry.order_gap)
    yield "any order", bytes_text(entry.any_order_bound), percent(entry.any_order_gap)
    yield "results", bytes_text(need.results), "besides"
    yield "weights", bytes_text(need.weights - need.prepared), "besides"
    if need.prepared:
        yield "prepared weights", bytes_text(need.prepared), "besides"
    if need.call.scratch:
        yield "scratch", bytes_text(need.call.scratch), "for each thread"


def _tile(name: str, amount: str, remark: str) -> str:
    return (
        f'<div class="tile"><span>{escape(name)}</span><b>{escape(amount)}</b>'
        f"<span>{escape(remark)}</span></div>"
    )


def _svg(memory: ModelMemory, entry: EntryMemory) -> str:
    """The picture with the bar that marks a wave, and the facts that the script tells."""
    picture = draw(entry, memory.line)
    width, height = picture.width, picture.height
    column = picture.column
    bar = (
        f'<rect class="hair" visibility="hidden" y="{TOP:g}" width="{column:.3f}" '
        f'height="{height - TOP:.0f}" fill="var(--ink)" fill-opacity=".09" pointer-events="none"/>'
    )
    work: list[list[str]] = [[] for _ in range(entry.waves)]
    for each in entry.work:
        work[each.wave].append(str(each))
    facts = {"left": LEFT, "top": TOP, "column": column, "alive": entry.alive, "work": work}
    data = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="img">\n<rect width="100%" height="100%" fill="none" pointer-events="all"/>\n'
        f'{picture.inside}\n{bar}\n</svg>\n<script type="application/json">{data}</script>'
    )


def _table(memory: ModelMemory, entry: EntryMemory) -> str:
    names = ("value", "made by", "kept for", "also there")
    head = "".join(f"<th>{name}</th>" for name in names)
    head = f'<th class="number">bytes</th><th class="number">waves</th>{head}'
    rows = "\n".join(_row(memory, root) for root in entry.at_peak[:ROWS])
    more = len(entry.at_peak) - ROWS
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>{rest}"
    )


def _row(memory: ModelMemory, root: Root) -> str:
    kind = kind_of(root)
    dot = f'<span class="dot" style="background:var(--{kind})"></span>'
    cells = [
        f'<td class="number">{root.bytes:,}</td><td class="number">{waves_text(root)}</td>',
        f"<td>{dot}{escape(root.title)}</td>",
        *[_work_cell(memory, work) for work in (root.maker, root.last_reader)],
        f"<td>{escape(also_text(root))}</td>",
    ]
    return f'<tr data-root="{root.number}">{"".join(cells)}</tr>'


def _work_cell(memory: ModelMemory, work: Work | None) -> str:
    if work is None:
        return "<td></td>"
    line = escape(memory.line(work.place), quote=True)
    return f'<td title="{line}">{escape(work.what)} <span class="soft">{escape(work.place)}</span></td>'
