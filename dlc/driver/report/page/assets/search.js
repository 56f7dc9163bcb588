// The search: nodes by name, module and type, then lines of every level.

const MOST_NODES = 30;
const MOST_LINES = 12;

class Search {
  constructor(app, input, panel) {
    this.app = app;
    this.input = input;
    this.panel = panel;
    this.results = [];
    this.current = -1;
    input.addEventListener("input", () => this.run());
    input.addEventListener("focus", () => { if (this.results.length) panel.hidden = false; });
    input.addEventListener("keydown", event => this.key(event));
  }

  key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps) {
      event.preventDefault();
      this.choose(this.current + steps[event.key]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.go(Math.max(0, this.current));
    } else if (event.key === "Escape") {
      event.stopPropagation();
      this.close();
      this.input.blur();
    }
  }

  close() {
    this.panel.hidden = true;
  }

  run() {
    const query = this.input.value.trim().toLowerCase();
    this.results = query ? [...this.nodes(query), ...this.lines(query)] : [];
    this.current = -1;
    this.panel.hidden = !query;
    let level = null;
    const rows = [];
    this.results.forEach((result, number) => {
      if (result.group !== level) {
        level = result.group;
        rows.push(make("h3", {}, level));
      }
      const row = make("button", { type: "button", class: "row", role: "option", onclick: () => this.go(number) },
        make("span", { class: "level" }, result.place), make("code", {}, result.text));
      result.row = row;
      rows.push(row);
    });
    this.panel.replaceChildren(...(rows.length ? rows : [make("p", { class: "soft" }, "Nothing is called so.")]));
  }

  nodes(query) {
    const { model } = this.app;
    const found = [];
    for (const [id, node] of Object.entries(model.nodes)) {
      const text = `${node.module} ${node.name} ${node.type}`.toLowerCase();
      if (!text.includes(query)) continue;
      found.push({
        group: "operations", place: LEVEL_OF[id[0]], text: `${model.titleOf(id)}  ${node.type}`,
        go: () => this.app.select([id]),
      });
      if (found.length === MOST_NODES) break;
    }
    return found;
  }

  lines(query) {
    const found = [];
    for (const [level, { rows }] of this.app.model.levels) {
      let count = 0;
      for (let k = 0; k < rows.length && count < MOST_LINES; k++) {
        if (!rows[k].toLowerCase().includes(query)) continue;
        count++;
        const line = k + 1;
        const place = level === "text" ? this.app.model.placeOf(line) : String(line);
        found.push({
          group: level, place, text: rows[k].trim().slice(0, 200), go: () => this.app.goTo(level, line),
        });
      }
    }
    return found;
  }

  choose(number) {
    if (!this.results.length) return;
    this.results[this.current]?.row.classList.remove("current");
    this.current = (number + this.results.length) % this.results.length;
    const { row } = this.results[this.current];
    row.classList.add("current");
    row.scrollIntoView({ block: "nearest" });
  }

  go(number) {
    const result = this.results[number];
    if (!result) return;
    this.choose(number);
    this.close();
    result.go();
  }

  step(by) {
    if (this.results.length) this.go((this.current + by + this.results.length) % this.results.length);
  }
}
