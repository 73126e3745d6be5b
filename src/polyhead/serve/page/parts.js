// What several panels are made of: the box for text, tabs, the latest request, the explorer with its files.

import { mount } from "../viewer/attention.js";
import { choice, element } from "../viewer/elements.js";
import { shown } from "../viewer/weights.js";
import { attention } from "./wire.js";
import { saving } from "./saving.js";

const PAUSE = 250; // milliseconds without a key before the server is asked
const LONG = 600; // characters from which on maps are loaded one by one
const THUMBNAIL = 128; // rows and columns of a long text's thumbnails

// A box to type in. `typed` runs after a pause, or at once with Enter and a control key.
export function textBox(page, { hint, lang, typed }) {
  let timer;
  const box = element("textarea", {
    id: "text", rows: 3, spellcheck: "false", placeholder: page.say(hint), "aria-label": page.say(hint),
    maxlength: page.limits.max_characters, lang: lang ?? null, dir: "auto",
    input: () => {
      grow();
      clearTimeout(timer);
      timer = setTimeout(send, PAUSE);
    },
    keydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && send(),
  });
  const count = element("small", { class: "count" });
  const clear = element("button", { type: "button", class: "plain", id: "clear", click: () => { set(""); box.focus(); send(); } }, page.say("clear"));
  const grow = () => {
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight + 2, 420)}px`;
    const [n, most] = [box.value.length, page.limits.max_characters];
    count.textContent = n > most / 2 ? page.say("characters", { n, most }) : "";
    clear.hidden = !n;
  };
  const send = () => {
    clearTimeout(timer);
    typed(box.value);
  };
  const set = (text) => {
    if (box.value !== text) box.value = text;
    grow();
  };
  const node = element("div", { class: "box" }, box, element("div", { class: "under" }, count, clear));
  requestAnimationFrame(grow);
  return { node, box, set };
}

// Each call gives a signal for a new request and ends the one before.
export function latest() {
  let running;
  return () => {
    running?.abort();
    running = new AbortController();
    return running.signal;
  };
}

export function trouble(page, error) {
  return element("p", { class: "trouble", role: "alert" }, element("strong", {}, `${page.say("trouble")}. `), error.message);
}

// Run one request at a time in a place; what went wrong is said there.
export function guarded(page, place) {
  const fresh = latest();
  return async (work) => {
    const signal = fresh();
    place.classList.add("busy");
    try {
      await work(signal);
    } catch (error) {
      if (!signal.aborted) place.replaceChildren(trouble(page, error));
    }
    if (!signal.aborted) place.classList.remove("busy");
  };
}

export function tabs(page, names) {
  const options = names.map((value) => ({ value, label: page.say(`${value}_tab`) }));
  return choice("tab", page.say("explore"), options, page.state.tab, (tab) => page.change({ tab }, true));
}

// A token as it is to be read: SentencePiece marks the beginning of a word by ▁.
export function piece({ text }) {
  return shown({ text: text.replace(/^▁/, "") });
}

export function nothing(page) {
  return element("p", { class: "card empty" }, page.say("empty"));
}

// The viewer of `polyhead attention`, fed by the server. `back`: the place has just come back onto the page.
export function explorer(page, place) {
  const guard = guarded(page, place);
  let [last, again] = ["", () => {}];
  return function show(request, back = false) {
    const asked = JSON.stringify(request);
    if (asked === last) return back && again();
    last = asked;
    guard(async (signal) => {
      const long = request.text.length > LONG;
      const found = await attention({ ...request, ...(long && { maps: [] }) }, signal).catch((error) => {
        last = "";
        throw error;
      });
      if (signal.aborted) return;
      const load = (maps, state) =>
        found.load(maps.map(({ kind, layer }) => ({ kind, layer })), long && state.view === "model" ? THUMBNAIL : undefined);
      again = mount(place, found.view, { top: () => null, load, signal, tools: (state) => saving(page, request, state) });
    });
  };
}
