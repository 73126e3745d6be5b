// Builders of elements. Texts are inserted as text nodes; there is no way to pass markup.

import { paint } from "./colours.js";
import { say } from "./words.js";

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// Return 1, 2, … n: layers, heads and places are counted from 1.
export function count(n) {
  return Array.from({ length: n }, (_, i) => i + 1);
}

export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null)); // strings and numbers become text nodes
  return node;
}

export function button(attributes, ...children) {
  return element("button", { type: "button", ...attributes }, ...children);
}

// A choice of one option, as native radio buttons: arrow keys and screen readers work without code.
export function choice(name, legend, options, chosen, change) {
  const items = options.map(({ value, label = value, note, hint }) => {
    const id = `${name}-${value}`;
    const input = element("input", { type: "radio", id, name, value, checked: value === chosen, change: () => change(value) });
    const text = element("span", { class: "chip", title: hint ?? null }, label, note ? element("small", {}, note) : null);
    return element("label", { for: id }, input, text);
  });
  return element(
    "fieldset", { class: `choice ${name}` }, element("legend", {}, legend), element("div", { class: "chips" }, ...items),
  );
}

export function languages(state, change) {
  return choice("lang", say(state, "language"), [{ value: "ko", label: "한국어" }, { value: "en", label: "English" }], state.lang, change);
}

export function toggle(name, label, checked, change) {
  const input = element("input", { type: "checkbox", id: name, role: "switch", checked, change: (event) => change(event.target.checked) });
  return element("label", { class: "switch", for: name }, input, element("span", { class: "track" }), label);
}

// The line that describes the cell under the pointer; screen readers read it when it changes.
export function readout(hint) {
  const node = element("output", { class: "readout", "aria-live": "polite" });
  const tell = (main, weight = "", rest = "") => {
    node.replaceChildren(
      element("span", { class: main === hint ? "hint" : "pair" }, main),
      element("strong", {}, weight),
      element("span", { class: "rest" }, rest),
    );
  };
  tell(hint);
  return { node, tell, clear: () => tell(hint) };
}

// The colours of weights from `least` to `most`.
export function legend(least, most) {
  const bar = element("canvas", { class: "bar", "aria-hidden": "true" });
  paint(bar, [0], Array.from({ length: 128 }, (_, i) => i), (_, i) => i / 127);
  return element("div", { class: "legend" }, least, bar, most);
}

// The names of both axes.
export function axes(state, down, across) {
  return element("p", { class: "axes" }, element("span", {}, `↓ ${say(state, down)}`), element("span", {}, `→ ${say(state, across)}`));
}

// Return the width of the widest text in pixels.
export function widest(texts, font) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = font;
  return Math.ceil(texts.reduce((width, text) => Math.max(width, context.measureText(text).width), 0));
}

// A probability as a bar.
export function bar(share) {
  return element("span", { class: "share" }, element("i", { style: { width: `${100 * share}%` } }));
}

// Likeliest first: names with their probabilities as bars.
export function shares(labels) {
  const items = labels.map(([name, share]) =>
    element("li", {}, element("bdi", {}, name), bar(share), element("small", {}, `${(100 * share).toFixed(1)} %`)));
  return element("ol", { class: "answer" }, ...items);
}

// Call show(row, column) for the cell under the pointer or reached by arrow keys, show(null) outside.
export function follow(canvas, n, m, show) {
  let at = null;
  const within = (i, length) => Math.max(0, Math.min(length - 1, Math.floor(i)));
  const go = (row, column) => {
    at = [within(row, n), within(column, m)];
    show(...at);
  };
  const leave = () => {
    at = null;
    show(null);
  };
  const point = (event) => go((n * event.offsetY) / canvas.clientHeight, (m * event.offsetX) / canvas.clientWidth);
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && leave());
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    if (at) go(at[0] + step[0], at[1] + step[1]);
    else go(0, 0);
  });
}

// A button for each head, layers from top to bottom: draw(canvas, layer, head) paints its map, and
// note(layer, head) is the text below it, or null if there is no such head. Arrow keys move the focus.
export function thumbnails(state, layers, nHeads, { draw, note, open }) {
  const node = element("div", { class: "thumbnails", style: { "--heads": nHeads }, keydown: moveFocus });
  const name = (n) => element("span", { class: "count-name" }, n);
  node.append(element("span"), ...count(nHeads).map(name));
  for (const layer of layers) {
    node.append(name(layer));
    for (const head of count(nHeads)) node.append(thumbnail(layer, head) ?? element("span"));
  }
  function thumbnail(layer, head) {
    const below = note(layer, head);
    if (below === null) return null;
    const canvas = element("canvas", { class: "cells", "aria-hidden": "true" });
    draw(canvas, layer, head);
    const label = say(state, "open_head", { layer, head }) + (below && ` · ${say(state, "bits", { n: below })}`);
    return button({ id: `head-${layer}-${head}`, "aria-label": label, title: label, click: () => open(layer, head) }, canvas, element("small", {}, below));
  }
  function moveFocus(event) {
    const [step, from] = [ARROWS[event.key], event.target.id.split("-").map(Number)];
    if (!step) return;
    event.preventDefault();
    node.querySelector(`#head-${from[1] + step[0]}-${from[2] + step[1]}`)?.focus();
  }
  return [element("p", { class: "hint" }, say(state, "model_hint")), axes(state, "layer", "head"), element("div", { class: "scroll" }, node)];
}

// Notes below a figure, and a caveat.
export function footer(state, lines, chosen, sources) {
  return element(
    "footer", {}, ...lines.map((line) => element("p", {}, line)),
    element("p", { class: "caveat" }, say(state, "caveat", { n: say(state, chosen) }), " ", element("cite", {}, sources)),
  );
}
