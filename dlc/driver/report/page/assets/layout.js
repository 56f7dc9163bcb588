// Places for the boxes of a graph. Rows and their order come with the data (dlc/driver/layered_layout.py); what
// is left is least squares along each row, since the sizes of boxes change where a module opens or closes.

const SIZE = {
  gap: 24, bend: 30, box: 26, line: 15, note: 14, padding: 10, port: 14, letter: 7.3, small: 6.7, sweeps: 16,
};
const SOURCE_WEIGHT = 0.02;

const isCrossing = box => box.kind === "enter" || box.kind === "leave";

/** The size of a box, and of what is inside it if it is open. */
function frameOf(box, isOpen) {
  const inside = box.inside && isOpen(box) ? placeGraph(box.inside, isOpen) : null;
  const frame = { box, inside, notes: inside ? [] : box.notes };
  if (isCrossing(box)) {
    frame.width = frame.height = 0;
  } else if (inside) {
    frame.width = inside.width + 2 * SIZE.padding;
    frame.height = inside.height + 2 * SIZE.padding;
  } else {
    const small = Math.max(0, ...box.lines.map(line => line[1].length * SIZE.small));
    const sign = box.inside ? 18 : 0;
    const text = Math.max(box.title.length * SIZE.letter + sign, small) + (box.kind === "name" ? 18 : 20);
    frame.width = Math.max(text, (Math.max(box.ports, box.notes.length) + 1) * SIZE.port);
    frame.height = SIZE.box + (box.lines.length ? box.lines.length * SIZE.line + 5 : 0);
  }
  const longest = Math.max(0, ...frame.notes.map(note => note.length * SIZE.small));
  const notes = frame.notes.length ? leavesAt(frame, frame.notes.length - 1) + 6 + longest : 0;
  frame.left = frame.width / 2;
  frame.right = Math.max(frame.width / 2, notes);
  return frame;
}

/** The x, from the middle of a frame, at which the edge to a port ends. */
function arrivesAt(frame, port) {
  if (frame.inside) return crossingAt(frame.inside, "enter", port) - frame.inside.width / 2;
  return frame.width * ((port + 1) / (frame.box.ports + 1) - 0.5);
}

/** The x, from the middle of a frame, at which the edges of a result leave. */
function leavesAt(frame, result) {
  if (frame.inside) return crossingAt(frame.inside, "leave", result) - frame.inside.width / 2;
  return frame.width * ((result + 1) / (Math.max(frame.box.notes.length, 1) + 1) - 0.5);
}

function crossingAt(placed, kind, number) {
  let seen = 0;
  for (let k = 0; k < placed.frames.length; k++) {
    if (placed.frames[k].box.kind === kind && seen++ === number) return placed.x[k];
  }
  return placed.width / 2;
}

/** The neighbours of each box and of each place through which an edge passes. */
function neighbours(graph) {
  if (graph.above) return;
  const count = graph.boxes.length + graph.places.reduce((sum, places) => sum + places.length, 0);
  graph.above = Array.from({ length: count }, () => []);
  graph.below = Array.from({ length: count }, () => []);
  graph.edges.forEach(([source, target], number) => {
    const chain = [source, ...graph.places[number], target];
    for (let k = 1; k < chain.length; k++) {
      graph.below[chain[k - 1]].push(chain[k]);
      graph.above[chain[k]].push(chain[k - 1]);
    }
  });
  graph.rowOf = new Int32Array(count);
  graph.rows.forEach((row, number) => row.forEach(node => { graph.rowOf[node] = number; }));
}

/** A place for every box of a graph: `x` of its middle, the top and the end of each row. */
function placeGraph(graph, isOpen) {
  neighbours(graph);
  const frames = graph.boxes.map(box => frameOf(box, isOpen));
  const left = node => (node < frames.length ? frames[node].left : 0);
  const right = node => (node < frames.length ? frames[node].right : 0);
  const x = new Float64Array(graph.above.length);
  for (const row of graph.rows) {
    let at = 0;
    for (const node of row) {
      x[node] = at + left(node);
      at += left(node) + right(node) + SIZE.gap;
    }
  }
  for (let sweep = 0; sweep < SIZE.sweeps; sweep++) {
    const fromAbove = sweep % 2 === 0;
    const rows = fromAbove ? graph.rows : [...graph.rows].reverse();
    for (const row of rows) settle(graph, row, row.map(node => wanted(graph, node, fromAbove, x)), x, left, right);
  }
  lean(graph, x, left, right);
  let start = Infinity, end = 0;
  for (const row of graph.rows) for (const node of row) start = Math.min(start, x[node] - left(node));
  if (start === Infinity) start = 0;
  for (let node = 0; node < x.length; node++) {
    x[node] -= start;
    end = Math.max(end, x[node] + right(node));
  }
  const tops = [], bottoms = [];
  let y = 0;
  for (const row of graph.rows) {
    const heights = row.map(node => {
      if (node >= frames.length) return 0;
      const { height, notes } = frames[node];
      return height + (notes.length ? notes.length * SIZE.note + 6 : 0);
    });
    tops.push(y);
    y += Math.max(0, ...heights);
    bottoms.push(y);
    y += SIZE.bend;
  }
  return { graph, frames, x, tops, bottoms, width: end, height: bottoms.length ? bottoms.at(-1) : 0 };
}

/** The middle of a node's neighbours; what only feeds in stands beside the way through. */
function wanted(graph, node, fromAbove, x) {
  const through = graph.above[node].filter(other => graph.above[other].length);
  const above = through.length ? through : graph.above[node];
  const below = graph.below[node];
  const near = fromAbove ? (above.length ? above : below) : (below.length ? below : above);
  if (!near.length) return x[node];
  return near.reduce((sum, other) => sum + x[other], 0) / near.length;
}

/** The places nearest to the wanted ones that keep order and distance: nodes that collide move as one. */
function settle(graph, row, centres, x, left, right) {
  const blocks = [], offsets = [];
  row.forEach((node, index) => {
    const step = index === 0 ? 0 : right(row[index - 1]) + left(node) + SIZE.gap;
    offsets.push(step + (index ? offsets[index - 1] : 0));
    const weight = graph.above[node].length ? 1 : SOURCE_WEIGHT;
    let block = { total: weight * (centres[index] - offsets[index]), weight, members: 1 };
    while (blocks.length && blocks.at(-1).total / blocks.at(-1).weight >= block.total / block.weight) {
      const before = blocks.pop();
      block = {
        total: before.total + block.total,
        weight: before.weight + block.weight,
        members: before.members + block.members,
      };
    }
    blocks.push(block);
  });
  let index = 0;
  for (const block of blocks) {
    for (let k = 0; k < block.members; k++, index++) x[row[index]] = block.total / block.weight + offsets[index];
  }
}

/** Put a title, the first of its row and without edges, above the left end of everything else. */
function lean(graph, x, left, right) {
  const isLinked = node => graph.above[node].length || graph.below[node].length;
  let start = Infinity;
  for (const row of graph.rows) for (const node of row) {
    if (isLinked(node)) start = Math.min(start, x[node] - left(node));
  }
  if (start === Infinity) return;
  for (const row of graph.rows) {
    if (isLinked(row[0])) continue;
    const free = row.length > 1 ? x[row[1]] - left(row[1]) - SIZE.gap - right(row[0]) : Infinity;
    x[row[0]] = Math.min(start + left(row[0]), free);
  }
}
