// The numbers: reading a view (format polyhead-attention-1), merging subwords, entropy, one matrix of many heads.
//
// A map here is {kind, layer, heads, rows, columns, weights}: rows and columns are tokens, and
// weights is one Float32Array with the axes (head, row, column).

export const KINDS = ["encoder", "decoder", "cross"];

export function readView(content) {
  if (content.format !== "polyhead-attention-1") throw new Error("not polyhead-attention-1");
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
      weights: floats(packed.weights),
    };
  });
  const kinds = KINDS.filter((kind) => maps.some((map) => map.kind === kind));
  return { title: content.title, model: content.model, source: content.source, target: content.target, kinds, maps };
}

function floats(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

export function layersOf(view, kind) {
  return view.maps.filter((map) => map.kind === kind).sort((a, b) => a.layer - b.layer);
}

// The map that the state asks for: of its kind and layer, with words instead of subwords if wished.
export function chosenMap(view, state) {
  const map = view.maps.find((one) => one.kind === state.kind && one.layer === state.layer);
  return state.merge ? mergedMap(map) : map;
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
  const merged = { ...map, rows, columns, reads: null, weights: Float32Array.from(sums) };
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
  const size = map.rows.length * map.columns.length;
  let sum = 0;
  for (const p of map.weights.subarray(head * size, (head + 1) * size)) if (p > 0) sum -= p * Math.log2(p);
  return (Math.abs(sum) / map.rows.length).toFixed(1);
}

// One matrix: a single head (counted from 1), or the mean or the largest of all.
export function matrix(map, head) {
  const size = map.rows.length * map.columns.length;
  if (head !== "mean" && head !== "max") return map.weights.subarray((head - 1) * size, head * size);
  const result = new Float32Array(size);
  for (let i = 0; i < size; i++) {
    let [sum, largest] = [0, 0];
    for (let one = 0; one < map.heads; one++) {
      const weight = map.weights[one * size + i];
      sum += weight;
      largest = Math.max(largest, weight);
    }
    result[i] = head === "mean" ? sum / map.heads : largest;
  }
  return result;
}

// A decoder may not look at what comes later; such cells are not zero by choice.
export function isMasked(map, row, column, weight) {
  return map.kind === "decoder" && column > row && weight === 0;
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
