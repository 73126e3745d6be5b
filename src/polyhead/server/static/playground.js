// Playground: shows one model at a time, with the state in the URL. Each task has its own panel.

import { choice, element, languages } from "../viewer/elements.js";
import { address, defaultLanguage, picker, remember } from "../viewer/loop.js";
import { errorMessage } from "./panel_parts.js";
import { say } from "./messages.js";
import { THEMES, setTheme, theme } from "./theme.js";
import { hasKey, json, useKey } from "./http.js";

// Panels are loaded when they are needed.
const PANELS = {
  translate: async () => (await import("./translate_panel.js")).translatePanel,
  generate: async () => (await import("./generate_panel.js")).generatePanel,
  fill: async () => (await import("./text_panels.js")).fillPanel,
  detect: async () => (await import("./text_panels.js")).detectPanel,
  classify: async () => (await import("./text_panels.js")).classifyPanel,
  tag: async () => (await import("./word_panels.js")).tagPanel,
  answer: async () => (await import("./word_panels.js")).answerPanel,
  embed: async () => (await import("./text_panels.js")).embedPanel,
  "classify-image": async () => (await import("./image_panel.js")).imagePanel,
};
const OTHER = async () => (await import("./text_panels.js")).taskPanel; // of plug-ins
const TABS = ["attention", "steps", "beam"];
const KEYS = ["model", "q", "tab", "n", "s", "forced", "beam"];
const REST = 1500; // milliseconds without input, after which another text is a new history entry
const root = document.getElementById("play");

function readState(hash, { models, limits }) {
  const { given, pick } = picker(hash);
  const whole = (name, least, otherwise) => Math.max(least, parseInt(given.get(name)) || otherwise);
  return {
    model: models.find((model) => model.name === given.get("model")) ?? models[0],
    q: given.get("q") ?? "",
    tab: pick("tab", TABS, "attention"),
    n: whole("n", 1, 1), // selected translation of the n-best list
    s: whole("s", 1, 1), // selected sentence
    forced: (given.get("forced") ?? "").split(".").map(Number).filter((id) => Number.isInteger(id) && id > 0), // ids, for the steps tab
    beam: Math.min(limits.max_beam, whole("beam", 0, 0)), // 0: the model's default
    lang: languageOf({ pick }),
  };
}

function languageOf({ pick }) {
  return pick("lang", ["ko", "en"], defaultLanguage());
}

function stateToURL({ model, q, tab, n, s, forced, beam }, isAnother = false) {
  const parts = { model: model.name };
  if (q) parts.q = q;
  if (tab !== "attention") parts.tab = tab;
  if (n > 1) parts.n = n;
  if (s > 1) parts.s = s;
  if (forced.length) parts.forced = forced.join(".");
  if (beam) parts.beam = beam;
  return address(parts, isAnother ? [...KEYS, "word"] : KEYS); // a selected word belongs to its text
}

// Builds the page. Panels get `page`: the model, the limits, the state, and `change`.
function showPlayground(served) {
  const { models, limits } = served;
  let state = readState(location.hash, served);
  let [panel, typedAt] = [null, 0];
  const kept = Object.create(null);
  const page = {
    limits,
    get kept() { return (kept[state.model.name] ??= {}); }, // state outside the URL, kept when the language changes
    get state() { return state; },
    get model() { return state.model; },
    say: (key, values) => say(state, key, values),
    change(part, turned = false) {
      const isAnother = "q" in part && part.q !== state.q;
      const rested = isAnother && state.q.trim() !== "" && Date.now() - typedAt > REST;
      if (isAnother) typedAt = Date.now();
      state = { ...state, ...part };
      remember(stateToURL(state, ["q", "n", "s"].some((key) => key in part)), turned || rested);
      panel.update();
    },
  };
  const build = async () => {
    document.documentElement.lang = state.lang;
    document.title = `${state.model.name} · Polyhead`;
    const place = element("main", { class: "panel" });
    root.replaceChildren(bar(page, models, { changeModel, changeLanguage, changeTheme }), place, footer(page));
    panel?.end?.();
    panel = null;
    const make = await (PANELS[state.model.use] ?? OTHER)().catch((error) => place.replaceChildren(errorMessage(page, error)));
    if (!make || !place.isConnected) return; // another model was selected meanwhile
    panel = make(place, page);
    panel.update();
  };
  const changeModel = (model) => {
    state = { ...state, model, n: 1, s: 1, forced: [], tab: "attention" };
    remember(stateToURL(state, true), true);
    build();
    document.getElementById("model")?.focus();
  };
  const changeLanguage = (lang) => {
    state = { ...state, lang };
    remember(address({ lang }, ["lang"]), false);
    build();
    document.getElementById(`lang-${lang}`).focus();
  };
  const changeTheme = (name) => {
    setTheme(name);
    build();
    document.getElementById(`theme-${name}`).focus();
  };
  window.addEventListener("popstate", () => {
    const before = state;
    typedAt = 0; // the next input does not replace the restored text
    state = readState(location.hash, served);
    if (before.model !== state.model || before.lang !== state.lang) build();
    else panel?.update();
  });
  build();
}

