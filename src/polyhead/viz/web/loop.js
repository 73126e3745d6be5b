// The state of a page, kept in its address so that links and Back work; every change redraws the page.

// Return the address with `parts` in place of `keys`; other parts are kept.
export function address(parts, keys) {
  const all = new URLSearchParams(location.hash.slice(1));
  for (const key of keys) all.delete(key);
  for (const [key, value] of Object.entries(parts)) all.set(key, value);
  return `#${all}`;
}

// Write the address, as a new history entry if the page `turned`.
export function remember(hash, turned) {
  const target = location.href.split("#")[0] + hash;
  try {
    if (turned && window.parent === window) history.pushState(null, "", target);
    else history.replaceState(null, "", target);
  } catch {
    // Forbidden in some notebooks; the page works without.
  }
}

// Read values of the address that are among the options.
export function picker(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  return { given, pick: (name, options, otherwise) => (options.includes(given.get(name)) ? given.get(name) : otherwise) };
}

export function defaultLanguage() {
  return (navigator.language ?? "").toLowerCase().startsWith("ko") ? "ko" : "en";
}

// Run a page: read(hash) parses a state, write(state) returns a hash, draw(state, change) fills `root`.
export function run(root, { read, write, turned, draw, signal }) {
  let state = read(location.hash);
  const redraw = () => root.isConnected && keepScroll(root, () => draw(state, change)); // not if it was removed
  const change = (part) => {
    const before = state;
    state = read(write({ ...state, ...part }));
    remember(write(state), turned(before, state));
    redraw();
  };
  const again = () => {
    state = read(location.hash);
    redraw();
  };
  let width = root.clientWidth;
  const resize = () => {
    if (root.clientWidth === width) return; // only the address bar of a phone changed
    width = root.clientWidth;
    redraw();
  };
  window.addEventListener("popstate", again, { signal });
  window.addEventListener("resize", resize, { signal });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw, { signal });
  redraw();
  return again;
}

// Redraw, and keep the focus on the same control, or on the first one if it is gone.
export function keepFocus(root, draw) {
  const focused = document.activeElement;
  const inside = root.contains(focused);
  draw();
  if (!inside || focused.isConnected) return;
  const next = document.getElementById(focused.id) ?? root.querySelector("button, input:checked, input[type=range]");
  next?.focus({ preventScroll: true });
}

// Redraw, and keep focus and scroll position.
function keepScroll(root, draw) {
  const [across, down] = [root.querySelector(".scroll")?.scrollLeft, window.scrollY];
  keepFocus(root, draw);
  if (across) root.querySelector(".scroll")?.scrollTo(across, 0);
  window.scrollTo(window.scrollX, down);
}
