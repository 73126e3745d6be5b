// The state of the page in its address (#view=heat&kind=cross&…).

import { address, defaultLanguage, picker } from "./loop.js";
import { count } from "./elements.js";
import { layersOf, reductions } from "./weights.js";
import { LANGUAGES } from "./words.js";

const VIEWS = ["heat", "lines", "model"];
const KEYS = ["view", "kind", "layer", "head", "off", "word", "merge", "special", "log", "round", "sorted", "lang"];

// Parse any text into a valid state; invalid values are replaced by defaults.
export function readState(hash, view) {
  const { given, pick } = picker(hash);
  const kind = pick("kind", view.kinds, view.kinds[view.kinds.length - 1]);
  const layers = layersOf(view, kind);
  const map = layers.find((one) => String(one.layer) === given.get("layer")) ?? layers[layers.length - 1];
  const heads = count(map.heads);
  const options = [...reductions(map), ...heads.map(String)];
  const head = pick("head", options, options[0]);
  const off = (given.get("off") ?? "").split(".").map(Number).filter((one) => heads.includes(one));
  return {
    view: pick("view", VIEWS, "heat"),
    kind,
    layer: map.layer,
    head: head === "mean" || head === "max" ? head : Number(head),
    off: [...new Set(off)].sort((a, b) => a - b), // heads whose lines are switched off
    word: /^[rc]\d+$/.test(given.get("word") ?? "") ? given.get("word") : "", // r3: only the third row; c1: only the first column
    merge: given.get("merge") === "1",
    special: given.get("special") !== "0",
    log: given.get("log") === "1",
    round: Math.min(Math.max(1, parseInt(given.get("round")) || 1), map.rounds || 1), // of hashing
    sorted: given.get("sorted") === "1", // by bucket
    lang: pick("lang", LANGUAGES, defaultLanguage()),
    langChosen: given.has("lang"),
  };
}

export function writeState(state) {
  const { view, kind, layer, head } = state;
  const parts = { view, kind, layer, head };
  if (state.off.length) parts.off = state.off.join(".");
  if (state.word) parts.word = state.word;
  if (!state.special) parts.special = 0;
  if (state.round > 1) parts.round = state.round;
  for (const key of ["merge", "log", "sorted"]) if (state[key]) parts[key] = 1;
  if (state.langChosen) parts.lang = state.lang;
  return address(parts, KEYS);
}
