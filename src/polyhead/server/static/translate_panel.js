// Panel of a translation model: translations while typing, and tabs for attention, steps and beam search.

import { bar, button, element } from "../viewer/elements.js";
import { keepFocus } from "../viewer/loop.js";
import { explorer, latestOnly, emptyNote, openTab, tabs, textBox } from "./panel_parts.js";
import { stepsTab } from "./steps_tab.js";
import { beamTab } from "./beam_tab.js";
import { json } from "./http.js";

const TABS = { attention: explorer, steps: stepsTab, beam: beamTab };
const MOST = 5; // translations in the list, at most the model's beam width

export function translatePanel(root, page) {
  const { source_language: from, target_language: to } = page.model;
  const text = textBox(page, { hint: "type_here", lang: from, typed: (q) => page.change({ q, n: 1, forced: [] }) });
  const answer = element("div", { class: "answer-box", "aria-live": "polite", lang: to ?? null });
  const [choices, tabPlace, below] = ["choices", "tabs", "below"].map((name) => element("div", { class: name }));
  const guard = latestOnly(page, answer);
  const look = explorerTabs(page, below);
  let result = null;

  const moved = () => result?.of === text.box.value && look(result, sentenceAt(text.box, result.sentences)); // not during typing
  for (const event of ["selectionchange", "click"]) text.box.addEventListener(event, moved);
  root.append(
    element("section", { class: "card twins" }, text.node, element("div", { class: "box out" }, answer)),
    choices, tabPlace, below,
  );

  function update() {
    const { q } = page.state;
    text.set(q);
    const started = guard(q, async (signal) => {
      // A beam wider than the model's default could give another translation than other clients get.
      const n_best = Math.min(MOST, page.model.defaults.beam);
      const body = { model: page.model.name, text: q, n_best, tokens: true };
      try {
        const answers = q.trim() ? await json("/v1/translate", body, signal) : null;
        result = answers && { ...answers.translations[0], of: q };
      } catch (error) {
        if (!signal.aborted) result = null; // no old translation beside a new text
        throw error;
      } finally {
        if (!signal.aborted) show();
      }
    });
    if (!started && result?.of === q) show(); // not while a new one is loading
  }

  const show = () => keepFocus(root, () => {
    tabPlace.replaceChildren(result ? tabs(page, tabsOf(page)) : "");
    choices.replaceChildren(result ? list(page, result) : "");
    if (result) answer.replaceChildren(...output(page, chosen(page, result).text, result.pieces));
    else if (!page.state.q.trim()) answer.replaceChildren(element("span", { class: "hint" }, page.say("translation")));
    look(result, result ? sentenceAt(text.box, result.sentences) : "");
  });

  return { update };
}

function place(page, result) {
  return Math.min(page.state.n, result.hypotheses.length) - 1;
}

function chosen(page, result) {
  return result.hypotheses[place(page, result)];
}

// Returns the sentence with the cursor, or the first.
function sentenceAt(box, sentences) {
  let end = 0;
  if (document.activeElement === box) {
    for (const sentence of sentences) {
      const start = box.value.indexOf(sentence, end);
      end = start < 0 ? end : start + sentence.length;
      if (box.selectionStart <= end) return sentence;
    }
    return sentences.at(-1) ?? "";
  }
  return sentences[0] ?? "";
}

function output(page, text, pieces) {
  const copy = button({
    class: "plain", id: "copy",
    click: async () => {
      if (navigator.clipboard) await navigator.clipboard.writeText(text);
      else copySelected(shown); // browsers offer no clipboard to pages of other machines without TLS
      copy.textContent = page.say("copied");
    },
  }, page.say("copy"));
  const shown = element("p", { class: "text", dir: "auto" }, text);
  const note = pieces > 1 ? element("small", { class: "count" }, page.say("cut_note", { n: pieces })) : null;
  return [shown, element("div", { class: "under" }, note ?? "", copy)];
}

function copySelected(node) {
  getSelection().selectAllChildren(node);
  document.execCommand("copy");
}

// All hypotheses with their scores as radio buttons; the tabs show the selected one.
function list(page, result) {
  if (result.hypotheses.length < 2) return "";
  const best = result.hypotheses[0].score;
  const items = result.hypotheses.map(({ text, score }, i) => {
    const input = element("input", {
      type: "radio", name: "n", id: `n-${i + 1}`, checked: i === place(page, result), change: () => page.change({ n: i + 1, forced: [] }),
    });
    return element("label", { class: "hypothesis", for: `n-${i + 1}` }, input,
      element("bdi", {}, text), bar(Math.exp(Math.min(0, score - best))),
      element("small", { title: page.say("score_hint") }, score.toFixed(2)));
  });
  return element("fieldset", { class: "n-best" },
    element("legend", {}, page.say("n_best"), " · ", element("span", { title: page.say("score_hint") }, page.say("score"))), ...items);
}

// Some translators have no attention.
function tabsOf(page) {
  return Object.keys(TABS).filter((tab) => tab !== "attention" || page.model.attention.length);
}

// The tabs; only the open one sends requests.
function explorerTabs(page, below) {
  const places = {};
  const shows = {};
  for (const [tab, make] of Object.entries(TABS)) {
    places[tab] = element("div", { class: "place" });
    shows[tab] = make(page, places[tab]);
  }
  const note = element("p", { class: "hint line-note" });
  return function look(result, line) {
    const tab = openTab(page, tabsOf(page));
    if (!result) return below.replaceChildren(page.state.q.trim() ? "" : emptyNote(page));
    const many = result.sentences.length > 1;
    note.textContent = many ? page.say("line_note") : "";
    const back = below.lastChild !== places[tab];
    if (back) below.replaceChildren(note, places[tab]);
    const { tokens, ended } = chosen(page, result);
    const ids = tokens?.filter((token) => !token.special).map((token) => token.id);
    const request = { model: page.model.name, text: line };
    if (tab !== "beam" && !many && ids?.length) request.target_ids = ids; // of the translation shown
    if (tab === "steps") request.ended = ended;
    return shows[tab](request, back);
  };
}
