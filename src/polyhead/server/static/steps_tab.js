// Steps tab: the output token by token, with the alternatives of every step, which can be forced.

import { headColour } from "../viewer/colours.js";
import { bar, button, element } from "../viewer/elements.js";
import { keepFocus } from "../viewer/loop.js";
import { layersOf, matrix, shown } from "../viewer/weights.js";
import { latestOnly, option, piece } from "./panel_parts.js";
import { attention, json } from "./http.js";

const BEAT = 650; // milliseconds per step while playing
const WRITTEN = 60; // maximum number of tokens after the prefix
const END = 2; // the id of </s>

export function stepsTab(page, place) {
  const guard = latestOnly(page, place);
  let [at, timer, trace] = [0, null, null];
  const stop = () => {
    clearInterval(timer);
    timer = null;
  };
  const go = (to) => {
    at = Math.max(0, Math.min(trace.steps.length, to));
    if (at === trace.steps.length) stop();
    draw();
  };
  const play = () => {
    if (timer) stop();
    else {
      if (at === trace.steps.length) at = 0;
      timer = setInterval(() => (place.isConnected ? go(at + 1) : stop()), BEAT);
    }
    draw();
  };
  const force = (id) => {
    stop();
    page.change({ forced: [...trace.steps.slice(0, at - 1).map((step) => step.id), id] }, true);
  };
  const draw = () => keepFocus(place, () =>
    place.replaceChildren(
      element("section", { class: "card steps" },
        element("p", { class: "hint" }, page.say(page.model.use === "generate" ? "sampled_hint" : "steps_hint"), " ", how(page, trace)),
        written(page, trace, at, go),
        player(page, trace, { at, playing: Boolean(timer), go, play }),
        element("div", { class: "columns" }, at ? alternatives(page, trace, at, force) : "", at && trace.looks ? looks(page, trace, at) : "")),
    ));
  // `target_ids`: the output shown, used as prefix unless other tokens are forced. A translation is closed only if the model
  // has `ended` it. Of a language model they are all tokens that were generated, with the forced ones at `chosen`, and with
  // `sampling` (null: greedy search).
  return function show({ model, text, target_ids: usual, ended, chosen, sampling = null }) {
    const { forced } = page.state;
    const looksAcross = page.model.attention.includes("cross");
    const whole = usual ? [...usual, ...(ended ? [END] : [])] : [];
    const prefix = forced.length && !chosen ? forced : whole;
    const more = usual && prefix === whole ? 0 : WRITTEN;
    guard(JSON.stringify([model, text, prefix, more, sampling]), async (signal) => {
      const before = trace?.source_text === text ? at : 0;
      stop();
      const max_tokens = Math.min(page.limits.max_tokens, prefix.length + more);
      trace = await json("/v1/steps", { model, text, prefix, top: 5, ...(usual && { max_tokens }), ...(sampling && { sampling }) }, signal);
      Object.assign(trace, { source_text: text, sampling, generated: Boolean(chosen) });
      trace.steps = chosen ? trace.steps.map((step, i) => ({ ...step, forced: chosen.includes(i) })) : markForced(trace.steps, whole);
      at = forced.length || Math.min(before, trace.steps.length) || trace.steps.length;
      draw();
      if (!looksAcross) return;
      const ids = trace.tokens.map((token) => token.id);
      const { view } = await attention({ model, text, target_ids: ids, ended: trace.ended }, signal);
      trace.looks = layersOf(view, "cross").at(-1);
      draw();
    });
  };
}

// Marks tokens that the user chose: the first one that differs from the usual output, then each that is not the most probable.
function markForced(steps, usual) {
  let left = false;
  return steps.map((step, i) => {
    const expected = left || i >= usual.length ? step.alternatives[0].id : usual[i];
    const forced = step.forced && step.id !== expected;
    left ||= forced;
    return { ...step, forced };
  });
}

// Options of the sampling, in words.
function how(page, { generated, sampling }) {
  if (!generated) return "";
  return sampling ? page.say("sampled_with", { ...sampling, top_k: sampling.top_k || "∞" }) : page.say("greedy_with");
}

// Probability with which a token was chosen.
const chance = (token) => token.sampling_probability ?? token.probability;

