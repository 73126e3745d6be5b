// Panel of a translation model: translations while typing, and tabs for attention, steps and beam search.

import { bar, button, element } from "../viewer/elements.js";
import { keepFocus } from "../viewer/loop.js";
import { explorer, latestOnly, emptyNote, openTab, tabs, textBox } from "./panel_parts.js";
import { ranges, sentencePairs, sourceMirror } from "./sentence_pairs.js";
import { stepsTab } from "./steps_tab.js";
import { beamTab } from "./beam_tab.js";
import { json } from "./http.js";

const TABS = { attention: explorer, steps: stepsTab, beam: beamTab };
const MOST = 5; // translations in the list, at most the model's beam width

export function translatePanel(root, page) {
  const { source_language: from, target_language: to } = page.model;
  const text = textBox(page, { hint: "type_here", lang: from, typed: (q, turned) => page.change({ q, n: 1, s: 1, forced: [] }, turned) });
  const answer = element("div", { class: "answer-box", "aria-live": "polite", lang: to ?? null });
  const [choices, tabPlace, below] = ["choices", "tabs", "below"].map((name) => element("div", { class: name }));
  const guard = latestOnly(page, answer);
  const look = explorerTabs(page, below);
  const select = (i) => i !== sentenceOf(page, result) && page.change({ s: i + 1, forced: [] });
  const mirror = sourceMirror(text.box, (i) => pairs.point(i));
  const pairs = sentencePairs(page, mirror, select);
  let [result, drawn] = [null, null];

  const moved = () => { // not during typing
    if (result?.of === text.box.value && document.activeElement === text.box) select(sentenceAt(text.box, result.sentences));
  };
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
      mirror.draw(q, []);
      try {
        const answers = q.trim() ? await json("/v1/translate", body, signal) : null;
        result = answers && { ...answers.translations[0], of: q };
      } catch (error) {
        if (!signal.aborted) result = null; // no old translation beside a new text
        throw error;
      } finally {
        if (!signal.aborted) show();
        if (!signal.aborted) moved();
      }
    });
    if (!started && result?.of === q) show(); // not while a new one is loading
  }

  const show = () => keepFocus(root, () => {
    tabPlace.replaceChildren(result ? tabs(page, tabsOf(page)) : "");
    choices.replaceChildren(result ? list(page, result) : "");
    const hypothesis = result && chosen(page, result);
    if (result && drawn !== hypothesis) answer.replaceChildren(...output(page, pairs.draw(result, hypothesis), hypothesis));
    else if (!page.state.q.trim()) answer.replaceChildren(element("span", { class: "hint" }, page.say("translation")));
    drawn = hypothesis;
    pairs.select(sentenceOf(page, result));
    look(result);
  });

  return { update };
}

function place(page, result) {
  return Math.min(page.state.n, result.hypotheses.length) - 1;
}

function chosen(page, result) {
  return result.hypotheses[place(page, result)];
}

// Returns the number of the selected sentence, from 0.
function sentenceOf(page, result) {
  return Math.max(0, Math.min(page.state.s, result?.sentences.length ?? 1) - 1);
}

// Returns the number of the sentence with the cursor, from 0.
function sentenceAt(box, sentences) {
  const at = ranges(box.value, sentences).findIndex(([, end]) => box.selectionStart <= end);
  return at < 0 ? sentences.length - 1 : at;
}

function output(page, shown, { text, sentences, confidence }) {
  const copy = button({
    class: "plain", id: "copy",
    click: async () => {
      if (navigator.clipboard) await navigator.clipboard.writeText(text);
      else copySelected(shown); // browsers offer no clipboard to pages of other machines without TLS
      copy.textContent = page.say("copied");
    },
  }, page.say("copy"));
  const sure = element("small", { class: "count confidence", title: page.say("confidence_hint") },
    `${page.say("confidence")} ${percent(confidence)}`, bar(confidence));
  const note = sentences.length > 1 ? element("small", { class: "count" }, page.say("cut_note", { n: sentences.length })) : null;
  return [shown, element("div", { class: "under" }, sure, note, copy)];
}

function copySelected(node) {
  getSelection().selectAllChildren(node);
  document.execCommand("copy");
}

const percent = (p) => `${Math.round(100 * p)} %`;

// All hypotheses with the score that ranks them as radio buttons; the tabs show the selected one.
function list(page, result) {
  if (result.hypotheses.length < 2) return "";
  const items = result.hypotheses.map(({ text, score, confidence }, i) => {
    const input = element("input", {
      type: "radio", name: "n", id: `n-${i + 1}`, checked: i === place(page, result), change: () => page.change({ n: i + 1, forced: [] }),
    });
    const hint = `${page.say("score_hint")} ${page.say("confidence")} ${percent(confidence)}: ${page.say("confidence_hint")}`;
    return element("label", { class: "hypothesis", for: `n-${i + 1}` }, input,
      element("bdi", {}, text), bar(Math.min(1, Math.exp(score))), element("small", { title: hint }, score.toFixed(2)));
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
  return function look(result) {
    const tab = openTab(page, tabsOf(page));
    if (!result?.sentences.length) return below.replaceChildren(page.state.q.trim() ? "" : emptyNote(page));
    const at = sentenceOf(page, result);
    const all = result.sentences.length;
    note.textContent = all > 1 ? page.say("line_note", { n: at + 1, all }) : "";
    const back = below.lastChild !== places[tab];
    if (back) below.replaceChildren(note, places[tab]);
    const { ids, ended } = chosen(page, result).sentences[at];
    const request = { model: page.model.name, text: result.sentences[at] };
    if (tab !== "beam" && ids.length) Object.assign(request, { target_ids: ids, ended }); // of the translation shown
    return shows[tab](request, back);
  };
}
