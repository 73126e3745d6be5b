// Panel of a language model: it continues a prompt, and the text is shown while it is generated.

import { button, element, toggle } from "../viewer/elements.js";
import { keepFocus } from "../viewer/loop.js";
import { explorer, abortPrevious, emptyNote, openTab, tabs, textBox, errorMessage } from "./panel_parts.js";
import { stepsTab } from "./steps_tab.js";
import { send, events, RequestError } from "./http.js";

const MOST_TOKENS = 400;
const LARGEST_SEED = 2 ** 31;

export function generatePanel(root, page) {
  const { kept, model: { defaults } } = page;
  const options = (kept.options ??= {
    temperature: defaults.temperature, top_k: defaults.top_k, top_p: defaults.top_p, tokens: Math.min(80, defaults.max_length), seed: 1, stop: "",
    greedy: false, renew: true,
  });
  const text = textBox(page, { hint: "prompt_here", typed: (q) => page.change({ q, forced: [] }) });
  const paper = element("div", { class: "paper", "aria-live": "off" });
  const start = button({ class: "primary", id: "write", click: () => (running ? halt() : another()) });
  const [tabPlace, below] = [element("div", { class: "tabs" }), element("div", { class: "below" })];
  const note = element("p", { class: "hint line-note" });
  const places = { attention: element("div", { class: "place" }), steps: element("div", { class: "place" }) };
  const shows = { attention: explorer(page, places.attention), steps: stepsTab(page, places.steps) };
  const controls = settings(page, options);
  const fresh = abortPrevious();
  let running = false;

  root.append(
    element("section", { class: "card" }, text.node, controls.node, start, paper), tabPlace, below,
  );
  const name = () => start.replaceChildren(page.say(running ? "halt" : "write"));
  const halt = () => {
    fresh();
    running = false;
    name();
    look();
  };
  const more = element("span", { class: "new" });
  const print = () => {
    more.replaceChildren(kept.written.text);
    paper.replaceChildren(element("span", { class: "given" }, kept.written.q), more);
  };

  function another() {
    if (kept.written && options.renew && !options.greedy) controls.set("seed", (options.seed + 1) % LARGEST_SEED);
    kept.written = null;
    page.change({ forced: [] });
    write(options);
  }

  // `kept.written`: the text, the ids that were sampled, and how; `chosen` are the places of the tokens that the user forced.
  async function write(how, chosen = []) {
    const [signal, { q, forced }] = [fresh(), page.state];
    const written = (kept.written = { q, forced, chosen, text: "", ids: [], how: { ...how } });
    running = true;
    print();
    name();
    look();
    const body = {
      model: page.model.name, prompt: q, prefix: forced, max_tokens: Math.max(how.tokens, forced.length), stop: how.stop ? [how.stop.replaceAll("\\n", "\n")] : [],
      ...(how.greedy ? { greedy: true } : sampling(how)),
    };
    try {
      for await (const [event, data] of events(await send("/v1/generate", body, signal))) {
        if (event === "error") throw new RequestError(422, data);
        if (event !== "text") continue;
        more.append(data.text);
        written.text += data.text;
        written.ids.push(...data.tokens.map((token) => token.id));
      }
    } catch (error) {
      if (signal.aborted) return;
      paper.append(errorMessage(page, error));
    }
    halt();
  }

  // The tabs show the tokens that were generated, not the text read again.
  function look() {
    const tab = openTab(page, Object.keys(places));
    const { written } = kept;
    const ids = written?.ids ?? [];
    keepFocus(tabPlace, () => tabPlace.replaceChildren(tabs(page, Object.keys(places))));
    if (running) return below.replaceChildren();
    if (!ids.length && (tab === "steps" || !page.state.q.trim())) return below.replaceChildren(emptyNote(page, tab === "steps" ? "steps_empty" : "empty"));
    note.textContent = ids.length && tab === "attention" ? page.say("window_note", { n: page.model.max_length }) : "";
    const back = below.lastChild !== places[tab];
    if (back) below.replaceChildren(note, places[tab]);
    const request = { model: page.model.name, text: page.state.q, ...(ids.length && { target_ids: ids }) };
    if (tab === "attention") return shows.attention(request, back);
    return shows.steps({ ...request, chosen: written.chosen, sampling: written.how.greedy ? null : sampling(written.how) }, back);
  }

  function update() {
    const { q, forced } = page.state;
    text.set(q);
    if (kept.written && kept.written.q !== q) {
      kept.written = null;
      paper.replaceChildren();
      if (running) fresh();
      running = false;
    }
    const before = kept.written;
    name();
    if (String(before?.forced ?? []) === String(forced)) return look();
    const at = forced.length - 1; // the token that the user chose is the last one
    return write(before?.how ?? options, at < 0 ? [] : [...(before?.chosen ?? []).filter((place) => place < at), at]);
  }
  if (kept.written) print();
  return { update, end: fresh };
}

function sampling({ temperature, top_k, top_p, seed }) {
  return { temperature, top_k, top_p, seed };
}

// Controls of the options; `set` changes one of them.
function settings(page, options) {
  const inputs = {};
  const control = (name, attributes, read = Number) => {
    const value = element("output", {}, attributes.type === "range" ? String(options[name]) : "");
    const input = (inputs[name] = element("input", {
      id: name, ...attributes,
      input: () => {
        if (!input.validity.valid || (attributes.type === "number" && !input.value)) return;
        options[name] = read(input.value);
        if (attributes.type === "range") value.textContent = input.value;
      },
      change: () => (input.value = options[name]),
    }));
    input.value = options[name];
    return element("label", { class: "slider", for: name }, element("span", {}, page.say(name)), input, value);
  };
  const whole = (name, most, hint) => control(name, { type: "number", min: 0, max: most, step: 1, title: page.say(hint) });
  const range = (name, least, most, step) => control(name, { type: "range", min: least, max: most, step });
  const enable = () => ["temperature", "top_p", "top_k", "seed", "renew"].forEach((name) => (inputs[name].disabled = options.greedy));
  const flip = (name) => {
    const node = toggle(name, page.say(name), options[name], (on) => {
      options[name] = on;
      enable();
    });
    inputs[name] = node.querySelector("input");
    return node;
  };
  const node = element("div", { class: "settings" },
    range("temperature", 0.1, 2, 0.1), range("top_p", 0.05, 1, 0.05), whole("top_k", 1000000, "top_k_hint"),
    range("tokens", 1, Math.min(MOST_TOKENS, page.limits.max_tokens), 1),
    control("stop", { type: "text", maxlength: 100, title: page.say("stop_hint") }, String),
    whole("seed", LARGEST_SEED, "seed_hint"), flip("renew"), flip("greedy"));
  enable();
  return {
    node,
    set: (name, value) => {
      options[name] = value;
      inputs[name].value = value;
    },
  };
}