// Returns the name of a language in the language of the page; its code if it is unknown.
function languageName(lang, code) {
  try {
    return new Intl.DisplayNames([lang], { type: "language" }).of(code);
  } catch {
    return code;
  }
}

function bar(page, models, { changeModel, changeLanguage, changeTheme }) {
  const { model, state: { lang } } = page;
  const name = ({ name: title, source_language: from, target_language: to }) =>
    from && to ? `${title} (${languageName(lang, from)} → ${languageName(lang, to)})` : title;
  const options = models.map((one, i) => element("option", { value: i, selected: one === model }, name(one)));
  const select = element("select", { id: "model", "aria-label": page.say("model"), change: () => changeModel(models[select.value]) }, ...options);
  return element(
    "header", { class: "top" },
    element("div", { class: "brand" },
      element("img", { src: "/page/icon.svg", alt: "", width: 30, height: 30 }),
      element("div", {}, element("h1", {}, "Polyhead"), element("p", {}, page.say("tagline")))),
    element("label", { class: "only" }, `${page.say("model")} `, models.length > 1 ? select : element("bdi", {}, name(model))),
    element("div", { class: "looks-of-page" },
      languages(page.state, changeLanguage),
      choice("theme", page.say("theme"), THEMES.map((value) => ({ value, label: page.say(`theme_${value}`) })), theme(), changeTheme)),
  );
}

function footer(page) {
  const { family, parameters } = page.model;
  const size = parameters >= 1e6 ? `${(parameters / 1e6).toFixed(1)} M` : `${Math.round(parameters / 1e3)} k`;
  return element(
    "footer", { class: "foot" }, element("bdi", {}, family), ` · ${page.say("parameters", { n: size })} · `,
    element("a", { href: `/page/api.html#lang=${page.state.lang}` }, page.say("api")),
  );
}

// Shown after 401 or 403: asks for the API key.
function showKeyForm(state, isWrong) {
  const input = element("input", { type: "password", id: "key", autocomplete: "off", required: true, "aria-label": say(state, "api_key") });
  const form = element("form", {
    class: "card key",
    submit: (event) => {
      event.preventDefault();
      useKey(input.value);
      loadModels();
    },
  }, element("h1", {}, say(state, "api_key")), isWrong ? element("p", { class: "trouble", role: "alert" }, say(state, "key_wrong")) : null,
  input, element("button", { class: "primary" }, say(state, "key_send")));
  root.replaceChildren(element("main", {}, form));
  input.focus();
}

async function loadModels() {
  const state = { lang: languageOf(picker(location.hash)) };
  document.documentElement.lang = state.lang;
  try {
    const served = await json("/v1/models");
    if (served.models.length) showPlayground(served);
    else root.replaceChildren(element("main", {}, element("p", { class: "card" }, say(state, "no_models"))));
  } catch (error) {
    if (error.status === 401) showKeyForm(state, hasKey());
    else root.replaceChildren(element("main", {}, errorMessage({ say: (...words) => say(state, ...words) }, error, loadModels)));
  }
}

setTheme(theme());
loadModels();
