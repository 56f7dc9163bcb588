// What is known of the selected operations: where they came from, what became of them, and why.

class Inspector {
  constructor(app, element) {
    this.app = app;
    this.element = element;
  }

  show(selection) {
    const { ids } = selection;
    this.element.hidden = !ids.length && !selection.lines.length;
    if (this.element.hidden) return;
    const close = make("button", {
      type: "button", class: "close", "aria-label": "Deselect", onclick: () => this.app.select([]),
    }, "×");
    const parts = [close];
    if (selection.at?.level === "text") parts.push(...this.line(selection.at.line));
    if (ids.length > 1) parts.push(make("h2", {}, `${ids.length} operations`), this.list(ids));
    else if (ids.length) parts.push(...this.node(ids[0]));
    else parts.push(make("p", { class: "soft" }, "No operation comes from this line."));
    this.element.replaceChildren(...parts);
    this.element.scrollTop = 0;
  }

  node(id) {
    const { model } = this.app;
    const node = model.nodes[id];
    const up = [...model.reach(id, model.up)], down = [...model.reach(id, model.down)];
    const parts = [make("h2", {}, node.name)];
    const facts = [node.module, node.type].filter(Boolean);
    const bytes = model.bytesOf(id);
    if (bytes) facts.push(bytesText(bytes));
    const seconds = model.secondsOf([id]);
    if (seconds) facts.push(secondsText(seconds));
    parts.push(make("p", { class: "soft" }, facts.join(" · ")));
    parts.push(...this.part("Came from", [...this.lines(node.lines), ...this.byLevel(up, "gkp")]));
    const fused = model.fusedWith(id);
    if (fused.length) parts.push(...this.part("In one kernel with", [this.list(fused)]));
    parts.push(...this.part("Became", [...this.byLevel(down, "kpf"), ...this.code([id, ...down])]));
    parts.push(...this.memory(id));
    parts.push(...this.decisions([id, ...up.filter(other => other[0] === "g" || other[0] === "k"), ...down.filter(other => other[0] === "k")]));
    return parts;
  }

  line(line) {
    const { model } = this.app;
    const text = model.levels.get("text").rows[line - 1].trim();
    return [make("h2", {}, model.placeOf(line)), make("p", {}, make("code", {}, text))];
  }

  part(title, children) {
    return children.length ? [make("h3", {}, title), ...children] : [];
  }

  lines(lines) {
    const { model } = this.app;
    const rows = model.levels.get("text").rows;
    return lines.slice(0, 12).map(line => make("button", {
      type: "button", class: "row place", onclick: () => this.app.selectLine("text", line, true),
    }, make("span", { class: "level" }, model.placeOf(line)), make("code", {}, rows[line - 1]?.trim() ?? "")));
  }

  byLevel(ids, letters) {
    const parts = [];
    for (const letter of letters) {
      const found = ids.filter(id => id[0] === letter).sort((a, b) => Number(a.slice(1)) - Number(b.slice(1)));
      if (found.length) parts.push(this.list(found));
    }
    return parts;
  }

  list(ids, most = 24) {
    const { model } = this.app;
    const shown = ids.slice(0, most).map(id => make("button", {
      type: "button", class: "row", onclick: () => this.app.select([id]),
    }, make("span", { class: "level" }, LEVEL_OF[id[0]]), make("span", {}, model.titleOf(id))));
    const rest = ids.length - shown.length;
    return make("div", {}, ...shown, rest > 0 ? make("p", { class: "soft" }, `and ${rest} more`) : null);
  }

  /** Where its code stands. */
  code(ids) {
    const { model } = this.app;
    const rows = [];
    for (const id of ids.filter(each => each[0] === "f")) {
      for (const level of CODE_LEVELS) {
        const range = model.nodes[id].at[level];
        if (!range || level === "loop") continue;
        rows.push(make("button", {
          type: "button", class: "row", onclick: () => this.app.goTo(level, range[0], [id]),
        }, make("span", { class: "level" }, level), make("span", {}, `${model.nodes[id].name}: lines ${range[0]}–${range[1]}`)));
      }
    }
    return rows.slice(0, 16);
  }

  memory(id) {
    const { model } = this.app;
    const roots = new Set(model.stepsOf(id).flatMap(step => model.roots.get(step) ?? []));
    const rows = [...roots].slice(0, 8).map(root => make("p", { class: "fact" },
      `${root.title} · ${bytesText(root.bytes)} at ${root.offset.toLocaleString("en-US")}, waves ${root.first}–${root.last}`));
    return this.part("In memory", rows);
  }

  decisions(ids) {
    const { model } = this.app;
    const numbers = new Set(ids.flatMap(id => model.nodes[id].decisions));
    const rows = [...numbers].sort((a, b) => a - b).slice(0, 40).map(number => {
      const each = model.data.decisions[number];
      const times = each.times > 1 ? [`${each.times} times`] : [];
      const figures = [...each.figures, ...times].join(", ");
      return make("p", { class: `decision ${each.kind}` },
        make("b", {}, `${each.kind === "did" ? "+" : "−"} ${each.pass} `),
        `${each.subject}: ${each.what}${figures ? ` (${figures})` : ""}`);
    });
    return this.part("Decisions about these lines", rows);
  }
}
