// The model view: one thumbnail for each head, layers from top to bottom, heads from left to right.

import { paint, scale } from "./colours.js";
import { element } from "./elements.js";
import { entropy, isMasked, layersOf, matrix, mergedMap, visible } from "./weights.js";
import { say } from "./words.js";

export function overview(place, view, state, change) {
  const layers = layersOf(view, state.kind).map((map) => (state.merge ? mergedMap(map) : map));
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
  const weights = matrix(map, head);
  paint(canvas, visible(map.rows, state), visible(map.columns, state), (row, column) => {
    const weight = weights[row * map.columns.length + column];
    return isMasked(map, row, column, weight) ? null : scale(weight, state.log);
  });
  const label = say(state, "thumbnail", { layer: map.layer, head, bits });
  return element("button", {
    type: "button", id: `head-${map.layer}-${head}`, "aria-label": label, title: label,
    "data-layer": map.layer, "data-head": head,
    click: () => change({ view: "heat", layer: map.layer, head }),
  }, canvas, element("small", {}, bits));
}

// Arrow keys go from thumbnail to thumbnail.
function walk(event, node) {
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const from = event.target.closest("button");
  if (!from || !steps[event.key]) return;
  const [down, right] = steps[event.key];
  const buttons = [...node.querySelectorAll("button")];
  const layers = [...new Set(buttons.map((button) => button.dataset.layer))];
  const layer = layers[layers.indexOf(from.dataset.layer) + down];
  const head = String(Number(from.dataset.head) + right);
  const to = buttons.find((button) => button.dataset.layer === layer && button.dataset.head === head);
  event.preventDefault();
  to?.focus();
}
