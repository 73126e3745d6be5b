// Buttons that save the current view as SVG, PNG or an HTML page; the server renders them.

import { button, count, element } from "../viewer/elements.js";
import { send, errorText } from "./http.js";

const SHARP = 2; // PNG pixels per SVG unit

// Buttons for the attention of a text.
export function attentionButtons(page, request, state) {
  const picture = async () => {
    const response = await send("/v1/attention", { ...request, ...choice(state), format: "svg" });
    return new Blob([await response.text()], { type: "image/svg+xml" });
  };
  return saveButtons(page, {
    PNG: async () => toPNG(await picture()),
    SVG: picture,
    HTML: async (tell) => {
      const whole = { ...request, format: "html" };
      const { kind, layer } = state;
      const response = await send("/v1/attention", whole).catch((error) => {
        if (error.code !== "too_many_weights") throw error;
        tell(page.say("saved_one", { kind: page.say(kind), layer }));
        return send("/v1/attention", { ...whole, kind, layer });
      });
      return response.blob();
    },
  });
}

// Returns the view as options of /v1/attention.
function choice({ view, kind, layer, head, off, word, merge, special, log }) {
  const shown = { kind, merge, special };
  if (view === "model") return { ...shown, log };
  if (view === "heat") return { ...shown, layer, log, heads: typeof head === "number" ? [head] : head };
  const alone = word && { [word[0] === "r" ? "word" : "column"]: Number(word.slice(1)) };
  return { ...shown, layer, lines: true, heads: headsOn(off), ...alone };
}

function headsOn(off) {
  return count(document.querySelectorAll(".head .square").length).filter((head) => !off.includes(head));
}

// `makers`: by file type, a function that returns a promise of the file; it may `tell` something about it.
export function saveButtons(page, makers) {
  const status = element("span", { role: "status" });
  const one = (kind) =>
    button({
      class: "plain", id: `save-${kind.toLowerCase()}`, "aria-label": page.say("saved_as", { n: kind }),
      click: async () => {
        const tell = (text) => (status.textContent = text);
        tell("");
        try {
          download(await makers[kind](tell), `attention.${kind.toLowerCase()}`);
        } catch (error) {
          tell(errorText(page, error));
        }
      },
    }, kind);
  return element("div", { class: "saving" }, element("span", {}, page.say("save")), ...Object.keys(makers).map(one), status);
}

function download(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function toPNG(blob) {
  const image = new Image();
  const address = URL.createObjectURL(blob);
  image.src = address;
  await image.decode();
  const canvas = element("canvas", { width: SHARP * image.naturalWidth, height: SHARP * image.naturalHeight });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
