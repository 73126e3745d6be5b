// Requests to the server of this page.

import { readView } from "../viewer/weights.js";
import { WORDS } from "../viewer/words.js";

const KEY = "polyhead-key"; // API key in the session storage
const RETRY_SECONDS = 5; // maximum seconds before a request to a busy server is repeated

const UNREACHABLE = 0; // status if there is no response
const BUSY = [429, 503];

// Error response with its status and content: {error, field, code}, where `error` is an object for routes of OpenAI's API.
export class RequestError extends Error {
  constructor(status, { error, field, code }) {
    super(error.message ?? error);
    Object.assign(this, { status, field, code });
    this.passing = status === UNREACHABLE || status === 429 || status >= 500; // may be temporary
  }
}

// Returns the message of an error in the user's language, by its code, field or status, with the server's message.
export function errorText({ say }, { status, field, code, message }) {
  if (status === undefined) return message; // not from the server
  if (status === UNREACHABLE) return say("gone");
  const keys = [BUSY.includes(status) && "busy", code && `refused_${code}`, field && `refused_${field.split(".")[0]}_${status}`, `refused_${status}`];
  return say(keys.find((key) => Object.hasOwn(WORDS, key)) ?? "refused", { n: message });
}

export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

// Sends a request, and repeats it once if the server is busy. `body` is an object (JSON) or a file.
export async function send(path, body, signal, again = true) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const isFile = body instanceof Blob;
  if (body) headers["Content-Type"] = isFile ? body.type : "application/json";
  const response = await fetch(path, {
    method: body ? "POST" : "GET", headers, signal, body: body && !isFile ? JSON.stringify(body) : body,
  }).catch(connectionLost);
  if (response.ok) return response;
  if (again && BUSY.includes(response.status)) {
    const seconds = Math.min(RETRY_SECONDS, Number(response.headers.get("Retry-After")) || 1);
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    return send(path, body, signal, false);
  }
  const details = await response.json().catch(() => ({}));
  throw new RequestError(response.status, { ...details, error: details.error ?? `HTTP ${response.status}` });
}

// Converts network errors, whose messages differ between browsers.
function connectionLost(error) {
  throw error instanceof TypeError ? new RequestError(UNREACHABLE, { error: error.message }) : error;
}

export async function json(path, body, signal) {
  return (await send(path, body, signal)).json().catch(connectionLost);
}

// Yields the server-sent events of a response: [name, data].
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(connectionLost);
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

// Requests attention maps: a header (polyhead-attention-1) followed by float16 weights.
export async function attention(request, signal) {
  const view = readView(await fetchMaps(request, signal));
  return { view, load: async (wanted, size) => mergeMaps(view, await fetchMaps({ ...request, maps: wanted, size }, signal)) };
}

async function fetchMaps(request, signal) {
  const buffer = await (await send("/v1/attention", request, signal)).arrayBuffer().catch(connectionLost);
  const length = new DataView(buffer).getUint32(8, true);
  const content = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 12, length)));
  for (const map of content.maps) {
    if (map.offset === null) continue;
    const floats = float16ToFloat32(buffer, 12 + length + map.offset, map.bytes / 2);
    const [, rows, columns] = map.stored;
    if (String(map.stored) === String(map.shape)) map.floats = floats;
    else map.small = { rows, columns, weights: floats }; // reduced: a thumbnail
  }
  return content;
}

// Adds maps that were loaded later to the view.
function mergeMaps(view, content) {
  for (const fresh of readView(content).maps)
    if (fresh.weights || fresh.small)
      Object.assign(view.maps.find((one) => one.kind === fresh.kind && one.layer === fresh.layer), fresh);
}

// Table from float16 to float32, faster than the browser's conversion; weights have no sign.
const FLOATS = new Float32Array(32768);
for (let word = 0; word < 32768; word++) {
  const [exponent, fraction] = [word >> 10, (word & 1023) / 1024];
  FLOATS[word] = exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction;
}

function float16ToFloat32(buffer, at, n) {
  const words = new Uint16Array(buffer, at, n);
  const floats = new Float32Array(n);
  for (let i = 0; i < n; i++) floats[i] = FLOATS[words[i]];
  return floats;
}
