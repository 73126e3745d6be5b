// Sentences of a text and of its translation: both are highlighted together, and unsure words are underlined.

import { element } from "../viewer/elements.js";

const UNSURE = 0.5; // a word with a token below this probability is underlined

// Returns the start and end of each sentence in a text that contains them in order.
export function ranges(text, sentences) {
  let end = 0;
  return sentences.map((sentence) => {
    const start = text.indexOf(sentence, end);
    if (start >= 0) end = start + sentence.length;
    return start >= 0 ? [start, end] : [end, end];
  });
}

// Returns the text as nodes: `make(i)` for each sentence, plain text between them.
function fragments(text, sentences, make) {
  const nodes = [];
  let at = 0;
  ranges(text, sentences).forEach(([start, end], i) => {
    nodes.push(text.slice(at, start), make(i));
    at = end;
  });
  return [...nodes, text.slice(at)];
}

// Copy of the text over a text box, whose own text cannot be highlighted. `point(i)` is called for the sentence under the
// pointer, and with null outside.
export function sourceMirror(box, point) {
  const mirror = element("div", { class: "mirror", "aria-hidden": "true" });
  const field = element("div", { class: "mirrored" });
  box.replaceWith(field);
  field.append(box, mirror);
  const parts = [];
  const inside = ({ clientX: x, clientY: y }) => (rect) => rect.left <= x && x <= rect.right && rect.top <= y && y <= rect.bottom;
  box.addEventListener("scroll", () => (mirror.scrollTop = box.scrollTop));
  box.addEventListener("pointermove", (event) => {
    const at = parts.findIndex((part) => [...part.getClientRects()].some(inside(event)));
    point(at < 0 ? null : at);
  });
  box.addEventListener("pointerleave", () => point(null));
  const draw = (text, sentences) => {
    parts.length = 0;
    mirror.replaceChildren(...fragments(text, sentences, (i) => (parts[i] = element("span", {}, sentences[i]))), "\n");
  };
  return { parts, draw };
}

// The translation in sentences that can be pointed at, focused and selected.
export function sentencePairs(page, mirror, select) {
  const parts = [];
  const mark = (name, at) => {
    for (const list of [parts, mirror.parts]) list.forEach((part, i) => part.classList.toggle(name, i === at));
  };
  const point = (at) => mark("near", at);
  const chooser = (i) => ({
    role: "button", tabindex: 0, id: `sentence-${i + 1}`, click: () => select(i),
    keydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      select(i);
    },
    focus: () => point(i), blur: () => point(null), pointerenter: () => point(i), pointerleave: () => point(null),
  });
  function draw({ of, sentences }, hypothesis) {
    const many = sentences.length > 1;
    parts.length = 0;
    mirror.draw(of, many ? sentences : []);
    const texts = hypothesis.sentences.map((one) => one.text);
    const made = (i) => {
      const part = element("span", many ? { class: "sentence-part", ...chooser(i) } : {}, ...wordsOf(page, hypothesis.sentences[i]));
      if (many) parts[i] = part;
      return part;
    };
    return element("p", { class: "text", dir: "auto" }, ...fragments(hypothesis.text, texts, made));
  }
  function choose(at) {
    mark("here", at);
    parts.forEach((part, i) => part.setAttribute("aria-pressed", String(i === at)));
  }
  return { draw, select: choose, point };
}

// Unsure words have a tooltip, which is also their description for screen readers.
function wordsOf(page, { text, words }) {
  if (!words?.length) return [text];
  return words.map((word) => {
    const p = Math.min(...word.probabilities);
    if (p >= UNSURE) return word.text;
    const [, before, core] = word.text.match(/^(\s*)(.*)$/s);
    const hint = page.say("unsure", { n: `${(100 * p).toFixed(p < 0.0995 ? 1 : 0)} %` });
    const mark = element("span", { class: "unsure", role: "mark", "aria-description": hint, title: hint }, core);
    return element("span", {}, before, mark);
  });
}
