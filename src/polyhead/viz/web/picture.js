// The page of an image: the image with attention maps over it; one state, redrawn when it changes.

import { paint } from "./colours.js";
import { bytesOf, choice, count, element, follow, footer, languages, legend, readout, shares, thumbnails, toggle } from "./elements.js";
import { address, defaultLanguage, picker, run } from "./loop.js";
import { LANGUAGES, say } from "./words.js";

const VIEWS = ["one", "all"];
const KEYS = ["view", "layer", "head", "alone", "lang"];
const OPACITY = 0.62; // of the map over the image

const numbers = (n) => count(n).map(String);

// Parse any text into a valid state; invalid values are replaced by defaults.
function readState(hash, view) {
  const { given, pick } = picker(hash);
  return {
    view: pick("view", VIEWS, "one"),
    layer: pick("layer", ["rollout", ...numbers(view.n_layers)], "rollout"),
    head: pick("head", ["mean", "max", ...numbers(view.n_heads)], "mean"),
    alone: given.get("alone") === "1",
    lang: pick("lang", LANGUAGES, defaultLanguage()),
  };
}

function writeState({ view, layer, head, alone, lang }) {
  return address({ view, layer, head, ...(alone && { alone: 1 }), lang }, KEYS);
}

// Return the selected weights of all patches, row by row.
function selected(view, state) {
  if (state.layer === "rollout") return view.rollout;
  const heads = view.layers[Number(state.layer) - 1];
  if (state.head === "mean") return heads[0].map((_, i) => heads.reduce((sum, head) => sum + head[i], 0) / heads.length);
  if (state.head === "max") return heads[0].map((_, i) => Math.max(...heads.map((head) => head[i])));
  return heads[Number(state.head) - 1];
}

// Return the entropy of a map over the patches, in bits.
function bits(weights) {
  const all = weights.reduce((sum, weight) => sum + weight, 0) || 1;
  const sum = weights.reduce((bits, weight) => (weight > 0 ? bits - (weight / all) * Math.log2(weight / all) : bits), 0);
  return Math.abs(sum).toFixed(1);
}

function nameOf(view, state) {
  if (state.layer === "rollout") return say(state, "rollout_of");
  const key = { mean: "mean_of", max: "max_of" }[state.head];
  const head = key ? say(state, key, { n: view.n_heads }) : say(state, "head_n", { n: state.head });
  return `${say(state, "layer_n", { n: state.layer })}, ${head}`;
}

