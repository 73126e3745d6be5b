// The page for images: a picture, and over it where the model looked. One state, drawn anew on change.

import { paint } from "./colours.js";
import { choice, element, readout, toggle } from "./elements.js";
import { say, WORDS } from "./picturewords.js";

const VIEWS = ["one", "all"];
const OPAQUE = 0.62; // of the map over the picture

// Any text makes a valid state: what makes no sense for this model is replaced by what does.
function readState(hash, view) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const pick = (name, options, otherwise) => (options.includes(given.get(name)) ? given.get(name) : otherwise);
  const numbers = (n) => Array.from({ length: n }, (_, i) => String(i + 1));
  const korean = (navigator.language ?? "").toLowerCase().startsWith("ko");
  return {
    view: pick("view", VIEWS, "one"),
    layer: pick("layer", ["rollout", ...numbers(view.n_layers)], "rollout"),
    head: pick("head", ["mean", "max", ...numbers(view.n_heads)], "mean"),
    alone: given.get("alone") === "1",
    lang: pick("lang", Object.keys(WORDS), korean ? "ko" : "en"),
  };
}

function writeState(state) {
  const alone = state.alone ? "&alone=1" : "";
  return `#view=${state.view}&layer=${state.layer}&head=${state.head}${alone}&lang=${state.lang}`;
}

// The weights of all patches, row by row, for what is chosen.
function chosen(view, state) {
  if (state.layer === "rollout") return view.rollout;
  const heads = view.layers[Number(state.layer) - 1];
  if (state.head === "mean") return heads[0].map((_, i) => heads.reduce((sum, head) => sum + head[i], 0) / heads.length);
  if (state.head === "max") return heads[0].map((_, i) => Math.max(...heads.map((head) => head[i])));
  return heads[Number(state.head) - 1];
}

function nameOf(state) {
  if (state.layer === "rollout") return say(state, "rollout_of");
  const key = { mean: "mean_of", max: "max_of" }[state.head] ?? "head_n";
  return say(state, key, { layer: state.layer, head: state.head });
}

// Canvas pixels are picture pixels: CSS makes them as large as there is room.
function paintPicture(canvas, picture) {
  const bytes = Uint8Array.from(atob(picture.bytes), (letter) => letter.charCodeAt(0));
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

// The picture with a map over it, or the map alone; colours reach from 0 to the strongest patch.
function paintMap(canvas, view, weights, alone) {
  const most = Math.max(...weights) || 1;
  const rows = Array.from({ length: view.rows }, (_, i) => i);
  const columns = Array.from({ length: view.columns }, (_, i) => i);
  const map = element("canvas");
  paint(map, rows, columns, (row, column) => weights[row * view.columns + column] / most);
  paintPicture(canvas, view.picture);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.globalAlpha = alone ? 1 : OPAQUE;
  context.drawImage(map, 0, 0, canvas.width, canvas.height);
}

function stage(view, width, ...children) {
  return element("div", { class: "stage", style: { width: `${width}px`, "max-width": "100%" } }, ...children);
}

function oneMap(place, view, state) {
  const weights = chosen(view, state);
  const most = Math.max(...weights) || 1;
  const room = place.clientWidth;
  const width = Math.min(420, room >= 760 ? (room - 20) / 2 : room);
  const canvas = element("canvas", { id: "map", tabindex: 0, role: "img", "aria-label": say(state, "map_label") });
  const spot = element("div", { class: "spot" });
  paintMap(canvas, view, weights, state.alone);
  const seen = element("canvas", { id: "seen", role: "img", "aria-label": say(state, "seen") });
  paintPicture(seen, view.picture);
  const told = readout(say(state, "hint"));
  let at = null;
  const show = (row, column) => {
    at = [row, column];
    const weight = weights[row * view.columns + column];
    const share = { n: `${Math.round((100 * weight) / most)} %` };
    told.tell(say(state, "patch", { row: row + 1, column: column + 1 }), weight.toFixed(4), say(state, "share", share));
    const parts = { left: column / view.columns, top: row / view.rows, width: 1 / view.columns, height: 1 / view.rows };
    for (const [side, part] of Object.entries(parts)) spot.style.setProperty(side, `${100 * part}%`);
    spot.classList.add("on");
  };
  const clear = () => {
    at = null;
    spot.classList.remove("on");
    told.clear();
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const place = (offset, size, n) => Math.min(n - 1, Math.max(0, Math.floor((offset / size) * n)));
    show(place(event.clientY - box.top, box.height, view.rows), place(event.clientX - box.left, box.width, view.columns));
  });
  canvas.addEventListener("pointerleave", clear);
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") clear();
    if (!step) return;
    event.preventDefault();
    if (at === null) return show(0, 0);
    const within = (n, limit) => Math.min(limit - 1, Math.max(0, n));
    show(within(at[0] + step[0], view.rows), within(at[1] + step[1], view.columns));
  });
  const live = stage(view, width, canvas, spot);
  live.classList.add("live");
  place.append(
    element("div", { class: "above" }, told.node),
    element(
      "div", { class: "pictures" },
      element("figure", {}, element("figcaption", {}, nameOf(state)), live),
      element("figure", {}, element("figcaption", {}, say(state, "seen")), stage(view, width, seen)),
    ),
  );
}

