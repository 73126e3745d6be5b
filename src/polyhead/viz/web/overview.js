// The overview: one thumbnail for each head, layers from top to bottom, heads from left to right.

import { paint, scale } from "./colours.js";
import { thumbnails } from "./elements.js";
import { entropy, layersOf, levels, mergedMap, visible } from "./weights.js";

export function overview(place, view, state, change) {
  const maps = layersOf(view, state.kind).map((map) => (state.merge && map.weights ? mergedMap(map) : map));
  const mapOf = (layer) => maps.find((map) => map.layer === layer);
  const draw = (canvas, layer, head) => {
    const map = mapOf(layer);
    if (map.weights) paint(canvas, visible(map.rows, state), visible(map.columns, state), levels(map, head, state.log));
    else paintPooled(canvas, map.small, head, state);
  };
  place.append(...thumbnails(state, maps.map((map) => map.layer), Math.max(...maps.map((map) => map.heads)), {
    draw,
    note: (layer, head) => (head <= mapOf(layer).heads ? entropy(mapOf(layer), head - 1) : null),
    open: (layer, head) => change({ view: "heat", layer, head }),
  }));
}

// Paint a map of which the server sent only a smaller version.
function paintPooled(canvas, { rows, columns, weights }, head, state) {
  const all = (n) => Array.from({ length: n }, (_, i) => i);
  paint(canvas, all(rows), all(columns), (row, column) =>
    scale(weights[((head - 1) * rows + row) * columns + column], state.log));
}
