// The weights: parsing a view (polyhead-attention-1), merging subwords, entropy, reductions of heads.
// A server sends weights separately, as `floats`.
//
// A map here is {kind, layer, heads, rows, columns, weights}: rows and columns are tokens, and
// weights is one Float32Array with the axes (head, row, column), or null if it has not been loaded.
// For local and LSH attention `seen` has one bit for each weight, and `buckets` the numbers of the
// buckets with the axes (round, head, position).

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
      named, // rows are named by the written tokens
      rows: named ? content.written : content[packed.queries].tokens,
      reads: named ? (content.target ?? content.source).tokens : null,
      columns: content[packed.keys].tokens,
      bits: packed.entropy ?? null,
      // Browsers run on little-endian machines, and the format is little-endian.
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

// Reductions of several heads.
export function reductions(map) {
  return map.heads > 1 ? ["mean", "max"] : [];
}

// Return the map of the kind and layer of the state, with subwords merged if requested.
export function chosenMap(view, state) {
  const map = view.maps.find((one) => one.kind === state.kind && one.layer === state.layer);
  return state.merge && map.weights ? mergedMap(map) : map;
}

const mergedMaps = new WeakMap();

// Sum the columns of each word and average its rows, so that rows still sum to one.
export function mergedMap(map) {
  if (mergedMaps.has(map)) return mergedMaps.get(map);
  const [rowOf, rows] = words(map.rows);
  const [columnOf, columns] = words(map.columns);
  const sums = new Float64Array(map.heads * rows.length * columns.length);
  const [n, m] = [map.rows.length, map.columns.length];
  for (let head = 0; head < map.heads; head++)
    for (let i = 0; i < n; i++)
      for (let j = 0; j < m; j++)
        sums[(head * rows.length + rowOf[i]) * columns.length + columnOf[j]] +=
          map.weights[(head * n + i) * m + j] / rows[rowOf[i]].pieces;
  const seen = map.seen && new Uint8Array(Math.ceil(sums.length / 8)); // a word sees what any of its pieces sees
  for (let at = 0; seen && at < map.weights.length; at++) {
    const [head, i, j] = [Math.floor(at / (n * m)), Math.floor(at / m) % n, at % m];
    const to = (head * rows.length + rowOf[i]) * columns.length + columnOf[j];
    if (bit(map.seen, at)) seen[to >> 3] |= 1 << (to & 7);
  }
  const merged = { ...map, rows, columns, reads: null, bits: null, weights: Float32Array.from(sums), seen, buckets: null };
  mergedMaps.set(map, merged);
  return merged;
}

// Return for each token the number of its word, and the words as tokens.
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

// Return the entropy of one head in bits, mean over all rows: 0 for one key, log2(n) for n keys alike.
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

// Return one matrix: a single head (counted from 1), or the mean or the maximum of all.
export function matrix(map, head) {
  const size = map.rows.length * map.columns.length;
  if (head !== "mean" && head !== "max") return map.weights.subarray((head - 1) * size, head * size);
  const result = new Float64Array(size);
  for (let one = 0; one < map.heads; one++) {
    const weights = map.weights.subarray(one * size, (one + 1) * size); // in memory order, since there may be millions
    if (head === "mean") add(result, weights, 1 / map.heads);
    else for (let i = 0; i < size; i++) if (weights[i] > result[i]) result[i] = weights[i];
  }
  return result;
}

const bit = (bytes, at) => (bytes[at >> 3] >> (at & 7)) & 1;

// Return a test for masked cells: later positions of a decoder, and what a window or hashing hides
// from all of the heads.
export function hidden(map, head) {
  const [n, m] = [map.rows.length, map.columns.length];
  if (!map.seen) return map.kind === "decoder" ? (row, column, weight) => column > row && weight === 0 : () => false;
  const heads = typeof head === "number" ? [head] : count(map.heads);
  return (row, column) => !heads.some((one) => bit(map.seen, ((one - 1) * n + row) * m + column));
}

// Return the levels of the cells of a matrix: from 0 to 1, or null for masked cells.
export function levels(map, head, log, weights = matrix(map, head)) {
  const [unseen, m] = [hidden(map, head), map.columns.length];
  return (row, column) => {
    const weight = weights[row * m + column];
    return unseen(row, column, weight) ? null : scale(weight, log);
  };
}

// Return the bucket of every position in the round and head of the state, or null.
export function bucketsOf(map, state) {
  if (!map.buckets || typeof state.head !== "number") return null;
  const length = map.rows.length;
  const start = ((Math.min(state.round, map.rounds) - 1) * map.heads + state.head - 1) * length;
  return map.buckets.subarray(start, start + length);
}

// Return the positions of the tokens to show.
export function visible(tokens, state) {
  return tokens.map((_, i) => i).filter((i) => state.special || !tokens[i].special);
}

export function shown(token) {
  return token.text.trim() === "" ? "␣" : token.text;
}

export function number(weight) {
  return weight > 0 && weight < 0.001 ? weight.toExponential(0) : weight.toFixed(3);
}
