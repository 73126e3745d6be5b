// Panels of models that read a text: masked tokens, replaced words and classification.

import { bar, button, element, shares } from "../viewer/elements.js";
import { keepFocus } from "../viewer/loop.js";
import { explorer, latestOnly, emptyNote, option, textBox } from "./panel_parts.js";
import { json } from "./http.js";

const MASK = "[MASK]";
const MOST_LINES = 12; // of the matrix

export const PAIR = "\t"; // between the texts of a pair

// Text box, or two for a pair of texts (`second` is the hint of the other, `names` are those of both), the result beside it, and the attention below.
// `request` returns the texts of the attention.
export function textPanel(root, page, { hint, answered, extra, second, names = [], request = (text) => ({ text }) }) {
  const typed = () => page.change({ q: [text.box.value, ...(other?.box.value ? [other.box.value] : [])].join(PAIR) });
  const text = textBox(page, { hint, name: second ? names[0] : null, typed });
  const other = second ? textBox(page, { hint: second, name: names[1], typed, id: "text-pair" }) : null;
  const boxes = other ? element("div", { class: "boxes" }, text.node, other.node) : text.node;
  const answer = element("div", { class: "answer-box", "aria-live": "polite" });
  const [below, place] = [element("div", { class: "below" }), element("div", { class: "place" })];
  const show = explorer(page, place);
  const guard = latestOnly(page, answer);
  root.append(element("section", { class: "card twins" }, boxes, element("div", { class: "box out" }, answer)), below);
  const failed = (signal) => (error) => {
    if (!signal.aborted) below.replaceChildren(); // no old attention below a new text
    throw error;
  };
  if (extra) text.node.lastChild.prepend(extra(text));
  return {
    update() {
      const { q } = page.state;
      const [first, ...rest] = other ? q.split(PAIR) : [q];
      text.set(first);
      other?.set(rest.join(" "));
      guard(q, async (signal) => {
        const result = q.trim() ? await answered(q, signal).catch(failed(signal)) : [];
        keepFocus(root, () => answer.replaceChildren(...result));
        if (!page.model.attention.length) return below.replaceChildren();
        if (!result.length) return below.replaceChildren(emptyNote(page));
        if (below.firstChild !== place) below.replaceChildren(place);
        return show({ model: page.model.name, ...request(q) });
      });
    },
  };
}

export function classifyPanel(root, page) {
  return textPanel(root, page, {
    hint: "type_here",
    second: page.model.pairs !== "no" && "second_here",
    names: ["first_text", "second_text"],
    answered: async (q, signal) => {
      const [text, text_pair] = page.model.pairs === "no" ? [q] : q.split(PAIR);
      if (!text.trim() || (page.model.pairs === "required" && !text_pair?.trim())) return [];
      const { results: [result] } = await json("/v1/classify", { model: page.model.name, text, text_pair, top: 8 }, signal);
      const note = result.cut ? [element("p", { class: "hint" }, page.say("cut_off_note"))] : [];
      return [...(result.classes.length ? classes(page, result) : number(page, result.number)), ...note];
    },
  });
}

// Classes with their probabilities; several labels are independent of each other.
function classes(page, { classes: found, labels }) {
  const bars = shares(found.map(({ label, probability }) => [label, probability]));
  if (!labels) return [element("h2", {}, page.say("classes")), bars];
  bars.classList.add("several");
  found.forEach(({ label }, i) => bars.children[i].classList.toggle("chosen", labels.includes(label)));
  return [element("h2", {}, page.say("labels")), bars, element("p", { class: "hint" }, page.say("labels_hint"))];
}

// A number, and its place among those of the training data.
function number(page, value) {
  const written = (n) => new Intl.NumberFormat(page.state.lang, { maximumSignificantDigits: 4 }).format(n);
  const [low, high] = page.model.range ?? [];
  const share = Math.max(0, Math.min(1, (value - low) / (high - low)));
  const range = page.model.range
    ? [element("div", { class: "range" }, element("small", {}, written(low)), bar(share), element("small", {}, written(high))),
      element("p", { class: "hint" }, page.say("range_hint"))]
    : [];
  return [element("h2", {}, page.say("number")), element("p", { class: "number" }, written(value)), ...range];
}

