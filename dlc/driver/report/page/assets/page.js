// The page: two panes, each with a view, and beside them what is known of the selection.

class Pane {
  constructor(app, element, view) {
    this.app = app;
    this.element = element;
    this.choice = make("select", { "aria-label": "View", onchange: () => this.show(this.choice.value) },
      ...app.views().map(name => make("option", { value: name }, name)));
    this.tools = make("span", { class: "tools" });
    this.body = make("div", { class: "body" });
    element.append(make("div", { class: "bar" }, this.choice, this.tools), this.body);
    element.addEventListener("pointerdown", () => { app.current = this; }, true);
    this.show(view);
  }

  show(name) {
    this.name = name;
    this.choice.value = name;
    this.view = this.app.makeView(name);
    this.body.replaceChildren(this.view.element);
    this.tools.replaceChildren(...(this.view.tools ?? []));
    this.view.draw();
    if (this.app.selection.ids.length || this.app.selection.lines.length) this.view.select(this.app.selection);
  }
}

class App {
  constructor(data) {
    this.model = new Model(data);
    this.entry = data.entries[0] ?? null;
    this.selection = { ids: [], relatives: new Set(), lines: [], at: null };
    this.made = new Map();
    this.tip = document.getElementById("tip");
    this.chooseEntry(document.getElementById("entry"));
    this.inspector = new Inspector(this, document.getElementById("inspector"));
    this.search = new Search(this, document.getElementById("search"), document.getElementById("found"));
    const [first, second] = document.querySelectorAll(".pane");
    this.panes = [new Pane(this, first, this.views()[0]), new Pane(this, second, "text")];
    [this.current] = this.panes;
    this.inspector.show(this.selection);
    document.addEventListener("keydown", event => this.key(event));
    document.addEventListener("pointerdown", event => {
      if (!event.target.closest("#found, #search")) this.search.close();
    });
    document.getElementById("help-button").addEventListener("click", () => this.help());
  }

  chooseEntry(select) {
    const { entries } = this.model.data;
    select.append(...entries.map((entry, k) => make("option", { value: k }, entry.name)));
    select.parentElement.hidden = entries.length < 2;
    select.addEventListener("change", () => {
      this.entry = entries[Number(select.value)];
      this.made.clear();
      for (const pane of this.panes) pane.show(pane.name);
    });
  }

  views() {
    const pictures = [];
    if (this.model.data.entries.some(entry => entry.graph)) pictures.push("picture");
    if (this.model.data.entries.some(entry => entry.memory)) pictures.push("memory");
    return [...pictures, ...this.model.levels.keys(), "decisions"];
  }

  makeView(name) {
    if (name === "decisions") return new DecisionView(this);
    if (name === "picture" && this.entry.graph) return this.kept(name, () => new GraphView(this, this.entry));
    if (name === "memory" && this.entry.memory) return new MemoryView(this, this.entry);
    if (this.model.levels.has(name)) return new CodeView(this, name);
    return new EmptyView(this.entry.memory_error ?? `${this.entry.name} has none.`);
  }

  /** The same picture again, with the modules that are open. */
  kept(name, create) {
    const shown = this.panes?.some(pane => pane.name === name && pane.view === this.made.get(name));
    if (shown) return create();
    if (!this.made.has(name)) this.made.set(name, create());
    return this.made.get(name);
  }

  select(ids, { from = null, at = null, lines = null } = {}) {
    const relatives = new Set();
    for (const id of ids.slice(0, 200)) for (const other of this.model.relatives(id)) relatives.add(other);
    const found = lines ?? [...new Set(ids.flatMap(id => this.model.nodes[id].lines))];
    this.selection = { ids, relatives, lines: found, at, from };
    document.body.classList.toggle("selected", ids.length > 0 || found.length > 0);
    this.inspector.show(this.selection);
    for (const pane of this.panes) pane.view.select(this.selection);
  }

