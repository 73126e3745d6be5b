// What is being looked at, kept in the address (#view=heat&kind=cross&…): it can be sent, and Back works.

import { layersOf } from "./weights.js";
import { WORDS } from "./words.js";

const VIEWS = ["heat", "lines", "model"];

export function defaultLanguage() {
  return (navigator.language ?? "").toLowerCase().startsWith("ko") ? "ko" : "en";
}

// Any text makes a valid state: what makes no sense for this view is replaced by what does.
export function readState(hash, view) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const pick = (name, options, otherwise) => (options.includes(given.get(name)) ? given.get(name) : otherwise);
  const kind = pick("kind", view.kinds, view.kinds[view.kinds.length - 1]);
  const layers = layersOf(view, kind);
  const map = layers.find((one) => String(one.layer) === given.get("layer")) ?? layers[layers.length - 1];
  const heads = Array.from({ length: map.heads }, (_, i) => i + 1);
  const head = pick("head", ["mean", "max", ...heads.map(String)], "mean");
  const off = (given.get("off") ?? "").split(".").map(Number).filter((one) => heads.includes(one));
  return {
    view: pick("view", VIEWS, "heat"),
    kind,
    layer: map.layer,
    head: head === "mean" || head === "max" ? head : Number(head),
    off: [...new Set(off)].sort((a, b) => a - b), // heads whose lines are switched off
    word: /^[rc]\d+$/.test(given.get("word") ?? "") ? given.get("word") : "", // r3: the third row alone; c1: the first column
    merge: given.get("merge") === "1",
    special: given.get("special") !== "0",
    log: given.get("log") === "1",
    lang: pick("lang", Object.keys(WORDS), defaultLanguage()),
    langChosen: given.has("lang"),
  };
}

export function writeState(state) {
  const parts = [`view=${state.view}`, `kind=${state.kind}`, `layer=${state.layer}`, `head=${state.head}`];
  if (state.off.length) parts.push(`off=${state.off.join(".")}`);
  if (state.word) parts.push(`word=${state.word}`);
  if (state.merge) parts.push("merge=1");
  if (!state.special) parts.push("special=0");
  if (state.log) parts.push("log=1");
  if (state.langChosen) parts.push(`lang=${state.lang}`);
  return `#${parts.join("&")}`;
}

// Write the state to the address. Another view or kind is a new page for Back; the rest is not.
export function remember(before, after) {
  const address = location.href.split("#")[0] + writeState(after);
  const turned = before.view !== after.view || before.kind !== after.kind;
  try {
    if (turned && window.parent === window) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  } catch {
    // Some notebooks forbid it; the page works without.
  }
}
