// What several panels are made of: the box for text, tabs, the latest request, the explorer with its files.

import { mount } from "../viewer/attention.js";
import { bar, button, choice, element } from "../viewer/elements.js";
import { keepFocus } from "../viewer/loop.js";
import { shown } from "../viewer/weights.js";
import { attention, reason } from "./wire.js";
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
  const clear = button({ class: "plain", id: "clear", click: () => { set(""); box.focus(); send(); } }, page.say("clear"));
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

// What went wrong; what may pass by itself can be tried again.
export function trouble(page, error, again) {
  return element(
    "p", { class: "trouble", role: "alert" }, element("strong", {}, `${page.say("trouble")}. `), reason(page, error), " ",
    again && error.passing ? button({ class: "plain", id: "again", click: again }, page.say("again")) : null,
  );
}

// Work for one place: only the latest, and none twice in a row (`asked` says what for). Says whether it
// has begun. What went wrong is said there, and can be tried again: by a button, or by asking once more.
export function guarded(page, place) {
  const fresh = latest();
  let last;
  const attempt = async (asked, work) => {
    const signal = fresh();
    last = asked;
    place.classList.add("busy");
    try {
      await work(signal);
    } catch (error) {
      if (signal.aborted) return;
      last = null;
      keepFocus(place, () => place.replaceChildren(trouble(page, error, () => attempt(asked, work))));
    }
    if (!signal.aborted) place.classList.remove("busy");
  };
  return (asked, work) => {
    if (asked === last) return false;
    attempt(asked, work);
    return true;
  };
}

// The tab that is open: the first, if the address names one that this model does not have.
export function openTab(page, names) {
  return names.includes(page.state.tab) ? page.state.tab : names[0];
}

export function tabs(page, names) {
  const options = names.map((value) => ({ value, label: page.say(`${value}_tab`) }));
  return choice("tab", page.say("explore"), options, openTab(page, names), (tab) => page.change({ tab }, true));
}

// A token as it is to be read: SentencePiece marks the beginning of a word by ▁.
export function piece({ text }) {
  return shown({ text: text.replace(/^▁/, "") });
}

export function nothing(page) {
  return element("p", { class: "card empty" }, page.say("empty"));
}

// A candidate to choose, with its probability as a bar.
export function option(attributes, text, probability, said) {
  return element("li", {}, button({ class: "option", ...attributes }, element("bdi", {}, text), bar(probability), element("small", {}, said)));
}

// The viewer of `polyhead attention`, fed by the server. `back`: the place has just come back onto the page.
export function explorer(page, place) {
  const guard = guarded(page, place);
  let again;
  return function show(request, back = false) {
    const begun = guard(JSON.stringify(request), async (signal) => {
      again = null;
      const long = request.text.length > LONG;
      const found = await attention({ ...request, ...(long && { maps: [] }) }, signal);
      if (signal.aborted) return;
      const load = (maps, state) =>
        found.load(maps.map(({ kind, layer }) => ({ kind, layer })), long && state.view === "model" ? THUMBNAIL : undefined);
      again = mount(place, found.view, {
        top: () => null, load, failed: (error, retry) => trouble(page, error, retry), signal, tools: (state) => saving(page, request, state),
      });
    });
    if (!begun && back) again?.();
  };
}
