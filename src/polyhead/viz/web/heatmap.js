// The heat-map of one matrix: cells on a canvas, labels as text, the pointed row and column highlighted.

import { axes, element, follow, legend, readout, widest } from "./elements.js";
import { headColour, paint } from "./colours.js";
import { bucketsOf, chosenMap, hidden, levels, matrix, number, shown, visible } from "./weights.js";
import { say } from "./words.js";

const FONT = "13px system-ui, sans-serif";
const TILT = (52 * Math.PI) / 180; // of the labels above the columns, as in the style sheet

export function heatmap(place, view, state) {
  const map = chosenMap(view, state);
  const [rows, columns] = [visible(map.rows, state), visible(map.columns, state)];
  if (!rows.length || !columns.length) {
    place.append(element("p", { class: "hint" }, say(state, "nothing")));
    return;
  }
  const buckets = bucketsOf(map, state);
  if (buckets && state.sorted) for (const list of [rows, columns]) list.sort((a, b) => buckets[a] - buckets[b] || a - b);
  const size = measures(place, map, rows, columns, buckets ? 24 : 0);
  const canvas = element("canvas", {
    class: "cells", id: "cells", tabindex: 0, role: "img", "aria-label": say(state, "heat_label"),
    style: { width: `${columns.length * size.cell}px`, height: `${rows.length * size.cell}px` },
  });
  const weights = matrix(map, state.head);
  paint(canvas, rows, columns, levels(map, state.head, state.log, weights));
  const told = readout(say(state, "heat_hint"));
  const parts = grid(canvas, size, axes(state, map.named ? "written" : "query", "key"), map, rows, columns, buckets);
  const highlight = highlighter(parts, size);
  follow(canvas, rows.length, columns.length, (i, j) => {
    highlight(i, j);
    if (i === null) told.clear();
    else describe(told, state, map, rows[i], columns[j], weights[rows[i] * map.columns.length + columns[j]]);
  });
  place.append(element("div", { class: "above" }, told.node, legend(state.log ? "0.0001" : "0", "1")), parts.node,
    strongest(state, map, rows, columns, weights));
}

// Return the size of a cell and of the labels. On a small screen wide maps scroll sideways.
function measures(place, map, rows, columns, badge) {
  const room = place.clientWidth;
  const most = room < 500 ? 84 : 140;
  const label = (tokens, chosen) => {
    const texts = chosen.map((i) => shown(tokens[i])).sort((a, b) => b.length - a.length);
    return Math.min(most, widest(texts.slice(0, 64), FONT) + badge); // one of the longest
  };
  const side = label(map.rows, rows) + 14;
  const slanted = label(map.columns, columns);
  const overhang = Math.ceil(slanted * Math.cos(TILT)) + 4; // of the last label, to the right
  const fitting = Math.floor((room - side - overhang) / columns.length);
  const count = Math.max(rows.length, columns.length);
  const smallest = count > 256 ? 2 : count > 96 ? 4 : 17;
  const cell = Math.max(smallest, Math.min(42, fitting));
  return { cell, side, overhang, top: Math.ceil(slanted * Math.sin(TILT)) + 16, most };
}

function grid(canvas, size, caption, map, rows, columns, buckets) {
  const name = (tokens, edge, i, n) =>
    element("span", {
      class: "name", title: tokens[i].text, style: { [edge]: `${(n + 0.5) * size.cell}px` },
    }, element("bdi", {}, shown(tokens[i])), buckets && badge(buckets[i]));
  const above = names("above-names", columns, size, (i, n) => name(map.columns, "left", i, n));
  const beside = names("beside-names", rows, size, (i, n) => name(map.rows, "top", i, n));
  const [band, post] = [element("div", { class: "band" }), element("div", { class: "post" })];
  const node = element(
    "div", { class: "scroll" },
    element("div", {
      class: "heat",
      style: { "--side": `${size.side}px`, "--top": `${size.top}px`, "--overhang": `${size.overhang}px`, "--most": `${size.most}px` },
    },
    caption,
    element("div", { class: "corner" }),
    above.node, beside.node,
    element("div", { class: "field" }, canvas, band, post)),
  );
  return { node, above, beside, band, post };
}

// The labels of one side. Beside small cells only the pointed one exists, since thousands would be slow.
function names(side, chosen, size, make) {
  const readable = size.cell >= 12;
  const all = readable ? chosen.map(make) : [];
  const node = element("div", { class: `names ${side}`, "aria-hidden": "true" }, ...all);
  const highlight = (n) => {
    if (readable) return all[n];
    const label = make(chosen[n], n);
    label.classList.add("quiet");
    node.replaceChildren(label);
    return label;
  };
  return { node, highlight, clear: () => readable || node.replaceChildren() };
}

// The number of a token's bucket, with one of eight colours.
function badge(bucket) {
  return element("small", { class: "bucket", style: { "--colour": headColour(bucket + 1) } }, bucket);
}

// Highlight one row and one column; show(null) removes the highlight.
function highlighter({ above, beside, band, post }, size) {
  let on = [];
  return function show(i, j) {
    on.forEach((node) => node.classList.remove("on"));
    if (i === null) {
      on = [];
      beside.clear();
      above.clear();
      return;
    }
    on = [beside.highlight(i), above.highlight(j), band, post];
    on.forEach((node) => node.classList.add("on"));
    band.style.top = `${i * size.cell}px`;
    band.style.height = post.style.width = `${size.cell}px`;
    post.style.left = `${j * size.cell}px`;
  };
}

function describe(told, state, map, row, column, weight) {
  const pair = `‘${shown(map.columns[column])}’ → ‘${shown(map.rows[row])}’`;
  const many = { mean: "mean_of", max: "max_of" }[state.head];
  const rest = [
    say(state, "layer_n", { n: state.layer }),
    many ? say(state, many, { n: map.heads }) : say(state, "head_n", { n: state.head }),
  ];
  if (map.reads?.[row]) rest.push(say(state, "after", { text: shown(map.reads[row]) }));
  const buckets = bucketsOf(map, state);
  if (buckets) rest.push(say(state, "bucket_pair", { from: buckets[column], to: buckets[row] }));
  if (hidden(map, state.head)(row, column, weight)) rest.unshift(say(state, map.kind === "decoder" && column > row ? "masked" : "unseen"));
  told.tell(pair, number(weight), rest.join(" · "));
}

let tableIsOpen = false;

// The largest weights of each row, for screen readers, which keep the arrow keys to themselves; filled when it is opened.
function strongest(state, map, rows, columns, weights) {
  const body = element("tbody");
  const fill = () => {
    body.replaceChildren(...rows.map((row) => {
      const weight = (column) => weights[row * map.columns.length + column];
      const largest = [...columns].sort((a, b) => weight(b) - weight(a)).slice(0, 3).filter((column) => weight(column) > 0);
      const cells = largest.map((column) => element("td", {}, element("bdi", {}, shown(map.columns[column])), ` ${number(weight(column))}`));
      return element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, shown(map.rows[row]))), ...cells);
    }));
  };
  const node = element("details", {
    class: "strongest", open: tableIsOpen, toggle: () => {
      tableIsOpen = node.open;
      if (node.open && !body.firstChild) fill();
    },
  }, element("summary", { id: "strongest" }, say(state, "strongest")), element("table", {}, body));
  return node;
}
