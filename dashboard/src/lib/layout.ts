// A layered layout of a graph: longest path, dummy nodes, barycentre sweeps, then coordinates. Own, because the
// libraries take seconds for 1,000 steps.

export interface Placed {
  id: string;
  x: number;
  y: number;
}

export interface Layout {
  nodes: Map<string, Placed>;
  /** Each edge as points, through the places that dummy nodes keep free. */
  edges: { from: string; to: string; points: [number, number][] }[];
  width: number;
  height: number;
}

export const NODE_WIDTH = 180;
export const NODE_HEIGHT = 44;
const GAP_X = 64;
const GAP_Y = 18;
const SWEEPS = 24;

interface Node {
  layer: number;
  place: number;
  y: number;
  ups: number[];
  downs: number[];
}

export function layOut(names: string[], edges: [string, string][]): Layout {
  const index = new Map(names.map((name, at) => [name, at]));
  const known = edges.flatMap(([from, to]): [number, number][] => {
    const a = index.get(from);
    const b = index.get(to);
    return a === undefined || b === undefined ? [] : [[a, b]];
  });
  const nodes: Node[] = names.map(() => ({ layer: 0, place: 0, y: 0, ups: [], downs: [] }));
  assignLayers(nodes, known);
  const chains = withDummies(nodes, known);
  const layers = order(nodes);
  place(nodes, layers);
  const x = (node: Node): number => node.layer * (NODE_WIDTH + GAP_X);
  const placed = new Map(names.map((name, at) => {
    const node = nodes[at] as Node;
    return [name, { id: name, x: x(node), y: node.y }];
  }));
  return {
    nodes: placed,
    edges: chains.map(({ from, to, through }) => {
      const [a, b] = [nodes[from] as Node, nodes[to] as Node];
      const middle = (node: Node): number => node.y + NODE_HEIGHT / 2;
      const inner = through.flatMap((at): [number, number][] => {
        const dummy = nodes[at] as Node;
        return [[x(dummy), middle(dummy)], [x(dummy) + NODE_WIDTH, middle(dummy)]];
      });
      return { from: names[from] ?? "", to: names[to] ?? "", points: [[x(a) + NODE_WIDTH, middle(a)], ...inner, [x(b), middle(b)]] };
    }),
    width: Math.max(0, ...nodes.map((node) => x(node) + NODE_WIDTH)),
    height: Math.max(0, ...nodes.map((node) => node.y + NODE_HEIGHT)),
  };
}

/** The layer of a node is the length of the longest way to it. Edges of a cycle, which a server refuses, are ignored. */
function assignLayers(nodes: Node[], edges: [number, number][]): void {
  const downs: number[][] = nodes.map(() => []);
  const open = nodes.map(() => 0);
  for (const [from, to] of edges) {
    downs[from]?.push(to);
    open[to] = (open[to] ?? 0) + 1;
  }
  const ready = open.flatMap((count, at) => (count === 0 ? [at] : []));
  for (let next = ready.pop(); next !== undefined; next = ready.pop())
    for (const down of downs[next] ?? []) {
      const node = nodes[down] as Node;
      node.layer = Math.max(node.layer, (nodes[next] as Node).layer + 1);
      open[down] = (open[down] ?? 0) - 1;
      if (open[down] === 0) ready.push(down);
    }
}

function withDummies(nodes: Node[], edges: [number, number][]): { from: number; to: number; through: number[] }[] {
  return edges.map(([from, to]) => {
    const through: number[] = [];
    let last = from;
    const [low, high] = [(nodes[from] as Node).layer, (nodes[to] as Node).layer];
    for (let layer = low + 1; layer < high; layer += 1) {
      nodes.push({ layer, place: 0, y: 0, ups: [last], downs: [] });
      const dummy = nodes.length - 1;
      nodes[last]?.downs.push(dummy);
      through.push(dummy);
      last = dummy;
    }
    nodes[last]?.downs.push(to);
    nodes[to]?.ups.push(last);
    return { from, to, through };
  });
}

/** Sorts each layer by the mean place of its neighbours, down and up in turn. */
function order(nodes: Node[]): number[][] {
  const layers: number[][] = [];
  nodes.forEach((node, at) => (layers[node.layer] ??= []).push(at));
  for (const layer of layers) layer.forEach((at, position) => ((nodes[at] as Node).place = position));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    const from = down ? layers : [...layers].reverse();
    for (const layer of from) {
      const mean = new Map(layer.map((at) => {
        const node = nodes[at] as Node;
        const near = down ? node.ups : node.downs;
        const sum = near.reduce((total, other) => total + (nodes[other] as Node).place, 0);
        return [at, near.length === 0 ? node.place : sum / near.length];
      }));
      layer.sort((a, b) => (mean.get(a) ?? 0) - (mean.get(b) ?? 0));
      layer.forEach((at, position) => ((nodes[at] as Node).place = position));
    }
  }
  return layers;
}

/** Each node goes as near to the mean of its neighbours as the order allows (isotonic regression). */
function place(nodes: Node[], layers: number[][]): void {
  const step = NODE_HEIGHT + GAP_Y;
  for (const layer of layers) layer.forEach((at, position) => ((nodes[at] as Node).y = position * step));
  for (let sweep = 0; sweep < 8; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const wanted = layer.map((at, position) => {
        const node = nodes[at] as Node;
        const near = down ? node.ups : node.downs;
        const target = near.length === 0 ? node.y : near.reduce((total, other) => total + (nodes[other] as Node).y, 0) / near.length;
        return target - position * step;
      });
      pooled(wanted).forEach((value, position) => ((nodes[layer[position] as number] as Node).y = value + position * step));
    }
  }
  const top = nodes.reduce((least, node) => Math.min(least, node.y), Infinity);
  for (const node of nodes) node.y -= top;
}

/** The nearest non-decreasing values (pool adjacent violators). */
function pooled(values: number[]): number[] {
  const blocks: { sum: number; size: number }[] = [];
  for (const value of values) {
    blocks.push({ sum: value, size: 1 });
    for (;;) {
      const last = blocks.at(-1);
      const before = blocks.at(-2);
      if (last === undefined || before === undefined || before.sum / before.size <= last.sum / last.size) break;
      blocks.splice(-2, 2, { sum: before.sum + last.sum, size: before.size + last.size });
    }
  }
  return blocks.flatMap((block) => Array.from({ length: block.size }, () => block.sum / block.size));
}
