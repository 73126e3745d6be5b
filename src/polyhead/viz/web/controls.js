// The controls above the figure: view, kind of attention, layer and heads.

import { headColour } from "./colours.js";
import { button, choice, count, element, footer, languages, toggle } from "./elements.js";
import { minWeight } from "./lines.js";
import { chosenMap, entropy, layersOf, reductions } from "./weights.js";
import { say } from "./words.js";

export function header(view, state, change) {
  const sentence = (side) =>
    view[side] && view[side].text
      ? element("p", { class: "sentence" }, element("span", { class: "side" }, say(state, side)), element("bdi", {}, view[side].text))
      : null;
  return element(
    "header", {},
    element("div", { class: "title" },
      element("h1", {}, element("bdi", {}, view.title)),
      languages(state, (lang) => change({ lang, langChosen: true }))),
    view.model ? element("p", { class: "model" }, `${say(state, "model")} `, element("bdi", {}, view.model)) : null,
    sentence("source"), sentence("target"),
  );
}

export function controls(view, state, change) {
  const tabs = [["heat", "heat"], ["lines", "lines"], ["model", "model_view"]];
  const views = tabs.map(([value, key]) => ({ value, label: say(state, key) }));
  const kinds = view.kinds.map((value) => ({ value, label: say(state, value) }));
  const layers = layersOf(view, state.kind).map((map) => ({ value: map.layer }));
  const whole = state.view === "model";
  const { buckets, rounds } = chosenMap(view, state);
  const hashed = state.view === "heat" && buckets && typeof state.head === "number";
  const roundOptions = count(rounds).map((value) => ({ value }));
  return element(
    "section", { class: "controls", "aria-label": say(state, "options") },
    choice("view", say(state, "view"), views, state.view, (value) => change({ view: value })),
    choice("kind", say(state, "kind"), kinds, state.kind, (kind) => change({ kind, word: "" })),
    whole ? null : choice("layer", say(state, "layer"), layers, state.layer, (layer) => change({ layer })),
    whole ? null : state.view === "lines" ? headSwitches(view, state, change) : headChoice(view, state, change),
    hashed && rounds > 1 ? choice("round", say(state, "round"), roundOptions, state.round, (round) => change({ round })) : null,
    element("div", { class: "switches" },
      toggle("merge", say(state, "merge"), state.merge, (merge) => change({ merge, word: "" })),
      toggle("special", say(state, "special"), state.special, (special) => change({ special, word: "" })),
      state.view === "lines" ? null : toggle("log", say(state, "log"), state.log, (log) => change({ log })),
      hashed ? toggle("sorted", say(state, "sorted"), state.sorted, (sorted) => change({ sorted })) : null),
  );
}

function headChoice(view, state, change) {
  const map = chosenMap(view, state);
  const options = reductions(map).map((value) => ({ value, label: say(state, value) }));
  for (const value of count(map.heads)) {
    const note = entropy(map, value - 1);
    options.push({ value, note, hint: say(state, "bits", { n: note }) });
  }
  return choice("head", say(state, "head"), options, state.head, (head) => change({ head }));
}

// A coloured square for each head switches its lines on and off; a double click shows only that head.
function headSwitches(view, state, change) {
  const map = chosenMap(view, state);
  const heads = count(map.heads);
  const squares = heads.map((head) => {
    const bits = entropy(map, head - 1);
    const on = !state.off.includes(head);
    const flip = () => change({ off: on ? [...state.off, head].sort((a, b) => a - b) : state.off.filter((one) => one !== head) });
    const input = element("input", { type: "checkbox", id: `square-${head}`, checked: on, change: flip });
    const text = element("span", {
      class: "chip square", title: say(state, "bits", { n: bits }), style: { "--colour": headColour(head) },
    }, head, element("small", {}, bits));
    return element("label", { for: `square-${head}`, dblclick: () => change({ off: heads.filter((one) => one !== head) }) }, input, text);
  });
  const flipAll = () => change({ off: state.off.length ? [] : heads });
  const all = button({ class: "plain", id: "all-heads", click: flipAll }, say(state, state.off.length ? "all" : "none"));
  return element(
    "fieldset", { class: "choice head" }, element("legend", {}, say(state, "heads")),
    element("div", { class: "chips" }, ...squares, all),
  );
}

export function notes(view, state) {
  const lines = [];
  if (state.merge) lines.push(say(state, "merged_note"));
  if (!state.special) lines.push(say(state, "hidden_note"));
  const map = chosenMap(view, state);
  if (map.seen && state.view !== "lines") lines.push(say(state, "unseen_note"));
  if (map.buckets && state.view === "heat") lines.push(say(state, typeof state.head === "number" ? "bucket_note" : "bucket_hint"));
  if (state.view === "lines") lines.push(say(state, "faint_note", { n: minWeight(view, state) }));
  lines.push(say(state, "bits_note"));
  return footer(state, lines, "a_word", "Jain & Wallace 2019 · Wiegreffe & Pinter 2019");
}
