// The graph of an entry point: modules open and close, boxes are selected, colours tell of one thing at a time.

const COLOURINGS = {
  kind: "by kind",
  kernel: "by kernel",
  bytes: "by bytes",
  seconds: "by time",
};

class GraphView {
  constructor(app, entry) {
    this.app = app;
    this.graph = entry.graph;
    this.open = new Set();
    this.around = new Map();
    this.inBox = new Map();
    this.index(this.graph, []);
    this.scale = 1;
    this.colouring = "kind";
    const choices = Object.entries(COLOURINGS).filter(([name]) => name !== "seconds" || app.model.hasTimes);
    const colours = make("select", { "aria-label": "Colours", onchange: () => {
      this.colouring = colours.value;
      this.draw();
    } }, ...choices.map(([name, text]) => make("option", { value: name }, text)));
    this.tools = [
      colours,
      make("button", { type: "button", title: "Open all modules (o)", onclick: () => this.openAll() }, "open"),
      make("button", { type: "button", title: "Close all modules (c)", onclick: () => this.closeAll() }, "close"),
      make("button", { type: "button", class: "zoom", title: "Zoom out (-)", onclick: () => this.zoom(1 / 1.25) }, "−"),
      make("button", { type: "button", class: "zoom", title: "Zoom in (+)", onclick: () => this.zoom(1.25) }, "+"),
      make("button", { type: "button", title: "Fit the width (0)", onclick: () => this.fit() }, "fit"),
    ];
    this.legend = make("div", { class: "legend" });
    this.canvas = make("div", { class: "canvas" });
    this.element = make("div", { class: "graph" }, this.legend, this.canvas);
    this.canvas.addEventListener("click", event => this.act(event));
    this.canvas.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.act(event);
      }
    });
    this.canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
    }, { passive: false });
    this.openFirst();
    new ResizeObserver(() => { if (!this.fitted && this.canvas.clientWidth) this.fit(); }).observe(this.canvas);
    this.draw();
  }

  /** Number the boxes, and note which modules each node is in and what each module holds. */
  index(graph, around) {
    for (const box of graph.boxes) {
      if (box.key) this.around.set(box.key, around);
      if (box.inside) this.index(box.inside, [...around, box]);
      if (box.kind === "group") this.inBox.set(box, keysIn(box));
    }
  }

  /** Open modules from the outside, as long as not too much is to be seen. */
  openFirst() {
    const most = innerWidth < 700 ? 18 : 40;
    let seen = this.graph.boxes.length;
    let level = this.graph.boxes.filter(box => box.inside);
    while (level.length) {
      const next = [];
      for (const box of level) {
        const count = box.inside.boxes.filter(inner => !isCrossing(inner)).length;
        if (seen + count > most) return;
        this.open.add(box);
        seen += count;
        next.push(...box.inside.boxes.filter(inner => inner.inside));
      }
      level = next;
    }
  }

  openAll() {
    for (const box of this.inBox.keys()) this.open.add(box);
    this.draw();
  }

  closeAll() {
    this.open.clear();
    this.draw();
  }

  zoom(factor) {
    const { canvas } = this;
    const x = (canvas.scrollLeft + canvas.clientWidth / 2) / this.scale;
    const y = (canvas.scrollTop + canvas.clientHeight / 2) / this.scale;
    this.scale = Math.min(4, Math.max(0.08, this.scale * factor));
    this.resize();
    canvas.scrollLeft = x * this.scale - canvas.clientWidth / 2;
    canvas.scrollTop = y * this.scale - canvas.clientHeight / 2;
  }

  /** Make the width fit, as far as text stays legible. */
  fit() {
    const room = this.canvas.clientWidth;
    if (!room) return;
    this.fitted = true;
    this.scale = Math.min(1, Math.max(0.72, room / this.size.width));
    this.resize();
    this.canvas.scrollLeft = (this.size.width * this.scale - room) / 2;
  }

  resize() {
    this.svg.setAttribute("width", this.size.width * this.scale);
    this.svg.setAttribute("height", this.size.height * this.scale);
  }

  draw() {
    const placed = placeGraph(this.graph, box => this.open.has(box));
    const margin = 16;
    this.size = { width: placed.width + 2 * margin, height: placed.height + 2 * margin };
    this.heat = this.heatOf();
    this.elements = new Map();
    const root = drawn("g", { transform: `translate(${margin} ${margin})` });
    this.paint(placed, 0, 0, root);
    this.svg = drawn("svg", { viewBox: `0 0 ${this.size.width} ${this.size.height}`, role: "group" }, root);
    this.canvas.replaceChildren(this.svg);
    this.resize();
    this.mark();
    this.showLegend();
  }

  paint(placed, left, top, parent) {
    placed.frames.forEach((frame, k) => {
      if (frame.inside) this.paintOpen(placed, frame, k, left, top, parent);
    });
    placed.graph.edges.forEach((edge, k) => {
      parent.append(drawn("path", { class: "edge", d: this.curve(placed, edge, placed.graph.places[k], left, top) }));
    });
    placed.frames.forEach((frame, k) => {
      const x = left + placed.x[k], y = top + placed.tops[placed.graph.rowOf[k]];
      if (!frame.inside && !isCrossing(frame.box)) this.paintBox(frame, x, y, parent, placed.owner);
      if (!frame.notes.length) return;
      const noteLeft = x + leavesAt(frame, frame.notes.length - 1) + 6;
      frame.notes.forEach((note, n) => {
        const at = { class: "small", x: noteLeft, y: y + frame.height + 14 + n * SIZE.note };
        parent.append(drawn("text", at, note));
      });
    });
  }

  paintOpen(placed, frame, number, left, top, parent) {
    const { inside, box } = frame;
    const x = left + placed.x[number] - frame.width / 2;
    const y = top + placed.tops[placed.graph.rowOf[number]];
    const at = { x, y, width: frame.width, height: frame.height, rx: 8 };
    const group = drawn("g", { class: "group open" }, drawn("rect", at));
    this.remember(box, group);
    parent.append(group);
    inside.frames.forEach((inner, k) => {
      if (!isCrossing(inner.box)) return;
      const line = x + SIZE.padding + inside.x[k];
      const start = inner.box.kind === "enter" ? y : y + frame.height - SIZE.padding;
      parent.append(drawn("path", { class: "edge", d: `M${line} ${start}v${SIZE.padding}` }));
    });
    inside.owner = box;
    this.paint(inside, x + SIZE.padding, y + SIZE.padding, parent);
  }

  /** A box, a closed module, or the title of an open one. */
  paintBox(frame, x, y, parent, owner) {
    const { box } = frame;
    const isName = box.kind === "name";
    const group = drawn("g", { class: `box ${box.kind}` });
    const target = isName ? owner : box;
    if (target && (target.key || target.inside)) {
      group.setAttribute("tabindex", "0");
      group.setAttribute("role", "button");
      group.setAttribute("aria-label", target.title);
      group.target = target;
      group.isName = isName;
      if (target.inside) group.setAttribute("aria-expanded", this.open.has(target));
    }
    const start = isName ? x - frame.width / 2 : x;
    const radius = box.kind === "op" ? 4 : box.kind === "group" ? 8 : 13;
    const rect = { x: x - frame.width / 2, y, width: frame.width, height: frame.height, rx: radius };
    const shape = drawn("rect", rect);
    const colour = this.colourOf(box);
    if (colour) {
      shape.style.fill = colour;
      group.classList.add("coloured");
    }
    group.append(shape);
    const anchor = isName ? {} : { "text-anchor": "middle" };
    const sign = isName ? "▾ " : box.inside ? "▸ " : "";
    group.append(drawn("text", { class: "title", x: start, y: y + 17, ...anchor }, sign + box.title));
    box.lines.forEach(([kind, text], k) => {
      const at = { class: `small of-${kind}`, x: start, y: y + 33 + k * SIZE.line, ...anchor };
      group.append(drawn("text", at, text));
    });
    if (!isName) this.remember(box, group);
    parent.append(group);
  }

  remember(box, element) {
    this.elements.set(box, element);
    element.dataset.key = box.key;
  }

  /** An edge goes straight down past boxes and notes, and bends only between rows. */
  curve(placed, [source, target, port, result], places, left, top) {
    const { rowOf } = placed.graph;
    const from = placed.frames[source], to = placed.frames[target];
    let row = rowOf[source];
    let x = left + placed.x[source] + leavesAt(from, result);
    let path = `M${x} ${top + placed.tops[row] + from.height}V${top + placed.bottoms[row]}`;
    const stops = places.map(place => [rowOf[place], placed.x[place]]);
    stops.push([rowOf[target], placed.x[target] + arrivesAt(to, port)]);
    stops.forEach(([following, at], k) => {
      const y = top + placed.bottoms[row], nextX = left + at, nextY = top + placed.tops[following];
      path += `C${x} ${y + SIZE.bend / 2} ${nextX} ${nextY - SIZE.bend / 2} ${nextX} ${nextY}`;
      if (k + 1 < stops.length) path += `V${top + placed.bottoms[following]}`;
      row = following;
      x = nextX;
    });
    return path;
  }

  // Colours.

  keysOf(box) {
    return box.inside ? this.inBox.get(box) ?? keysIn(box) : box.key ? [box.key] : [];
  }

  amount(box) {
    const keys = this.keysOf(box);
    const { model } = this.app;
    if (this.colouring === "seconds") return model.secondsOf(keys);
    return keys.reduce((most, id) => Math.max(most, model.bytesOf(id)), 0);
  }

  heatOf() {
    if (this.colouring !== "bytes" && this.colouring !== "seconds") return null;
    const boxes = [];
    const walk = graph => graph.boxes.forEach(box => {
      if (box.key || box.inside) boxes.push(box);
      if (box.inside && this.open.has(box)) walk(box.inside);
    });
    walk(this.graph);
    const closed = boxes.filter(box => !box.inside || !this.open.has(box));
    return { most: Math.max(1e-12, ...closed.map(box => this.amount(box))) };
  }

  colourOf(box) {
    if (box.kind !== "op" && box.kind !== "group") return null;
    if (this.heat) {
      const share = this.amount(box) / this.heat.most;
      return share > 0 ? `color-mix(in oklab, var(--hot) ${Math.round(6 + 64 * share)}%, var(--paper))` : null;
    }
    if (this.colouring !== "kernel" || !box.key || box.inside) return null;
    const kernel = (this.app.model.down.get(box.key) ?? []).find(id => id[0] === "k");
    return kernel ? kernelColour(kernel) : null;
  }

  showLegend() {
    const texts = {
      kernel: "boxes of one colour are fused into one kernel",
      bytes: this.heat ? `darker: larger results, up to ${bytesText(this.heat.most)}` : "",
      seconds: this.heat ? `darker: more time, up to ${secondsText(this.heat.most)}` : "",
    };
    this.legend.textContent = texts[this.colouring] ?? "";
    this.legend.hidden = !this.legend.textContent;
  }

  // Selecting.

  act(event) {
    const group = event.target.closest("[role=button]");
    if (!group?.target) return;
    const box = group.target;
    if (box.inside && (group.isName || !this.open.has(box))) {
      if (this.open.has(box)) this.open.delete(box);
      else this.open.add(box);
      this.redrawAt(box);
    }
    if (box.key) this.app.select([box.key], { from: this });
  }

  /** Draw again and leave a box where it was on the screen. */
  redrawAt(box) {
    const before = this.elements.get(box)?.getBoundingClientRect();
    this.draw();
    const element = this.elements.get(box);
    const after = element?.getBoundingClientRect();
    if (before && after) {
      this.canvas.scrollTop += after.top - before.top;
      this.canvas.scrollLeft += after.left + after.width / 2 - before.left - before.width / 2;
    }
    this.canvas.querySelector(`[aria-label="${CSS.escape(box.title)}"]`)?.focus({ preventScroll: true });
  }

  select(selection) {
    const key = this.drawnFor(selection);
    if (key && selection.from !== this) {
      const closed = this.around.get(key).filter(box => !this.open.has(box));
      for (const box of closed) this.open.add(box);
      if (closed.length) this.draw();
    }
    this.mark();
    if (!key || selection.from === this) return;
    const box = [...this.elements.keys()].find(each => each.key === key);
    const element = box && this.elements.get(box);
    if (!element) return;
    const to = element.getBoundingClientRect(), frame = this.canvas.getBoundingClientRect();
    const isSeen = to.top >= frame.top && to.bottom <= frame.bottom && to.left >= frame.left && to.right <= frame.right;
    if (isSeen) return;
    this.canvas.scrollTop += to.top - frame.top - frame.height / 3;
    this.canvas.scrollLeft += to.left + to.width / 2 - frame.left - frame.width / 2;
  }

  /** The box to show: one of the selection, or of what is in one kernel with it. */
  drawnFor(selection) {
    const near = [...selection.ids, ...selection.relatives];
    const found = near.find(id => this.around.has(id));
    return found ?? near.flatMap(id => this.app.model.fusedWith(id)).find(id => this.around.has(id));
  }

  mark() {
    const { selection } = this.app;
    for (const [box, element] of this.elements) {
      element.classList.toggle("lit", selection.ids.includes(box.key));
      element.classList.toggle("kin", selection.relatives.has(box.key));
    }
  }
}

/** The nodes in a module, and in its modules. */
function keysIn(box) {
  return box.inside.boxes.flatMap(inner => [
    ...(inner.key ? [inner.key] : []),
    ...(inner.inside ? keysIn(inner) : []),
  ]);
}

/** A colour for a kernel; neighbours by number differ. */
function kernelColour(id) {
  const hue = (Number(id.slice(1)) * 137.5) % 360;
  return `light-dark(hsl(${hue} 70% 88%), hsl(${hue} 40% 24%))`;
}
