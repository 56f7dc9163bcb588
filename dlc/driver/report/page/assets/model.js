// The model: its data, and what follows from it. A node is an operation, a kernel, a step of the plan or the code
// of a kernel; its id begins with the letter of its level.

const LEVEL_OF = { g: "graph", k: "kernel", p: "plan", f: "loop" };
const HOLDERS = /^(weight\.get|array\.(fill|constant|broadcast|reshape))\b/;
const CODE_LEVELS = ["loop", "llvm", "asm", "ptx"];

/** The data of the page: JSON, compressed by deflate, in base 64. */
async function readData() {
  const text = document.getElementById("data").textContent.trim();
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

class Model {
  constructor(data) {
    this.data = data;
    this.nodes = data.nodes;
    this.levels = new Map(data.levels.map(level => [level.name, level]));
    for (const level of data.levels) level.rows = level.text.split("\n");
    this.up = new Map();
    this.down = new Map();
    for (const [from, to] of data.links) {
      if (!this.down.has(from)) this.down.set(from, []);
      if (!this.up.has(to)) this.up.set(to, []);
      this.down.get(from).push(to);
      this.up.get(to).push(from);
    }
    this.byLevel = new Map();
    for (const [id, node] of Object.entries(this.nodes)) {
      for (const level of Object.keys(node.at)) {
        if (!this.byLevel.has(level)) this.byLevel.set(level, []);
        this.byLevel.get(level).push(id);
      }
    }
    for (const [level, ids] of this.byLevel) {
      ids.sort((a, b) => this.nodes[a].at[level][0] - this.nodes[b].at[level][0]);
    }
    this.roots = new Map();
    for (const entry of data.entries) {
      for (const root of entry.memory?.roots ?? []) {
        for (const id of root.made) {
          if (!this.roots.has(id)) this.roots.set(id, []);
          this.roots.get(id).push(root);
        }
      }
    }
    this.hasTimes = Object.values(this.nodes).some(node => node.seconds !== undefined);
  }

  /** All that a node came from, or became. */
  reach(id, links) {
    const found = new Set();
    const pending = [...(links.get(id) ?? [])];
    while (pending.length) {
      const next = pending.pop();
      if (found.has(next)) continue;
      found.add(next);
      pending.push(...(links.get(next) ?? []));
    }
    return found;
  }

  relatives(id) {
    return new Set([...this.reach(id, this.up), ...this.reach(id, this.down)]);
  }

  /** The node at a line of a level: the innermost. */
  nodeAt(level, line) {
    let best = null, size = Infinity;
    for (const id of this.byLevel.get(level) ?? []) {
      const [first, last] = this.nodes[id].at[level];
      if (first > line) break;
      if (line <= last && last - first < size) {
        best = id;
        size = last - first;
      }
    }
    return best;
  }

  /** The nodes that come from a line of the text, those of the first level that has any. */
  nodesOfLine(line) {
    for (const letter of "gkpf") {
      const found = Object.keys(this.nodes).filter(id => id[0] === letter && this.nodes[id].lines.includes(line));
      if (found.length) return found;
    }
    return [];
  }

  fileOf(line) {
    let found = null;
    for (const file of this.data.files) if (file.line < line) found = file;
    return found;
  }

  /** `FILE:LINE` of a line of the level text. */
  placeOf(line) {
    const file = this.fileOf(line);
    return file ? `${file.name}:${line - file.line}` : "";
  }

  /** The steps of the plan that a node belongs to. */
  stepsOf(id) {
    if (id[0] === "p") return [id];
    const links = id[0] === "f" ? this.up : this.down;
    return [...this.reach(id, links)].filter(other => other[0] === "p");
  }

  /** The bytes of the results of a node: those of its type, or of the memory that its steps write. */
  bytesOf(id) {
    const own = this.nodes[id].bytes;
    if (own !== undefined) return own;
    let most = 0;
    for (const step of this.stepsOf(id)) {
      for (const root of this.roots.get(step) ?? []) most = Math.max(most, root.bytes);
    }
    return most;
  }

  secondsOf(ids) {
    const steps = new Set();
    for (const id of ids) for (const step of this.stepsOf(id)) steps.add(step);
    let total = 0;
    for (const step of steps) total += this.nodes[step].seconds ?? 0;
    return total;
  }

  /** The other operations of the graph that became the same kernels, without what only holds numbers. */
  fusedWith(id) {
    if (id[0] !== "g") return [];
    const kernels = (this.down.get(id) ?? []).filter(other => other[0] === "k");
    const others = new Set(kernels.flatMap(kernel => this.up.get(kernel) ?? []));
    others.delete(id);
    return [...others].filter(other => !HOLDERS.test(this.nodes[other].name));
  }

  /** The name of a node for people: what it computes and where it belongs. */
  titleOf(id) {
    const node = this.nodes[id];
    return node.module ? `${node.module} · ${node.name}` : node.name;
  }
}

function bytesText(count) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit + 1 < units.length) {
    count /= 1024;
    unit++;
  }
  return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
}

function secondsText(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(2)} ms` : `${(seconds * 1e6).toFixed(1)} µs`;
}

/** An element with attributes and children; a child that is a text becomes one. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child !== null));
  return element;
}

function drawn(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
