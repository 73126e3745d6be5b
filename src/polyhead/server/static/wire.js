// Talking to the server that sent this page, and to nobody else.

import { readView } from "../viewer/weights.js";
import { WORDS } from "../viewer/words.js";

const KEY = "polyhead-key"; // of the API, if the server wants one; forgotten with the window
const PATIENCE = 5; // seconds to wait at most before a busy server is asked again

const GONE = 0; // the status of a server that does not answer
const BUSY = [429, 503];

// What the server does not do, by its status and its answer: {error, field, code}.
export class Refusal extends Error {
  constructor(status, { error, field, code }) {
    super(error);
    Object.assign(this, { status, field, code });
    this.passing = status === GONE || status === 429 || status >= 500; // later it may work
  }
}

// What an error says, in the reader's language: by its code, its field or its status, with the server's own line.
export function reason({ say }, { status, field, code, message }) {
  if (status === undefined) return message; // our own words
  if (status === GONE) return say("gone");
  const keys = [BUSY.includes(status) && "busy", code && `refused_${code}`, field && `refused_${field.split(".")[0]}_${status}`, `refused_${status}`];
  return say(keys.find((key) => Object.hasOwn(WORDS, key)) ?? "refused", { n: message });
}

export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

// Ask once, and once more if the server is busy. `body` is an object (JSON) or a file.
export async function ask(path, body, signal, again = true) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const isFile = body instanceof Blob;
  if (body) headers["Content-Type"] = isFile ? body.type : "application/json";
  const response = await fetch(path, {
    method: body ? "POST" : "GET", headers, signal, body: body && !isFile ? JSON.stringify(body) : body,
  }).catch(lost);
  if (response.ok) return response;
  if (again && BUSY.includes(response.status)) {
    const seconds = Math.min(PATIENCE, Number(response.headers.get("Retry-After")) || 1);
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    return ask(path, body, signal, false);
  }
  const said = await response.json().catch(() => ({}));
  throw new Refusal(response.status, { ...said, error: said.error ?? `HTTP ${response.status}` });
}

// The network says in its own words, and in every browser in others, that nobody answers.
function lost(error) {
  throw error instanceof TypeError ? new Refusal(GONE, { error: error.message }) : error;
}

export async function json(path, body, signal) {
  return (await ask(path, body, signal)).json().catch(lost);
}

// Server-sent events of one answer: [name, data].
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(lost);
    if (done) return;
    rest += value;
    const whole = rest.split("\n\n");
    rest = whole.pop();
    for (const event of whole) {
      const part = (name) => event.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      if (part("data")) yield [part("event"), JSON.parse(part("data"))];
    }
  }
}

// All that the heads did with a text: the header is polyhead-attention-1, the weights follow as float16.
export async function attention(request, signal) {
  const view = readView(await fetched(request, signal));
  return { view, load: async (wanted, size) => attach(view, await fetched({ ...request, maps: wanted, size }, signal)) };
}

async function fetched(request, signal) {
  const buffer = await (await ask("/v1/attention", request, signal)).arrayBuffer().catch(lost);
  const length = new DataView(buffer).getUint32(8, true);
  const content = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 12, length)));
  for (const map of content.maps) {
    if (map.offset === null) continue;
    const floats = halves(buffer, 12 + length + map.offset, map.bytes / 2);
    const [, rows, columns] = map.stored;
    if (String(map.stored) === String(map.shape)) map.floats = floats;
    else map.small = { rows, columns, weights: floats }; // reduced: a thumbnail
  }
  return content;
}

// Put maps that arrived later where they belong.
function attach(view, content) {
  for (const fresh of readView(content).maps)
    if (fresh.weights || fresh.small)
      Object.assign(view.maps.find((one) => one.kind === fresh.kind && one.layer === fresh.layer), fresh);
}

// Numbers of 16 bits as 32: each is looked up. (Weights have no sign, and the browser's own way is slower.)
const FLOATS = new Float32Array(32768);
for (let word = 0; word < 32768; word++) {
  const [exponent, fraction] = [word >> 10, (word & 1023) / 1024];
  FLOATS[word] = exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction;
}

function halves(buffer, at, n) {
  const words = new Uint16Array(buffer, at, n);
  const floats = new Float32Array(n);
  for (let i = 0; i < n; i++) floats[i] = FLOATS[words[i]];
  return floats;
}
