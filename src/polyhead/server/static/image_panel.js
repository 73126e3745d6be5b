// Panel of an image classifier: its classes, and attention maps and rollout over the patches.

import { bytesOf, element, shares } from "../viewer/elements.js";
import { mountPicture } from "../viewer/picture.js";
import { latestOnly } from "./panel_parts.js";
import { saveButtons } from "./save_buttons.js";
import { send, json } from "./http.js";

const LARGE = 768; // minimum size of a saved PNG in pixels
const KEY = "polyhead-image"; // in the session storage
const GAP = 8; // pixels between two heads

export function imagePanel(root, page) {
  const [answer, below] = [element("div", { class: "answer-box", "aria-live": "polite" }), element("div", { class: "below" })];
  const guard = latestOnly(page, below);
  const { kept } = page;
  const way = (format, choice) => `/v1/attention?${new URLSearchParams({ model: page.model.name, format, ...choice })}`;
  const take = (file) => {
    if (!file) return;
    kept.file = file;
    label.textContent = page.say("drop_another");
    guard(file, async (signal) => {
      const most = page.limits.max_image;
      if (file.size > most) throw new Error(page.say("too_large", { n: Math.floor(most / 2 ** 20) }));
      const view = await json(way("json"), file, signal);
      if (signal.aborted) return;
      store(page.model.name, file);
      answer.replaceChildren(element("h2", {}, page.say("classes")), shares(view.labels));
      const made = (...words) => async () => (await send(way(...words), file)).blob();
      const tools = (state) => saveButtons(page, { PNG: toLargePNG, SVG: made("svg", choice(state)), HTML: made("html") });
      mountPicture(below, view, { top: null, tools, signal });
    });
  };
  const input = element("input", { type: "file", id: "file", accept: "image/*", change: () => take(input.files[0]) });
  const label = element("strong", {}, page.say("drop"));
  const zone = element("label", {
    class: "drop", for: "file",
    dragover: (event) => {
      event.preventDefault();
      zone.classList.add("over");
    },
    dragleave: () => zone.classList.remove("over"),
    drop: (event) => {
      event.preventDefault();
      zone.classList.remove("over");
      take(event.dataTransfer.files[0]);
    },
  }, input, label, element("small", {}, page.say("drop_hint")));
  root.append(element("section", { class: "card twins" }, zone, element("div", { class: "box out" }, answer)), below);
  const paste = (event) => take([...event.clipboardData.files][0]);
  window.addEventListener("paste", paste);
  take(kept.file ?? stored(page.model.name));
  return { update() {}, end: () => window.removeEventListener("paste", paste) };
}

// Keeps the image for a reload of the page; one that is too large for the session storage is not kept.
async function store(model, file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const content = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  try {
    sessionStorage.setItem(KEY, JSON.stringify({ model, type: file.type, content }));
  } catch {
    sessionStorage.removeItem(KEY);
  }
}

function stored(name) {
  const { model, type, content } = JSON.parse(sessionStorage.getItem(KEY)) ?? {};
  return model === name ? new Blob([bytesOf(content)], { type }) : null;
}

// Returns the view as options of /v1/attention.
function choice({ view, layer, head, alone }) {
  const shown = alone ? { alone } : {};
  if (view === "all") return shown;
  return { ...shown, layer, ...(layer !== "rollout" && { head }) };
}

// Returns the map, or all heads with one row per layer, as a PNG without smoothing.
function toLargePNG() {
  const shown = [...document.querySelectorAll("#map, .thumbnails canvas")];
  const across = Number(document.querySelector(".thumbnails")?.style.getPropertyValue("--heads")) || 1;
  const down = shown.length / across;
  const times = Math.ceil(LARGE / shown[0].width / across);
  const [width, height] = [times * shown[0].width, times * shown[0].height];
  const gap = (n) => GAP * (n - 1);
  const canvas = element("canvas", { width: across * width + gap(across), height: down * height + gap(down) });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  shown.forEach((one, i) =>
    context.drawImage(one, (i % across) * (width + GAP), Math.floor(i / across) * (height + GAP), width, height));
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
