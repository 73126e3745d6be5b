// Files of what is shown: the picture as SVG and PNG, and the page of `polyhead attention`. The server makes them.

import { button, count, element } from "../viewer/elements.js";
import { ask, reason } from "./wire.js";

const SHARP = 2; // pixels of a PNG for each unit of the SVG

// Buttons that save what the state shows of a request.
export function saving(page, request, state) {
  const picture = async () => {
    const response = await ask("/v1/attention", { ...request, ...choice(state), format: "svg" });
    return new Blob([await response.text()], { type: "image/svg+xml" });
  };
  return buttons(page, {
    PNG: async () => toPNG(await picture()),
    SVG: picture,
    HTML: async () => (await ask("/v1/attention", { ...request, format: "html" })).blob(),
  });
}

// What is shown, in the server's words.
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

// `makers` are promises of files by their kind.
export function buttons(page, makers) {
  const told = element("span", { role: "status" });
  const one = (kind) =>
    button({
      class: "plain", id: `save-${kind.toLowerCase()}`, "aria-label": page.say("saved_as", { n: kind }),
      click: async () => {
        told.textContent = "";
        try {
          download(await makers[kind](), `attention.${kind.toLowerCase()}`);
        } catch (error) {
          told.textContent = reason(page, error);
        }
      },
    }, kind);
  return element("div", { class: "saving" }, element("span", {}, page.say("save")), ...Object.keys(makers).map(one), told);
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
