// The model view: one thumbnail for each head, layers from top to bottom, heads from left to right.

import { paint, scale } from "./colours.js";
import { element, walk } from "./elements.js";
import { entropy, hidden, layersOf, matrix, mergedMap, visible } from "./weights.js";
import { say } from "./words.js";

export function overview(place, view, state, change) {
  const layers = layersOf(view, state.kind).map((map) => (state.merge && map.weights ? mergedMap(map) : map));
  const most = Math.max(...layers.map((map) => map.heads));
  const node = element("div", { class: "thumbnails", style: { "--heads": most }, keydown: (event) => walk(event, node) });
  node.append(element("span"));
  for (let head = 1; head <= most; head++) node.append(element("span", { class: "column-name" }, String(head)));
  for (const map of layers) {
    node.append(element("span", { class: "row-name", title: say(state, "layer_n", { n: map.layer }) }, String(map.layer)));
    for (let head = 1; head <= most; head++)
      node.append(head <= map.heads ? thumbnail(map, head, state, change) : element("span"));
  }
  const names = element(
    "p", { class: "axes" }, element("span", {}, `↓ ${say(state, "layer")}`), element("span", {}, `→ ${say(state, "head")}`),
  );
  place.append(element("p", { class: "hint" }, say(state, "model_hint")), names, element("div", { class: "scroll" }, node));
}

function thumbnail(map, head, state, change) {
  const bits = entropy(map, head - 1);
  const canvas = element("canvas", { class: "cells", "aria-hidden": "true" });
  if (map.weights) whole(canvas, map, head, state);
  else reduced(canvas, map.small, head, state);
  const label = say(state, "thumbnail", { layer: map.layer, head, bits });
  return element("button", {
    type: "button", id: `head-${map.layer}-${head}`, "aria-label": label, title: label,
    "data-layer": map.layer, "data-head": head,
    click: () => change({ view: "heat", layer: map.layer, head }),
  }, canvas, element("small", {}, bits));
}

function whole(canvas, map, head, state) {
  const [weights, unseen] = [matrix(map, head), hidden(map, head)];
  paint(canvas, visible(map.rows, state), visible(map.columns, state), (row, column) => {
    const weight = weights[row * map.columns.length + column];
    return unseen(row, column, weight) ? null : scale(weight, state.log);
  });
}

// A map that is too large to be sent whole for a thumbnail.
function reduced(canvas, { rows, columns, weights }, head, state) {
  const all = (n) => Array.from({ length: n }, (_, i) => i);
  paint(canvas, all(rows), all(columns), (row, column) =>
    scale(weights[((head - 1) * rows + row) * columns + column], state.log));
}
