// Parts of several panels: text box, tabs, cancellation of old requests, attention viewer.

import { mount } from "../viewer/attention.js";
import { bar, button, choice, element } from "../viewer/elements.js";
import { keepFocus } from "../viewer/loop.js";
import { shown } from "../viewer/weights.js";
import { attention, errorText } from "./http.js";
import { attentionButtons } from "./save_buttons.js";

const PAUSE = 250; // milliseconds without input before a request is sent
const LONG = 600; // characters above which maps are loaded one by one
const TOKEN_CHARACTERS = 3; // of a token, about
const THUMBNAIL = 128; // rows and columns of a long text's thumbnails

// Text box, with a visible name above it if there are several. `typed` is called after a pause, or at once on Ctrl+Enter.
export function textBox(page, { hint, name, lang, typed, id = "text" }) {
  let timer;
  const box = element("textarea", {
    id, rows: 3, spellcheck: "false", placeholder: page.say(hint), "aria-label": page.say(name ?? hint),
    maxlength: page.limits.max_characters, lang: lang ?? null, dir: "auto",
    input: () => {
      grow();
      clearTimeout(timer);
      timer = setTimeout(send, PAUSE);
    },
    keydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && send(),
  });
  const count = element("small", { class: "count" });
  const clear = button({ class: "plain", id: id === "text" ? "clear" : `clear-${id}`, click: () => { set(""); box.focus(); send(); } }, page.say("clear"));
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
  const node = element("div", { class: "box" }, name ? element("label", { class: "hint", for: id }, page.say(name)) : null, box, element("div", { class: "under" }, count, clear));
  requestAnimationFrame(grow);
  return { node, box, set };
}

// Returns a function that aborts the previous request and returns the signal of a new one.
export function abortPrevious() {
  let running;
  return () => {
    running?.abort();
    running = new AbortController();
    return running.signal;
  };
}

// Error message, with a button to try again if the error may be temporary.
export function errorMessage(page, error, again) {
  return element(
    "p", { class: "trouble", role: "alert" }, element("strong", {}, `${page.say("trouble")}. `), errorText(page, error), " ",
    again && error.passing ? button({ class: "plain", id: "again", click: again }, page.say("again")) : null,
  );
}

// Returns a function that starts work for a place of the page, unless its key equals that of the last work; older work is
// aborted. It returns whether the work was started. Errors are shown in that place.
export function latestOnly(page, place) {
  const fresh = abortPrevious();
  let last;
  const attempt = async (key, work) => {
    const signal = fresh();
    last = key;
    place.classList.add("busy");
    try {
      await work(signal);
    } catch (error) {
      if (signal.aborted) return;
      last = null;
      keepFocus(place, () => place.replaceChildren(errorMessage(page, error, () => attempt(key, work))));
    }
    if (!signal.aborted) place.classList.remove("busy");
  };
  return (key, work) => {
    if (key === last) return false;
    attempt(key, work);
    return true;
  };
}

// Returns the open tab: the first one if the address names a tab that this model lacks.
export function openTab(page, names) {
  return names.includes(page.state.tab) ? page.state.tab : names[0];
}

export function tabs(page, names) {
  const options = names.map((value) => ({ value, label: page.say(`${value}_tab`) }));
  return choice("tab", page.say("explore"), options, openTab(page, names), (tab) => page.change({ tab }, true));
}

// Returns the text of a token without ▁, which SentencePiece puts before a word.
export function piece({ text }) {
  return shown({ text: text.replace(/^▁/, "") });
}

export function emptyNote(page, message = "empty") {
  return element("p", { class: "card empty" }, page.say(message));
}

// Candidate with its probability as a bar.
export function option(attributes, text, probability, label) {
  return element("li", {}, button({ class: "option", ...attributes }, element("bdi", {}, text), bar(probability), element("small", {}, label)));
}

// Attention viewer with data of the server. `back`: its place was attached to the page again.
export function explorer(page, place) {
  const guard = latestOnly(page, place);
  let again;
  return function show(request, back = false) {
    const started = guard(JSON.stringify(request), async (signal) => {
      again = null;
      const long = request.text.length + TOKEN_CHARACTERS * (request.target_ids?.length ?? 0) > LONG;
      const result = await attention({ ...request, ...(long && { maps: [] }) }, signal);
      if (signal.aborted) return;
      const load = (maps, state) =>
        result.load(maps.map(({ kind, layer }) => ({ kind, layer })), long && state.view === "model" ? THUMBNAIL : undefined);
      again = mount(place, result.view, {
        top: null, load, failed: (error, retry) => errorMessage(page, error, retry), signal, tools: (state) => attentionButtons(page, request, state),
      });
    });
    if (!started && back) again?.();
  };
}
