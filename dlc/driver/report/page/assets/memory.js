// The memory plan: what lies where in the arena, from wave to wave.

class MemoryView {
  constructor(app, entry) {
    this.app = app;
    this.memory = entry.memory;
    this.mode = innerWidth < 700 ? "values" : "offsets";
    this.zoomed = 1;
    const modes = make("select", { "aria-label": "Arrangement", onchange: () => {
      this.mode = modes.value;
      this.draw();
    } }, make("option", { value: "offsets" }, "by offset"), make("option", { value: "values" }, "by value"));
    modes.value = this.mode;
    this.tools = [
      modes,
      make("button", { type: "button", title: "Zoom out (-)", onclick: () => this.zoom(1 / 1.5) }, "−"),
      make("button", { type: "button", title: "Zoom in (+)", onclick: () => this.zoom(1.5) }, "+"),
      make("button", { type: "button", title: "Fit (0)", onclick: () => this.fit() }, "fit"),
    ];
    this.head = make("div", { class: "legend" });
    this.canvas = make("div", { class: "canvas" });
    this.element = make("div", { class: "memory" }, this.head, this.canvas);
    this.canvas.addEventListener("pointermove", event => this.tell(event));
    this.canvas.addEventListener("pointerleave", () => app.hideTip());
    this.canvas.addEventListener("click", event => this.act(event));
    this.canvas.addEventListener("keydown", event => { if (event.key === "Enter") this.act(event); });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.showHead();
  }

  showHead() {
    const { title, arena, bounds, alive, roots } = this.memory;
    const peak = Math.max(0, ...alive);
    const text = roots.length
      ? `${title}: arena ${bytesText(arena)}, ${roots.length} values in ${alive.length} waves, `
        + `most in use ${bytesText(peak)} in wave ${alive.indexOf(peak)}, `
        + Object.entries(bounds).map(([name, size]) => `least for ${name} ${bytesText(size)}`).join(", ")
      : `${title}: nothing is in the arena`;
    this.head.textContent = text;
  }

  zoom(factor) {
    this.zoomed = Math.min(32, Math.max(1, this.zoomed * factor));
    this.draw();
  }

  fit() {
    this.zoomed = 1;
    this.draw();
  }

  draw() {
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    if (!width || !this.memory.roots.length) return;
    const svg = this.mode === "offsets" ? this.byOffset(width, height) : this.byValue(width);
    this.canvas.replaceChildren(svg);
    this.mark();
  }

  /** The columns of waves: their start and their width. */
  columns(width, left, right) {
    const count = Math.max(1, this.memory.alive.length);
    const column = Math.max(this.mode === "offsets" ? 3 : 1, (width - left - right) / count) * (this.mode === "offsets" ? Math.sqrt(this.zoomed) : 1);
    return { left, column, end: left + column * count };
  }

  byOffset(width, height) {
    const { arena, roots, alive } = this.memory;
    const { left, column, end } = this.columns(width, 74, 16);
    const top = 10, strip = 60, foot = 24;
    const plot = Math.max(200, height - top - strip - foot - 36) * this.zoomed;
    const y = offset => top + plot - (offset * plot) / Math.max(1, arena);
    const svg = this.sheet(end + 16, top + plot + strip + foot + 28);
    const peak = alive.indexOf(Math.max(0, ...alive));
    svg.append(drawn("rect", { class: "peak", x: left + peak * column, y: top, width: column, height: plot + strip + 16 }));
    for (const mark of byteMarks(arena)) {
      svg.append(drawn("path", { class: "grid", d: `M${left} ${y(mark)}H${end}` }));
      svg.append(drawn("text", { class: "small", x: left - 6, y: y(mark) + 4, "text-anchor": "end" }, bytesText(mark)));
    }
    const labels = [];
    roots.forEach((root, number) => {
      const box = {
        x: left + root.first * column + 0.5, y: y(root.offset + root.bytes),
        width: Math.max(1, (root.last - root.first + 1) * column - 1), height: Math.max(1.5, (root.bytes * plot) / arena - 1),
      };
      svg.append(this.bar(root, number, box));
      labels.push({ text: root.title, ...box });
    });
    for (const label of labels) this.label(svg, label);
    this.strip(svg, left, column, top + plot + 16, strip);
    return svg;
  }

  /** A label inside its bar, as much of it as has room; bars without room have theirs when the picture is larger. */
  label(svg, { text, x, y, width, height }) {
    if (height < 11 || width < 16) return;
    const room = Math.floor((width - 6) / SIZE.small);
    const shown = text.length <= room ? text : room > 3 ? `${text.slice(0, room - 1)}…` : "";
    if (shown) svg.append(drawn("text", { class: "small inside", x: x + 4, y: y + Math.min(height / 2 + 4, 14) }, shown));
  }

