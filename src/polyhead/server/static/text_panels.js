// Panels of models that read a text: masked tokens, replaced words and classification.

import { button, element, shares } from "../viewer/elements.js";
import { keepFocus } from "../viewer/loop.js";
import { explorer, latestOnly, emptyNote, option, textBox } from "./panel_parts.js";
import { json } from "./http.js";

const MASK = "[MASK]";

const same = (q) => q;

// Text box, the result beside it, and the attention below. `read` and `write` convert the state to the text and back, `request`
// to the text of the attention.
export function textPanel(root, page, { hint, answered, extra, above, read = same, write = same, request = (text) => ({ text }) }) {
  const text = textBox(page, { hint, typed: (typed) => page.change({ q: write(typed) }) });
  if (above) text.node.prepend(above);
  const answer = element("div", { class: "answer-box", "aria-live": "polite" });
  const [below, place] = [element("div", { class: "below" }), element("div", { class: "place" })];
  const show = explorer(page, place);
  const guard = latestOnly(page, answer);
  root.append(element("section", { class: "card twins" }, text.node, element("div", { class: "box out" }, answer)), below);
  const failed = (signal) => (error) => {
    if (!signal.aborted) below.replaceChildren(); // no old attention below a new text
    throw error;
  };
  if (extra) text.node.lastChild.prepend(extra(text));
  return {
    update() {
      const { q } = page.state;
      text.set(read(q));
      guard(q, async (signal) => {
        const result = q.trim() ? await answered(q, signal).catch(failed(signal)) : [];
        keepFocus(root, () => answer.replaceChildren(...result));
        const asked = request(q);
        if (!result.length || !Object.values(asked).every((part) => part.trim())) return below.replaceChildren(emptyNote(page));
        if (!page.model.attention.length) return null;
        if (below.firstChild !== place) below.replaceChildren(place);
        return show({ model: page.model.name, ...asked });
      });
    },
  };
}

export function classifyPanel(root, page) {
  return textPanel(root, page, {
    hint: "type_here",
    answered: async (text, signal) => {
      const { results } = await json("/v1/classify", { model: page.model.name, text, top: 8 }, signal);
      const labels = results[0].classes.map(({ label, probability }) => [label, probability]);
      const note = results[0].cut ? [element("p", { class: "hint" }, page.say("cut_off_note"))] : [];
      return [element("h2", {}, page.say("classes")), shares(labels), ...note];
    },
  });
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
