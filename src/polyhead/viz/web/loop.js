// One state, kept in the address: it can be sent, and Back works. Everything is drawn anew when it changes.

// `keys` are the parts of the address that are ours; what others keep there stays.
export function address(parts, keys) {
  const all = new URLSearchParams(location.hash.slice(1));
  for (const key of keys) all.delete(key);
  for (const [key, value] of Object.entries(parts)) all.set(key, value);
  return `#${all}`;
}

// Write to the address. What turns the page is a new one for Back; the rest is not.
export function remember(hash, turned) {
  const target = location.href.split("#")[0] + hash;
  try {
    if (turned && window.parent === window) history.pushState(null, "", target);
    else history.replaceState(null, "", target);
  } catch {
    // Some notebooks forbid it; the page works without.
  }
}

// What an address asks for, if it is one of the options.
export function picker(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  return { given, pick: (name, options, otherwise) => (options.includes(given.get(name)) ? given.get(name) : otherwise) };
}

export function defaultLanguage() {
  return (navigator.language ?? "").toLowerCase().startsWith("ko") ? "ko" : "en";
}

// read(hash) makes a state, write(state) a hash; draw(state, change) fills `root`. Ends with `signal`.
export function run(root, { read, write, turned, draw, signal }) {
  let state = read(location.hash);
  const redraw = () => root.isConnected && keepPlace(root, () => draw(state, change)); // not what is put aside
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
    if (root.clientWidth === width) return; // a phone's address bar came or went
    width = root.clientWidth;
    redraw();
  };
  window.addEventListener("popstate", again, { signal });
  window.addEventListener("resize", resize, { signal });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw, { signal });
  redraw();
  return again;
}

// Draw something anew and stay on the control that was focused, or, if it is gone, on the first of them.
export function keepFocus(root, draw) {
  const focused = document.activeElement;
  const inside = root.contains(focused);
  draw();
  if (!inside || focused.isConnected) return;
  const next = document.getElementById(focused.id) ?? root.querySelector("button, input:checked, input[type=range]");
  next?.focus({ preventScroll: true });
}

// What the reader has focused and scrolled to is kept.
function keepPlace(root, draw) {
  const [across, down] = [root.querySelector(".scroll")?.scrollLeft, window.scrollY];
  keepFocus(root, draw);
  if (across) root.querySelector(".scroll")?.scrollTo(across, 0);
  window.scrollTo(window.scrollX, down);
}
