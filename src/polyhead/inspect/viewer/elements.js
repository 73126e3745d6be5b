// Building elements. Text only ever goes in as text: there is no way to pass markup.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null)); // strings become text nodes
  return node;
}

// One choice out of several, as native radio buttons: arrow keys and screen readers work by themselves.
export function choice(name, legend, options, chosen, change) {
  const items = options.map(({ value, label, note, hint }) => {
    const id = `${name}-${value}`;
    const input = element("input", {
      type: "radio", id, name, value, checked: value === chosen, change: () => change(value),
    });
    const text = element("span", { class: "chip", title: hint ?? null }, label, note ? element("small", {}, note) : null);
    return element("label", { for: id }, input, text);
  });
  return element(
    "fieldset", { class: `choice ${name}` }, element("legend", {}, legend), element("div", { class: "chips" }, ...items),
  );
}

export function toggle(name, label, checked, change) {
  const input = element("input", { type: "checkbox", id: name, role: "switch", checked, change: (event) => change(event.target.checked) });
  return element("label", { class: "switch", for: name }, input, element("span", { class: "track" }), label);
}

// The line that says what is being pointed at; a screen reader reads it when it changes.
export function readout(hint) {
  const node = element("output", { class: "readout", "aria-live": "polite" });
  const tell = (main, weight = "", rest = "") => {
    node.replaceChildren(
      element("span", { class: main === hint ? "hint" : "pair" }, main),
      element("strong", {}, weight),
      element("span", { class: "rest" }, rest),
    );
  };
  tell(hint);
  return { node, tell, clear: () => tell(hint) };
}

// Width in pixels of the widest text, as the labels will show it.
export function widest(texts, font) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = font;
  return Math.ceil(texts.reduce((most, text) => Math.max(most, context.measureText(text).width), 0));
}

// Likeliest first: names with their probabilities as bars.
export function shares(labels) {
  const items = labels.map(([name, share]) =>
    element(
      "li", {}, element("bdi", {}, name),
      element("span", { class: "share" }, element("i", { style: { width: `${100 * share}%` } })),
      element("small", {}, `${(100 * share).toFixed(1)} %`),
    ),
  );
  return element("ol", { class: "answer" }, ...items);
}

// Arrow keys go from thumbnail to thumbnail.
export function walk(event, node) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  const from = event.target.closest("button");
  if (!from || !step) return;
  event.preventDefault();
  const [layer, head] = [Number(from.dataset.layer) + step[0], Number(from.dataset.head) + step[1]];
  node.querySelector(`#head-${layer}-${head}`)?.focus();
}