  /** One row for each value, with its name: from its first to its last wave. */
  byValue(width) {
    const { roots } = this.memory;
    const row = 18, top = 8, strip = 50;
    const order = roots.map((root, number) => [root, number]).sort(([a], [b]) => a.first - b.first || b.bytes - a.bytes);
    const { left, column, end } = this.columns(width, 10, Math.min(200, width * 0.4));
    const svg = this.sheet(Math.max(width - 4, end + 180), top + order.length * row + strip + 40);
    order.forEach(([root, number], k) => {
      const y = top + k * row;
      const x = left + root.first * column, length = Math.max(3, (root.last - root.first + 1) * column - 1);
      svg.append(this.bar(root, number, { x, y: y + 2, width: length, height: row - 4 }));
      const text = `${root.title} · ${bytesText(root.bytes)}`;
      const room = text.length * SIZE.small;
      const isInside = room < length - 8;
      const isLeft = !isInside && x + length + room > Math.max(width - 4, end + 180) && x > room + 8;
      const at = isInside ? x + 4 : isLeft ? x - 4 : x + length + 5;
      const label = { class: "small inside", x: at, y: y + 13, ...(isLeft ? { "text-anchor": "end" } : {}) };
      svg.append(drawn("text", label, text));
    });
    this.strip(svg, left, column, top + order.length * row + 8, strip);
    return svg;
  }

  sheet(width, height) {
    return drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group" });
  }

  bar(root, number, box) {
    return drawn("rect", {
      ...box, class: `root ${root.kind}`, rx: box.height > 6 ? 2 : 0, "data-root": number, tabindex: 0,
      role: "button", "aria-label": this.said(root),
    });
  }

  /** The bytes in use over time, with the numbers of waves. */
  strip(svg, left, column, top, height) {
    const { alive, arena } = this.memory;
    const bottom = top + height;
    let path = `M${left} ${bottom}`;
    alive.forEach((size, wave) => { path += `V${bottom - (size * height) / Math.max(1, arena)}H${left + (wave + 1) * column}`; });
    svg.append(drawn("path", { class: "use", d: `${path}V${bottom}Z` }));
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find(each => each * column >= 30) ?? 2000;
    for (let wave = 0; wave < alive.length; wave += step) {
      const at = { class: "small", x: left + (wave + 0.5) * column, y: bottom + 14, "text-anchor": "middle" };
      svg.append(drawn("text", at, String(wave)));
    }
    svg.append(drawn("text", { class: "small", x: left, y: top + 10 }, "in use, by wave"));
  }

  said(root) {
    const { model } = this.app;
    const line = root.line ? `\n${model.placeOf(root.line)}: ${model.levels.get("text").rows[root.line - 1]?.trim()}` : "";
    const names = ids => [...new Set(ids.map(id => model.nodes[id].name))].join(", ");
    return `${root.title}\n${bytesText(root.bytes)} at ${root.offset.toLocaleString("en-US")}, `
      + `waves ${root.first} to ${root.last}${line}`
      + (root.made.length ? `\nmade by ${names(root.made)}` : "") + (root.read.length ? `\nread by ${names(root.read)}` : "")
      + (root.also ? `\nalso there: ${root.also}` : "");
  }

  rootAt(event) {
    const number = event.target.dataset?.root;
    return number === undefined ? null : this.memory.roots[Number(number)];
  }

  tell(event) {
    const root = this.rootAt(event);
    if (root) this.app.showTip(event, this.said(root));
    else this.app.hideTip();
  }

  act(event) {
    const root = this.rootAt(event);
    if (!root) return;
    const ids = [...new Set(root.made)];
    if (ids.length) this.app.select(ids, { from: this });
    else if (root.line) this.app.selectLine("text", root.line);
  }

  select(selection) {
    this.mark();
    if (selection.from === this) return;
    this.canvas.querySelector(".root.lit")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  mark() {
    const { ids, relatives } = this.app.selection;
    for (const bar of this.canvas.querySelectorAll(".root")) {
      const { made } = this.memory.roots[Number(bar.dataset.root)];
      bar.classList.toggle("lit", made.some(id => ids.includes(id) || relatives.has(id)));
    }
  }
}

/** Round numbers of bytes from 0 to a size. */
function byteMarks(size) {
  const step = 2 ** Math.max(0, Math.floor(Math.log2(Math.max(1, size / 3))));
  const marks = [];
  for (let mark = 0; mark <= size; mark += step) marks.push(mark);
  return marks;
}
