// A text of any length: only the lines in sight are in the document.

const LINE_HEIGHT = 18;
const TOKENS = /(\/\/.*$|#.*$|;.*$|──.*$)|("(?:[^"\\]|\\.)*")|([%@][\w.$:-]+)|\b(\d[\w.]*)\b/g;
const COMMENTS = { text: /^\/\/|^#|^──/, llvm: /^;/, asm: /^#/, ptx: /^\/\// };

class CodeView {
  constructor(app, level) {
    this.app = app;
    this.level = level;
    this.rows = app.model.levels.get(level).rows;
    this.window = make("div", { class: "lines" });
    const longest = this.rows.reduce((most, row) => Math.max(most, row.length), 0);
    this.sheet = make("div", { class: "sheet" }, this.window);
    this.sheet.style.height = `${this.rows.length * LINE_HEIGHT + 8}px`;
    this.sheet.style.minWidth = `calc(${Math.min(longest, 1500)}ch + 64px)`;
    this.element = make("div", { class: "code", tabindex: "0" }, this.sheet);
    this.element.addEventListener("scroll", () => this.draw());
    this.element.addEventListener("click", event => {
      const line = event.target.closest("[data-line]");
      if (line && !getSelection().toString()) app.selectLine(level, Number(line.dataset.line));
    });
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.marks = new Map();
    this.found = 0;
  }

  draw() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / LINE_HEIGHT) - 10);
    const count = Math.ceil(this.element.clientHeight / LINE_HEIGHT) + 20;
    this.window.style.top = `${first * LINE_HEIGHT}px`;
    const lines = [];
    for (let k = first; k < Math.min(first + count, this.rows.length); k++) lines.push(this.line(k + 1));
    this.window.replaceChildren(...lines);
  }

  line(number) {
    const classes = ["line", this.marks.get(number) ?? ""];
    if (number === this.found) classes.push("found");
    const label = this.level === "text" ? this.app.model.placeOf(number).split(":").at(-1) : String(number);
    return make("div", { class: classes.join(" "), "data-line": number },
      make("span", { class: "number" }, label), ...this.tokens(this.rows[number - 1]));
  }

  tokens(text) {
    const parts = [];
    let at = 0;
    const comment = COMMENTS[this.level] ?? /^\/\//;
    for (const match of text.matchAll(TOKENS)) {
      const [whole, note, quoted, name] = match;
      if (note && !comment.test(note)) continue;
      parts.push(text.slice(at, match.index));
      const kind = note ? "comment" : quoted ? "string" : name ? "value" : "figure";
      parts.push(make("span", { class: kind }, whole));
      at = match.index + whole.length;
    }
    parts.push(text.slice(at));
    return parts;
  }

  /** Mark the selected node and its relatives, and come to the first of them. */
  select(selection) {
    this.marks.clear();
    const { model } = this.app;
    let first = Infinity;
    const mark = (id, style) => {
      const range = model.nodes[id].at[this.level];
      if (!range) return;
      for (let line = range[0]; line <= range[1]; line++) {
        if (this.marks.get(line) !== "lit") this.marks.set(line, style);
      }
      first = Math.min(first, range[0]);
    };
    for (const id of selection.relatives) mark(id, "kin");
    for (const id of selection.ids) mark(id, "lit");
    if (this.level === "text") {
      selection.lines.forEach((line, k) => this.marks.set(line, k ? "kin" : "lit"));
      if (selection.lines.length) first = selection.lines[0];
    }
    const at = selection.at?.level === this.level ? selection.at.line : first;
    if (at !== Infinity) this.show(at);
    this.draw();
  }

  /** Scroll to a line, unless it is in sight. */
  show(line) {
    const top = (line - 1) * LINE_HEIGHT;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top + LINE_HEIGHT > scrollTop + clientHeight) {
      this.element.scrollTop = Math.max(0, top - clientHeight / 4);
    }
    this.draw();
  }

  find(line) {
    this.found = line;
    this.element.scrollTop = Math.max(0, (line - 1) * LINE_HEIGHT - this.element.clientHeight / 3);
    this.draw();
  }
}
