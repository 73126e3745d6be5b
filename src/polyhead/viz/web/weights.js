// The numbers: reading a view (polyhead-attention-1, parsed), merging subwords, entropy, one matrix of many heads.
// A server sends weights apart, as `floats`.
//
// A map here is {kind, layer, heads, rows, columns, weights}: rows and columns are tokens, and
// weights is one Float32Array with the axes (head, row, column), or null if it has not been loaded.
// Where not everyone can see everyone, `seen` has one bit for each weight, and `buckets` the numbers
// that hashing gave, with the axes (round, head, position).

import { scale } from "./colours.js";
import { bytesOf, count } from "./elements.js";

const KINDS = ["encoder", "decoder", "cross"];

export function readView(content) {
  const maps = content.maps.map((packed) => {
    const named = packed.kind !== "encoder" && content.written.length > 0;
    return {
      kind: packed.kind,
      layer: packed.layer,
      heads: packed.shape[0],
      named, // the rows are named by what was written there
      rows: named ? content.written : content[packed.queries].tokens,
      reads: named ? (content.target ?? content.source).tokens : null,
      columns: content[packed.keys].tokens,
      bits: packed.entropy ?? null,
      // Every machine that runs a browser is little-endian, as the format is.
      weights: packed.floats ?? (packed.weights ? new Float32Array(bytesOf(packed.weights).buffer) : null),
      small: packed.small ?? null,
      seen: packed.seen ? bytesOf(packed.seen) : null,
      buckets: packed.buckets ? new Int16Array(bytesOf(packed.buckets.numbers).buffer) : null,
      rounds: packed.buckets ? packed.buckets.shape[0] : 0,
    };
  });
  const kinds = KINDS.filter((kind) => maps.some((map) => map.kind === kind));
  return { title: content.title, model: content.model, source: content.source, target: content.target, kinds, maps };
}

export function layersOf(view, kind) {
  return view.maps.filter((map) => map.kind === kind).sort((a, b) => a.layer - b.layer);
}

// How heads can be put together; one alone cannot.
export function waysOf(map) {
  return map.heads > 1 ? ["mean", "max"] : [];
}

// The map that the state asks for: of its kind and layer, with words instead of subwords if wished.
export function chosenMap(view, state) {
  const map = view.maps.find((one) => one.kind === state.kind && one.layer === state.layer);
  return state.merge && map.weights ? mergedMap(map) : map;
}

const known = new WeakMap();

// Columns of a word are summed and its rows averaged, so rows still sum to one.
export function mergedMap(map) {
  if (known.has(map)) return known.get(map);
  const [rowOf, rows] = words(map.rows);
  const [columnOf, columns] = words(map.columns);
  const sums = new Float64Array(map.heads * rows.length * columns.length);
  const [n, m] = [map.rows.length, map.columns.length];
  for (let head = 0; head < map.heads; head++)
    for (let i = 0; i < n; i++)
      for (let j = 0; j < m; j++)
        sums[(head * rows.length + rowOf[i]) * columns.length + columnOf[j]] +=
          map.weights[(head * n + i) * m + j] / rows[rowOf[i]].pieces;
  const seen = map.seen && new Uint8Array(Math.ceil(sums.length / 8)); // a word, if any of its pieces
  for (let at = 0; seen && at < map.weights.length; at++) {
    const [head, i, j] = [Math.floor(at / (n * m)), Math.floor(at / m) % n, at % m];
    const to = (head * rows.length + rowOf[i]) * columns.length + columnOf[j];
    if (bit(map.seen, at)) seen[to >> 3] |= 1 << (to & 7);
  }
  const merged = { ...map, rows, columns, reads: null, bits: null, weights: Float32Array.from(sums), seen, buckets: null };
  known.set(map, merged);
  return merged;
}

// For each token the number of its word, and the words themselves as tokens.
function words(tokens) {
  const found = [];
  const wordOf = tokens.map((token, i) => {
    if (i === 0 || token.word !== tokens[i - 1].word) found.push({ text: "", special: true, pieces: 0 });
    const word = found[found.length - 1];
    word.text += token.text;
    word.special &&= token.special;
    word.pieces += 1;
    return found.length - 1;
  });
  return [wordOf, found.map((word) => ({ ...word, text: word.text.trim() }))];
}

// Bits of one head: 0 looks at one key, log2(n) at n keys alike. The mean over all rows.
export function entropy(map, head) {
  if (map.bits || !map.weights) return map.bits ? map.bits[head].toFixed(1) : "";
  const size = map.rows.length * map.columns.length;
  let sum = 0;
  for (const p of map.weights.subarray(head * size, (head + 1) * size)) if (p > 0) sum -= p * Math.log2(p);
  return (Math.abs(sum) / map.rows.length).toFixed(1);
}

function add(sums, weights, share) {
  for (let i = 0; i < sums.length; i++) sums[i] += share * weights[i];
}

// One matrix: a single head (counted from 1), or the mean or the largest of all.
export function matrix(map, head) {
  const size = map.rows.length * map.columns.length;
  if (head !== "mean" && head !== "max") return map.weights.subarray((head - 1) * size, head * size);
  const result = new Float64Array(size);
  for (let one = 0; one < map.heads; one++) {
    const weights = map.weights.subarray(one * size, (one + 1) * size); // in the order of memory: it may be millions
    if (head === "mean") add(result, weights, 1 / map.heads);
    else for (let i = 0; i < size; i++) if (weights[i] > result[i]) result[i] = weights[i];
  }
  return result;
}

const bit = (bytes, at) => (bytes[at >> 3] >> (at & 7)) & 1;

// Which cells are not zero by choice: a decoder may not look at what comes later, and hashing or a
// window hides what is far. Of several heads none could see such a cell.
export function hidden(map, head) {
  const [n, m] = [map.rows.length, map.columns.length];
  if (!map.seen) return map.kind === "decoder" ? (row, column, weight) => column > row && weight === 0 : () => false;
  const heads = typeof head === "number" ? [head] : count(map.heads);
  return (row, column) => !heads.some((one) => bit(map.seen, ((one - 1) * n + row) * m + column));
}

// How to colour the cells of a matrix: from 0 to 1, or null for what is hidden.
export function levels(map, head, log, weights = matrix(map, head)) {
  const [unseen, m] = [hidden(map, head), map.columns.length];
  return (row, column) => {
    const weight = weights[row * m + column];
    return unseen(row, column, weight) ? null : scale(weight, log);
  };
}

// The bucket of every position in the round and head that the state asks for, or null.
export function bucketsOf(map, state) {
  if (!map.buckets || typeof state.head !== "number") return null;
  const length = map.rows.length;
  const start = ((Math.min(state.round, map.rounds) - 1) * map.heads + state.head - 1) * length;
  return map.buckets.subarray(start, start + length);
}

// The positions of the tokens to show.
export function visible(tokens, state) {
  return tokens.map((_, i) => i).filter((i) => state.special || !tokens[i].special);
}

export function shown(token) {
  return token.text.trim() === "" ? "␣" : token.text;
}

export function number(weight) {
  return weight > 0 && weight < 0.001 ? weight.toExponential(0) : weight.toFixed(3);
}
