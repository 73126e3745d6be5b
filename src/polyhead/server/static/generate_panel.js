// Panel of a language model: it continues a prompt, and the text is shown while it is generated.

import { button, element, toggle } from "../viewer/elements.js";
import { keepFocus } from "../viewer/loop.js";
import { explorer, abortPrevious, emptyNote, openTab, tabs, textBox, errorMessage } from "./panel_parts.js";
import { stepsTab } from "./steps_tab.js";
import { send, events, RequestError } from "./http.js";

export function generatePanel(root, page) {
  const { kept, model: { defaults } } = page;
  const options = (kept.options ??= { temperature: defaults.temperature, greedy: false, tokens: Math.min(80, defaults.max_length), seed: 1 });
  const text = textBox(page, { hint: "prompt_here", typed: (q) => page.change({ q, forced: [] }) });
  const paper = element("div", { class: "paper", "aria-live": "off" });
  const start = button({ class: "primary", id: "write", click: () => (running ? halt() : write()) });
  const [tabPlace, below] = [element("div", { class: "tabs" }), element("div", { class: "below" })];
  const note = element("p", { class: "hint line-note" });
  const places = { attention: element("div", { class: "place" }), steps: element("div", { class: "place" }) };
  const shows = { attention: explorer(page, places.attention), steps: stepsTab(page, places.steps) };
  const fresh = abortPrevious();
  let [running, written] = [false, kept.q === page.state.q ? kept.written : ""];

  root.append(
    element("section", { class: "card" }, text.node, settings(page, options), start, paper), tabPlace, below,
  );
  if (written) paper.append(element("span", { class: "given" }, page.state.q), element("span", { class: "new" }, written));
  const name = () => start.replaceChildren(page.say(running ? "stop" : "write"));
  const halt = () => {
    fresh();
    running = false;
    name();
    look();
  };

  async function write() {
    const [signal, { q }] = [fresh(), page.state];
    const more = element("span", { class: "new" });
    paper.replaceChildren(element("span", { class: "given" }, q), more);
    [running, written] = [true, ""];
    name();
    const body = {
      model: page.model.name, prompt: q, max_tokens: options.tokens, seed: options.seed, greedy: options.greedy, temperature: options.temperature,
    };
    try {
      for await (const [event, data] of events(await send("/v1/generate", body, signal))) {
        if (event === "error") throw new RequestError(422, data);
        if (event === "text") more.append(data.text);
        if (event === "text") written += data.text;
        Object.assign(kept, { q, written });
      }
    } catch (error) {
      if (signal.aborted) return;
      paper.append(errorMessage(page, error));
    }
    options.seed += 1; // the next click gives another text
    halt();
  }

  function look() {
    const tab = openTab(page, Object.keys(places));
    const lines = `${page.state.q}${written}`.split("\n").filter((line) => line.trim());
    const ready = tab === "steps" ? page.state.q : (lines.at(-1) ?? "");
    note.textContent = tab === "attention" && lines.length > 1 ? page.say("last_line_note") : "";
    keepFocus(tabPlace, () => tabPlace.replaceChildren(tabs(page, Object.keys(places))));
    if (!ready.trim()) return below.replaceChildren(emptyNote(page));
    const back = below.lastChild !== places[tab];
    if (back) below.replaceChildren(note, places[tab]);
    return shows[tab]({ model: page.model.name, text: ready }, back);
  }

  let before = null;
  function update() {
    text.set(page.state.q);
    if (before !== null && before !== page.state.q) {
      written = "";
      paper.replaceChildren();
      if (running) fresh();
      running = false;
    }
    before = page.state.q;
    name();
    look();
  }
  return { update, end: fresh };
}

function settings(page, options) {
  const slider = (name, least, most, step) => {
    const value = element("output", {}, String(options[name]));
    const input = element("input", {
      type: "range", id: name, min: least, max: most, step,
      input: () => {
        options[name] = Number(input.value);
        value.textContent = input.value;
      },
    });
    input.value = options[name];
    return element("label", { class: "slider", for: name }, element("span", {}, page.say(name)), input, value);
  };
  return element("div", { class: "settings" },
    slider("temperature", 0.1, 2, 0.1), slider("tokens", 1, Math.min(400, page.limits.max_tokens), 1),
    toggle("greedy", page.say("greedy"), options.greedy, (greedy) => (options.greedy = greedy)));
}