const both = (page, token) =>
  token.sampling_probability === null
    ? percent(token.probability)
    : `${page.say("of_sampling")} ${percent(token.sampling_probability)}, ${page.say("of_model")} ${percent(token.probability)}`;

const percent = (p) => `${(100 * p).toFixed(p < 0.0995 ? 1 : 0)} %`;

// Output so far; the bar under a token is its probability.
function written(page, { steps, ended, generated }, at, go) {
  const cut = at === steps.length && !ended && !generated;
  const items = steps.slice(0, at).map((step, i) =>
    element("li", {}, button({
      class: step.forced ? "token forced" : "token", id: `token-${i + 1}`,
      "aria-current": i + 1 === at ? "step" : null, title: `${both(page, step)}${step.forced ? `, ${page.say("forced")}` : ""}`,
      click: () => go(i + 1),
    }, element("bdi", {}, piece(step)), element("i", { style: { width: percent(chance(step)).replace(" ", "") } }))));
  if (cut) items.push(element("li", { class: "cut" }, element("span", { "aria-hidden": "true" }, "…"), element("small", {}, page.say("cut_here"))));
  return element("ol", { class: "written", "aria-label": page.say("written_text") }, ...items);
}

function player(page, { steps }, { at, playing, go, play }) {
  const all = steps.length;
  // Inactive buttons are not disabled, so that they keep the focus.
  const knob = (id, sign, click, idle = false, name = page.say(id)) =>
    button({ id: `step-${id}`, class: "knob", "aria-label": name, title: name, "aria-disabled": String(idle), click }, sign);
  const slider = element("input", {
    type: "range", id: "step", min: 0, max: all, step: 1, "aria-label": page.say("step_n", { n: at, all }), input: () => go(Number(slider.value)),
  });
  slider.value = at;
  const forced = page.state.forced.length
    ? button({ class: "plain", id: "unforce", click: () => page.change({ forced: [] }, true) }, page.say("unforce"))
    : "";
  return element("div", { class: "player" },
    knob("first", "«", () => go(0), at === 0), knob("back", "‹", () => go(at - 1), at === 0),
    knob("play", playing ? "❚❚" : "▶", play, false, page.say(playing ? "pause" : "play")),
    knob("next", "›", () => go(at + 1), at === all), knob("last", "»", () => go(all), at === all),
    slider, element("span", { class: "hint" }, page.say("step_n", { n: at, all })), forced);
}

// The most probable tokens; if they were sampled, the distribution that was sampled from, and the model's own.
function alternatives(page, { steps, sampling }, at, force) {
  const step = steps[at - 1];
  const options = step.alternatives.some((one) => one.id === step.id) ? step.alternatives : [...step.alternatives, step];
  const items = options.map((one, i) =>
    option({ id: `option-${i + 1}`, class: sampling ? "option two" : "option", "aria-pressed": String(one.id === step.id), click: () => force(one.id) },
      piece(one), chance(one), percent(chance(one))));
  if (sampling) items.forEach((item, i) => item.firstChild.append(bar(options[i].probability), element("small", {}, percent(options[i].probability))));
  const names = sampling
    ? [element("p", { class: "option two hint", "aria-hidden": "true" }, element("span"), element("span", { class: "side" }, page.say("of_sampling")),
      element("span", { class: "side" }, page.say("of_model")))]
    : [];
  return element("div", {}, element("h2", {}, page.say("likeliest")), ...names, element("ol", { class: "options" }, ...items));
}

// Source tokens, coloured by their attention weight in this step.
function looks(page, { looks: map }, at) {
  const weights = matrix(map, "mean");
  const row = Math.min(at, map.rows.length) - 1;
  const colour = headColour(1);
  const items = map.columns.map((token, column) => {
    const weight = weights[row * map.columns.length + column];
    return element("li", {
      title: weight.toFixed(3), style: { "--colour": `color-mix(in srgb, ${colour} ${Math.round(100 * weight)}%, transparent)` },
    }, element("bdi", {}, shown(token)), element("small", {}, weight >= 0.05 ? weight.toFixed(2) : ""));
  });
  return element("div", {}, element("h2", {}, page.say("looks")), element("ol", { class: "looks" }, ...items),
    element("p", { class: "hint" }, page.say("looks_hint")));
}