// Canvas pixels are image pixels; CSS enlarges them.
function paintPicture(canvas, picture) {
  const bytes = bytesOf(picture.bytes);
  [canvas.width, canvas.height] = [picture.width, picture.height];
  const context = canvas.getContext("2d");
  const image = context.createImageData(picture.width, picture.height);
  for (let i = 0; i < picture.width * picture.height; i++) {
    for (let channel = 0; channel < 3; channel++)
      image.data[4 * i + channel] = bytes[picture.channels * i + (picture.channels === 3 ? channel : 0)];
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

// Paint the image with a map over it, or the map alone; colours range from 0 to the largest weight.
function paintMap(canvas, view, weights, alone) {
  const largest = Math.max(...weights) || 1;
  const [rows, columns] = [view.rows, view.columns].map((n) => Array.from({ length: n }, (_, i) => i));
  const map = element("canvas");
  paint(map, rows, columns, (row, column) => weights[row * view.columns + column] / largest);
  paintPicture(canvas, view.picture);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.globalAlpha = alone ? 1 : OPACITY;
  context.drawImage(map, 0, 0, canvas.width, canvas.height);
}

function frame(width, ...children) {
  return element("div", { class: "stage", style: { width: `${width}px`, "max-width": "100%" } }, ...children);
}

function oneMap(place, view, state) {
  const weights = selected(view, state);
  const room = place.clientWidth;
  const width = Math.min(420, room >= 760 ? (room - 20) / 2 : room);
  const canvas = element("canvas", { id: "map", tabindex: 0, role: "img", "aria-label": say(state, "map_label") });
  const spot = element("div", { class: "spot" });
  const light = (sides) => Object.entries(sides).forEach(([side, part]) => spot.style.setProperty(side, `${100 * part}%`));
  paintMap(canvas, view, weights, state.alone);
  const seen = element("canvas", { id: "seen", role: "img", "aria-label": say(state, "seen") });
  paintPicture(seen, view.picture);
  const told = readout(say(state, "patch_hint"));
  follow(canvas, view.rows, view.columns, (row, column) => {
    spot.classList.toggle("on", row !== null);
    if (row === null) return told.clear();
    light({ left: column / view.columns, top: row / view.rows, width: 1 / view.columns, height: 1 / view.rows });
    const weight = weights[row * view.columns + column];
    const share = { n: `${Math.round((100 * weight) / (Math.max(...weights) || 1))} %` };
    return told.tell(say(state, "patch", { row: row + 1, column: column + 1 }), weight.toFixed(4), say(state, "share", share));
  });
  const figure = (name, node) => element("figure", {}, element("figcaption", {}, name), node);
  place.append(
    element("div", { class: "above" }, told.node, legend("0", Math.max(...weights).toPrecision(2))),
    element("div", { class: "pictures" }, figure(nameOf(view, state), frame(width, canvas, spot)), figure(say(state, "seen"), frame(width, seen))),
  );
}

function allMaps(place, view, state, change) {
  const most = say(state, "largest");
  place.append(element("div", { class: "above" }, legend("0", most)), ...thumbnails(state, count(view.n_layers), view.n_heads, {
    draw(canvas, layer, head) {
      canvas.style.aspectRatio = "auto"; // that of the image
      paintMap(canvas, view, view.layers[layer - 1][head - 1], state.alone);
    },
    note: (layer, head) => bits(view.layers[layer - 1][head - 1]),
    open: (layer, head) => change({ view: "one", layer, head }),
  }));
}

function header(view, state, change) {
  return element(
    "header", {},
    element(
      "div", { class: "title" },
      element("div", {}, element("h1", {}, element("bdi", {}, view.title)), element("p", { class: "model" }, view.model)),
      languages(state, (lang) => change({ lang })),
    ),
    shares(view.labels),
  );
}

function controls(view, state, change) {
  const options = (n) => numbers(n).map((value) => ({ value }));
  const spread = view.layers[Number(state.layer) - 1]?.map(bits) ?? [];
  const headed = spread.map((note, i) => ({ value: String(i + 1), note, hint: say(state, "bits", { n: note }) }));
  const views = [{ value: "one", label: say(state, "one") }, { value: "all", label: say(state, "model_view") }];
  const layers = [{ value: "rollout", label: say(state, "rollout") }, ...options(view.n_layers)];
  const heads = [...["mean", "max"].map((value) => ({ value, label: say(state, value) })), ...headed];
  const one = state.view === "one";
  return element(
    "div", { class: "controls" },
    choice("view", say(state, "view"), views, state.view, (value) => change({ view: value })),
    one ? choice("layer", say(state, "layer"), layers, state.layer, (layer) => change({ layer })) : null,
    one && state.layer !== "rollout" ? choice("head", say(state, "head"), heads, state.head, (head) => change({ head })) : null,
    element("div", { class: "switches" }, toggle("alone", say(state, "alone"), state.alone, (alone) => change({ alone }))),
  );
}

function notes(view, state) {
  const lines = [say(state, view.pooled === "class" ? "class_note" : "mean_note"), say(state, "scale_note")];
  lines.push(say(state, state.view === "one" && state.layer === "rollout" ? "rollout_note" : "patch_bits_note"));
  return footer(state, lines, "a_class", "Abnar & Zuidema 2020");
}

// Show a view (parsed JSON, polyhead-image-attention-1) inside `root`; the options are as for text.
export function mountPicture(root, view, { top = header, tools, signal } = {}) {
  const draw = (state, change) => {
    document.documentElement.lang = state.lang;
    const figure = element("div");
    root.replaceChildren(
      top?.(view, state, change) ?? "",
      element(top ? "main" : "div", {}, controls(view, state, change), element("section", { class: "figure" }, figure, tools ? tools(state) : null)),
      notes(view, state),
    );
    (state.view === "one" ? oneMap : allMaps)(figure, view, state, change);
  };
  const turned = (before, after) => before.view !== after.view;
  return run(root, { read: (hash) => readState(hash, view), write: writeState, turned, draw, signal });
}

const data = document.getElementById("attention-data");
if (data) mountPicture(document.getElementById("attention"), JSON.parse(data.textContent));
