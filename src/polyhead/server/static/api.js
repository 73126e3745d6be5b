// Page of the HTTP API: all routes with the fields of their requests, read from /openapi.json.

import { element } from "../viewer/elements.js";
import { defaultLanguage, picker } from "../viewer/loop.js";
import { errorMessage } from "./panel_parts.js";
import { json } from "./http.js";
import { say as text } from "./messages.js";
import { setTheme, theme } from "./theme.js";

const lang = picker(location.hash).pick("lang", ["ko", "en"], defaultLanguage());
const say = (key, values) => text({ lang }, key, values);

// Returns the type of a field in words: integer 1–16, string | list of string, null.
function typeOf({ type, anyOf, $ref, items, enum: options, const: only, minimum: least, maximum: most }) {
  if (anyOf) return anyOf.map(typeOf).join(" | ");
  if ($ref) return $ref.split("/").at(-1);
  if (options ?? only) return [options ?? only].flat().map((value) => JSON.stringify(value)).join(" | ");
  if (type === "array") return say("list_of", { n: typeOf(items) });
  const range = least === undefined ? "" : most === undefined ? ` ≥ ${least}` : ` ${least}–${most}`;
  return `${type}${range}`;
}

function fields({ properties, required = [] }) {
  const row = ([name, field]) =>
    element("tr", {}, element("th", { scope: "row" }, element("code", {}, name)), element("td", {}, typeOf(field)),
      element("td", {}, required.includes(name) ? say("required") : JSON.stringify(field.default ?? null)));
  const heads = ["field", "type", "default"].map((name) => element("th", { scope: "col" }, say(name)));
  return element("div", { class: "scroll" },
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...Object.entries(properties).map(row))));
}

function route(schemas, path, [method, { summary, requestBody }]) {
  const body = requestBody?.content["application/json"].schema.$ref.split("/").at(-1);
  return element("section", { class: "card route" },
    element("h2", {}, element("code", {}, `${method.toUpperCase()} ${path}`)), element("p", { lang: "en" }, summary), body ? fields(schemas[body]) : null);
}

async function show() {
  document.documentElement.lang = lang;
  setTheme(theme());
  const main = element("main", {});
  document.getElementById("play").replaceChildren(main);
  try {
    const { info, paths, components: { schemas } } = await json("/openapi.json");
    const routes = Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).map((one) => route(schemas, path, one)));
    main.append(element("h1", {}, `Polyhead API ${info.version}`),
      element("p", {}, element("a", { href: `/#lang=${lang}` }, say("to_playground")), " · ", element("a", { href: "/openapi.json" }, "openapi.json")), ...routes);
  } catch (error) {
    main.replaceChildren(errorMessage({ say }, error, show));
  }
}

show();
