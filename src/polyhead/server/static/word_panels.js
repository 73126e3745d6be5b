// Panels of taggers and of question answering.

import { element, shares } from "../viewer/elements.js";
import { json } from "./http.js";
import { PAIR, textPanel } from "./text_panels.js";

const PALETTE = 8; // colours, .tag-0 to .tag-7; tags have names too

// Words with their tags; entities where the tags mark them.
export function tagPanel(root, page) {
  return textPanel(root, page, {
    hint: "type_here",
    answered: async (text, signal) => {
      const { results } = await json("/v1/tag", { model: page.model.name, text }, signal);
      const { words, entities } = results[0];
      const marksChunks = page.model.classes.every((tag) => /^(O|[BIESLU](-.+)?)$/.test(tag));
      const spans = marksChunks ? entities : words;
      const names = [...new Set(page.model.classes.map((tag) => (marksChunks ? tag.slice(2) : tag)))];
      const colour = (tag) => `tag tag-${names.indexOf(tag) % PALETTE}`;
      const hint = spans.length ? "tags_hint" : "no_tags";
      return [element("h2", {}, page.say("tags")), marked(text, spans, colour), element("p", { class: "hint" }, page.say(hint))];
    },
  });
}

// A question above its context.
export function answerPanel(root, page) {
  const split = (q) => [q.split(PAIR)[0], q.split(PAIR).slice(1).join(" ")];
  return textPanel(root, page, {
    hint: "question_here",
    second: "context_here",
    names: ["question", "context"],
    request: (q) => ({ text: split(q)[0], target: split(q)[1] }),
    answered: async (q, signal) => {
      const [question, context] = split(q);
      if (!question.trim() || !context.trim()) return [];
      const { result } = await json("/v1/answer", { model: page.model.name, question, context }, signal);
      const all = [result.answer, ...result.alternatives].map(({ text, probability }) => [text || page.say("no_answer"), probability]);
      const found = result.answer.text ? [{ ...result.answer, tag: "" }] : [];
      return [element("h2", {}, page.say("answers")), shares(all), marked(context, found, () => "tag tag-0")];
    },
  });
}

// The text with marked spans, each with its tag and its probability; tags are texts, not only colours.
function marked(text, spans, colour) {
  const parts = [];
  let at = 0;
  for (const { start, end, tag, probability } of spans) {
    const share = `${Math.round(100 * probability)}%`;
    parts.push(text.slice(at, start), element("mark", { class: colour(tag), title: share }, element("bdi", {}, text.slice(start, end)), element("small", {}, tag || share)));
    at = end;
  }
  return element("p", { class: "tagged", dir: "auto" }, ...parts, text.slice(at));
}
