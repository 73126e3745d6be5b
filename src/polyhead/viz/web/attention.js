// The page of a text: one state, redrawn whenever it changes.

import { controls, header, notes } from "./controls.js";
import { element } from "./elements.js";
import { heatmap } from "./heatmap.js";
import { lines } from "./lines.js";
import { defaultLanguage, run } from "./loop.js";
import { overview } from "./overview.js";
import { readState, writeState } from "./state.js";
import { layersOf, readView } from "./weights.js";
import { say } from "./words.js";

const FIGURES = { heat: heatmap, lines, model: overview };

// Show a view (`readView`) inside `root`. `top` builds the part above the controls, null inside another page,
// and `tools(state)` buttons below the figure. `load(maps)` returns a promise of missing weights; `failed(error, again)`
// builds the message if it is rejected.
export function mount(root, view, { top = header, load, failed, tools, signal } = {}) {
  if (!view.maps.length) {
    root.replaceChildren(element("p", {}, say({ lang: defaultLanguage() }, "no_maps")));
    return () => {};
  }
  const draw = (state, change) => {
    document.documentElement.lang = state.lang;
    const maps = layersOf(view, state.kind);
    const missing = (state.view === "model" ? maps : maps.filter((map) => map.layer === state.layer)).filter(
      (map) => !map.weights && !(state.view === "model" && map.small),
    );
    const figure = element("div");
    const name = say(state, state.view === "model" ? "model_view" : state.view);
    root.replaceChildren(
      top?.(view, state, change) ?? "",
      element(
        top ? "main" : "div", {}, controls(view, state, change),
        element("section", { class: "figure", "aria-label": name }, figure, tools ? tools(state) : null),
      ),
      notes(view, state),
    );
    if (!missing.length) FIGURES[state.view](figure, view, state, change);
    else figure.append(element("p", { class: "hint" }, say(state, "loading")));
    if (missing.length) load(missing, state).then(() => again(), (error) => signal.aborted || figure.replaceChildren(failed(error, again)));
  };
  const turned = (before, after) => before.view !== after.view || before.kind !== after.kind;
  const again = run(root, { read: (hash) => readState(hash, view), write: writeState, turned, draw, signal });
  return again;
}

const data = document.getElementById("attention-data");
if (data) mount(document.getElementById("attention"), readView(JSON.parse(data.textContent)));