// The fields of the result of a task that has no panel of its own.
export function taskPanel(root, page) {
  return textPanel(root, page, {
    hint: "type_here",
    answered: async (text, signal) => {
      const { results: [result] } = await json(`/v1/${page.model.use}`, { model: page.model.name, text }, signal);
      return Object.entries(result).flatMap(([name, value]) => [
        element("h2", {}, name), element("p", {}, element("bdi", {}, typeof value === "string" ? value : JSON.stringify(value))),
      ]);
    },
  });
}

// One text per line, and the similarity of every two.
export function embedPanel(root, page) {
  return textPanel(root, page, {
    hint: "lines_here",
    answered: async (q, signal) => {
      const text = q.split("\n").filter((line) => line.trim()).slice(0, MOST_LINES);
      const { embeddings, cut } = await json("/v1/embed", { model: page.model.name, text }, signal);
      const note = cut.includes(true) ? [element("p", { class: "hint" }, page.say("cut_off_note"))] : [];
      return [element("h2", {}, page.say("similarity")), matrix(text, embeddings), element("p", { class: "hint" }, page.say("similarity_hint")), ...note];
    },
  });
}

function matrix(lines, vectors) {
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const heads = lines.map((_, i) => element("th", { scope: "col" }, i + 1));
  const rows = vectors.map((a, i) => element("tr", {}, element("th", { scope: "row", title: lines[i] }, `${i + 1} `, element("bdi", {}, lines[i])),
    ...vectors.map((b) => dot(a, b)).map((share) => element("td", { style: { "--share": `${Math.round(60 * Math.max(0, share))}%` } }, share.toFixed(2)))));
  return element("div", { class: "scroll" }, element("table", { class: "matrix" }, element("tr", {}, element("td"), ...heads), ...rows));
}

export function fillPanel(root, page) {
  return maskPanel(root, page, "blank_here", () => [element("p", { class: "hint" }, page.say("blank_here"))]);
}

// ELECTRA: its discriminator reads a complete text, its generator predicts the masked tokens of another.
export function detectPanel(root, page) {
  return maskPanel(root, page, "detect_here", async (text, signal) => {
    const { words } = await json("/v1/detect", { model: page.model.name, text }, signal);
    return [element("h2", {}, page.say("replaced")), element("p", { class: "suspects" }, ...words.map(suspect)),
      element("p", { class: "hint" }, page.say("replaced_hint"))];
  });
}

// A word, red in proportion to its probability; those above one half are also underlined and have a number.
function suspect({ text, probability }) {
  const share = `${Math.round(100 * probability)}%`;
  const mark = probability >= 0.5 ? element("small", {}, share) : null;
  return element("span", { class: mark ? "suspect found" : "suspect", title: share, style: { "--share": share } }, element("bdi", {}, text), mark);
}

// Text box with a button for [MASK]; `complete` answers a text without one.
function maskPanel(root, page, hint, complete) {
  const insert = (text) => () => {
    text.box.setRangeText(MASK, text.box.selectionStart, text.box.selectionEnd, "end");
    page.change({ q: text.box.value });
    text.box.focus();
  };
  return textPanel(root, page, {
    hint,
    extra: (text) => button({ class: "plain", id: "gap", click: insert(text) }, page.say("add_blank")),
    answered: async (text, signal) => {
      if (!text.includes(MASK)) return complete(text, signal);
      const { blanks, together } = await json("/v1/fill", { model: page.model.name, text, top: 5 }, signal);
      const lists = blanks.map((candidates, i) => gap(page, text, candidates, i));
      const whole = blanks.length > 1 && together.length
        ? [element("h2", {}, page.say("together")), ...together.map((one) => element("p", { class: "filled" }, element("bdi", {}, one.text)))]
        : [];
      return [...lists, ...whole];
    },
  });
}

// Candidates for one blank; a click inserts one.
function gap(page, text, candidates, number) {
  const items = candidates.map(({ text: word, probability }, i) => {
    const put = () => {
      let seen = -1;
      page.change({ q: text.replaceAll(MASK, (mask) => (++seen === number ? word : mask)) }, true);
    };
    return option({ id: `gap-${number + 1}-${i + 1}`, click: put }, word, probability, `${(100 * probability).toFixed(1)} %`);
  });
  return element("div", {}, element("h2", {}, page.say("blank_n", { n: number + 1 })), element("ol", { class: "options" }, ...items));
}
