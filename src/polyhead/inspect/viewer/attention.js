// The page: one view of the data, one state, drawn anew whenever the state changes.

import { controls, header, notes } from "./controls.js";
import { element } from "./elements.js";
import { heatmap } from "./heatmap.js";
import { lines } from "./lines.js";
import { overview } from "./overview.js";
import { defaultLanguage, readState, remember, writeState } from "./state.js";
import { readView } from "./weights.js";
import { say } from "./words.js";

const FIGURES = { heat: heatmap, lines, model: overview };

// Show a view (parsed JSON, polyhead-attention-1) inside `root`.
export function mount(root, content) {
  const view = readView(content);
  if (!view.maps.length) {
    root.replaceChildren(element("p", {}, say({ lang: defaultLanguage() }, "no_maps")));
    return;
  }
  let state = readState(location.hash, view);
  const draw = () => drawPage(root, view, state, change);
  const change = (part) => {
    const before = state;
    state = readState(writeState({ ...state, ...part }), view);
    remember(before, state);
    draw();
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
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

// Everything is built anew; what the reader has focused and scrolled to is kept.
function drawPage(root, view, state, change) {
  const focused = document.activeElement?.id;
  const [across, down] = [root.querySelector(".scroll")?.scrollLeft, window.scrollY];
  document.documentElement.lang = state.lang;
  const figure = element("div");
  root.replaceChildren(
    header(view, state, change),
    element(
      "main", {}, controls(view, state, change),
      element("section", { class: "figure", "aria-label": say(state, FIGURE_NAMES[state.view]) }, figure),
    ),
    notes(view, state),
  );
  FIGURES[state.view](figure, view, state, change);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  if (across) root.querySelector(".scroll")?.scrollTo(across, 0);
  window.scrollTo(window.scrollX, down);
}

const FIGURE_NAMES = { heat: "heat", lines: "lines", model: "model_view" };

const data = document.getElementById("attention-data");
if (data) mount(document.getElementById("attention"), JSON.parse(data.textContent));