  /** Select what stands at a line; with `reveal` a pane shows the line. */
  selectLine(level, line, reveal = false) {
    const at = { level, line };
    if (level === "text") {
      const ids = this.model.nodesOfLine(line);
      this.select(ids, { at, lines: [line] });
    } else {
      const id = this.model.nodeAt(level, line);
      const own = this.model.levels.get(level).lines[line - 1];
      const lines = own ? [own, ...(id ? this.model.nodes[id].lines : [])] : null;
      this.select(id ? [id] : [], { at, lines: lines ?? (id ? null : []) });
    }
    if (reveal) this.goTo(level, line, this.selection.ids);
  }

  /** Show a line of a level in a pane, preferably one that shows the level already. */
  goTo(level, line, ids = null) {
    if (ids?.length && ids !== this.selection.ids) this.select(ids);
    let pane = this.panes.find(each => each.name === level && this.isSeen(each));
    if (!pane) {
      pane = this.isSeen(this.panes[1]) ? this.panes[1] : this.panes[0];
      pane.show(level);
    }
    pane.view.find(line);
  }

  isSeen(pane) {
    return pane.element.offsetParent !== null;
  }

  key(event) {
    const isTyping = event.target.closest("input, select, dialog");
    if (event.key === "Escape") {
      this.search.close();
      this.select([]);
    }
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const view = this.current.view;
    const digit = Number(event.key);
    const actions = {
      "/": () => this.search.input.select(),
      "?": () => this.help(),
      n: () => this.search.step(1),
      p: () => this.search.step(-1),
      j: () => this.walk(1),
      k: () => this.walk(-1),
      o: () => view.openAll?.(),
      c: () => view.closeAll?.(),
      "+": () => view.zoom?.(1.25),
      "-": () => view.zoom?.(0.8),
      0: () => view.fit?.(),
    };
    if (actions[event.key]) actions[event.key]();
    else if (digit && this.views()[digit - 1]) this.current.show(this.views()[digit - 1]);
    else return;
    event.preventDefault();
  }

  /** Select the next node of the same level. */
  walk(by) {
    const [id] = this.selection.ids;
    const level = id ? LEVEL_OF[id[0]] : "graph";
    const all = this.model.byLevel.get(level) ?? [];
    const next = all[id ? all.indexOf(id) + by : 0];
    if (next) this.select([next]);
  }

  help() {
    document.getElementById("help").showModal();
  }

  showTip(event, text) {
    this.tip.textContent = text;
    this.tip.hidden = false;
    const box = this.tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
    const isBelow = event.clientY + 18 + box.height < innerHeight;
    this.tip.style.left = `${Math.max(8, x)}px`;
    this.tip.style.top = `${isBelow ? event.clientY + 18 : Math.max(8, event.clientY - box.height - 12)}px`;
  }

  hideTip() {
    this.tip.hidden = true;
  }
}

/** The whole decision log, each decision with its line. */
class DecisionView {
  constructor(app) {
    const { model } = app;
    const rows = model.data.decisions.map(each => {
      const figures = [...each.figures, ...(each.times > 1 ? [`${each.times} times`] : [])].join(", ");
      return make("button", {
        type: "button", class: `row decision ${each.kind}`, onclick: () => each.line && app.selectLine("text", each.line),
      }, make("span", { class: "level" }, each.line ? model.placeOf(each.line) : ""),
      make("span", {}, `${each.kind === "did" ? "+" : "−"} ${each.pass}  ${each.subject}: ${each.what}${figures ? ` (${figures})` : ""}`));
    });
    this.rows = rows;
    const legend = make("p", { class: "legend" }, "+ what a pass did   − what it looked at and left as it was");
    this.element = make("div", { class: "list" }, legend, ...rows);
    this.app = app;
  }

  draw() {}

  select(selection) {
    const found = new Set(selection.ids.flatMap(id => this.app.model.nodes[id].decisions));
    this.rows.forEach((row, number) => row.classList.toggle("lit", found.has(number)));
    this.element.querySelector(".lit")?.scrollIntoView({ block: "nearest" });
  }
}

class EmptyView {
  constructor(text) {
    this.element = make("p", { class: "legend" }, text);
  }

  draw() {}

  select() {}
}

readData().then(data => { window.app = new App(data); }).catch(error => {
  document.querySelector("main").replaceChildren(make("p", { class: "legend" }, `The page cannot be drawn: ${error.message}`));
  throw error;
});