function allMaps(place, view, state, change) {
  const node = element("div", { class: "thumbnails", style: { "--heads": view.n_heads }, keydown: (event) => walk(event, node) });
  node.append(element("span"));
  for (let head = 1; head <= view.n_heads; head++) node.append(element("span", { class: "column-name" }, String(head)));
  for (let layer = 1; layer <= view.n_layers; layer++) {
    node.append(element("span", { class: "row-name" }, String(layer)));
    for (let head = 1; head <= view.n_heads; head++) {
      const canvas = element("canvas", { "aria-hidden": "true" });
      paintMap(canvas, view, view.layers[layer - 1][head - 1], state.alone);
      const label = say(state, "thumbnail", { layer, head });
      node.append(element("button", {
        type: "button", id: `head-${layer}-${head}`, title: label, "aria-label": label,
        "data-layer": layer, "data-head": head,
        click: () => change({ view: "one", layer: String(layer), head: String(head) }),
      }, canvas));
    }
  }
  const names = element(
    "p", { class: "axes" }, element("span", {}, `↓ ${say(state, "layer")}`), element("span", {}, `→ ${say(state, "head")}`),
  );
  place.append(element("p", { class: "hint" }, say(state, "all_hint")), names, element("div", { class: "scroll" }, node));
}

// Arrow keys go from thumbnail to thumbnail.
function walk(event, node) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  const from = event.target.closest("button");
  if (!from || !step) return;
  event.preventDefault();
  const [layer, head] = [Number(from.dataset.layer) + step[0], Number(from.dataset.head) + step[1]];
  node.querySelector(`#head-${layer}-${head}`)?.focus();
}

function header(view, state, change) {
  const languages = [{ value: "ko", label: "한국어" }, { value: "en", label: "English" }];
  const answers = view.labels.map(([name, share]) =>
    element(
      "li", {}, element("bdi", {}, name),
      element("span", { class: "share" }, element("i", { style: { width: `${100 * share}%` } })),
      element("small", {}, `${(100 * share).toFixed(1)} %`),
    ),
  );
  return element(
    "header", {},
    element(
      "div", { class: "title" },
      element("div", {}, element("h1", {}, element("bdi", {}, view.title)), element("p", { class: "model" }, view.model)),
      choice("lang", say(state, "language"), languages, state.lang, (lang) => change({ lang })),
    ),
    element("ol", { class: "answer" }, ...answers),
  );
}

function controls(view, state, change) {
  const numbers = (n) => Array.from({ length: n }, (_, i) => ({ value: String(i + 1), label: String(i + 1) }));
  const views = VIEWS.map((value) => ({ value, label: say(state, value) }));
  const layers = [{ value: "rollout", label: say(state, "rollout") }, ...numbers(view.n_layers)];
  const heads = [...["mean", "max"].map((value) => ({ value, label: say(state, value) })), ...numbers(view.n_heads)];
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
  if (state.view === "one" && state.layer === "rollout") lines.push(say(state, "rollout_note"));
  return element(
    "footer", {}, ...lines.map((line) => element("p", {}, line)),
    element("p", { class: "caveat" }, say(state, "caveat"), " ", element("cite", {}, "Abnar & Zuidema 2020")),
  );
}

// Show a view (parsed JSON, polyhead-image-attention-1) inside `root`.
export function mount(root, view) {
  let state = readState(location.hash, view);
  const change = (part) => {
    const turned = part.view && part.view !== state.view;
    state = readState(writeState({ ...state, ...part }), view);
    const address = location.href.split("#")[0] + writeState(state);
    try {
      if (turned && window.parent === window) history.pushState(null, "", address);
      else history.replaceState(null, "", address);
    } catch {
      // Some notebooks forbid it; the page works without.
    }
    draw();
  };
  // Everything is built anew; what the reader has focused is kept.
  const draw = () => {
    const focused = document.activeElement?.id;
    document.documentElement.lang = state.lang;
    const figure = element("div");
    root.replaceChildren(
      header(view, state, change),
      element("main", {}, controls(view, state, change), element("section", { class: "figure" }, figure)),
      notes(view, state),
    );
    (state.view === "one" ? oneMap : allMaps)(figure, view, state, change);
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  };
  window.addEventListener("popstate", () => {
    state = readState(location.hash, view);
    draw();
  });
  let width = root.clientWidth;
  window.addEventListener("resize", () => {
    if (root.clientWidth === width) return; // a phone's address bar came or went
    width = root.clientWidth;
    draw();
  });
  draw();
}

const data = document.getElementById("attention-data");
if (data) mount(document.getElementById("attention"), JSON.parse(data.textContent));
