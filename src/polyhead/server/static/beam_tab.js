// Beam search tab: a tree with steps from left to right, the best child beside its parent, the others below.

import { button, choice, element, readout } from "../viewer/elements.js";
import { keepFocus } from "../viewer/loop.js";
import { latestOnly, piece } from "./panel_parts.js";
import { json } from "./http.js";

const [WIDTH, ROW, GAP] = [104, 34, 22]; // width and height of a node with the gap, in pixels
const SVG = "http://www.w3.org/2000/svg";
const WIDTHS = [1, 2, 4, 8];

export function beamTab(page, place) {
  const guard = latestOnly(page, place);
  return function show({ model, text }) {
    const beam = page.state.beam || page.model.defaults.beam;
    guard(JSON.stringify([model, text, beam]), async (signal) => {
      const result = await json("/v1/beam", { model, text, beam }, signal);
      keepFocus(place, () => place.replaceChildren(drawTree(page, result, beam)));
    });
  };
}

function drawTree(page, { nodes, hypotheses }, beam) {
  const tree = layOut(nodes);
  const paths = hypotheses.map(({ node }) => new Set(ancestors(tree, node)));
  const kept = new Set(paths.flatMap((path) => [...path]));
  const status = readout(page.say("beam_hint", { n: beam }));
  const lines = document.createElementNS(SVG, "svg");
  const height = ROW * (1 + Math.max(...tree.map((one) => one.row)));
  const width = WIDTH * (1 + Math.max(...nodes.map((one) => one.step)));
  for (const [name, value] of Object.entries({ width, height, "aria-hidden": "true" })) lines.setAttribute(name, value);
  const stateOf = (one) => (paths[0]?.has(one.node) ? "best" : kept.has(one.node) ? "kept" : "dropped");
  for (const one of tree) if (one.parent !== null) lines.append(branch(tree[one.parent], one, stateOf(one)));
  const buttons = tree.map((one) =>
    button({
      class: `node ${stateOf(one)}`, id: `node-${one.node}`, tabindex: one.node === 0 ? 0 : -1, title: one.text,
      style: { left: `${one.step * WIDTH}px`, top: `${one.row * ROW + 4}px` },
      focus: () => describeNode(page, status, tree, one), pointerenter: () => describeNode(page, status, tree, one), pointerleave: status.clear,
    }, element("bdi", {}, piece(one))));
  const field = element("div", { class: "tree", style: { width: `${width}px`, height: `${height}px` }, keydown: (event) => moveFocus(event, tree, buttons) });
  field.append(lines, ...buttons);
  const widths = [...new Set([...WIDTHS, beam])].sort((a, b) => a - b).map((value) => ({ value }));
  const ends = hypotheses.map(({ text, score }, i) =>
    element("li", { class: i ? null : "best" }, element("bdi", {}, text), element("small", { title: page.say("score_hint") }, score.toFixed(2))));
  return element("section", { class: "card" },
    choice("beam", page.say("beam"), widths, beam, (value) => page.change({ beam: value }, true)),
    element("div", { class: "above" }, status.node), element("div", { class: "scroll" }, field), element("ol", { class: "results" }, ...ends));
}

// Assigns a row to every node: the deepest child stays in its parent's row, each other one starts in the first row below that
// is free for its whole depth.
function layOut(nodes) {
  const tree = nodes.map((one) => ({ ...one, children: [], row: 0 }));
  for (const one of tree) if (one.parent !== null) tree[one.parent].children.push(one);
  const taken = []; // for each row, the occupied ranges of steps
  const todo = [tree[0]];
  while (todo.length) {
    const first = todo.pop();
    const [from, to] = [first.step - 1, first.step + depth(first)];
    let row = first.parent === null ? 0 : tree[first.parent].row + 1;
    while (taken[row]?.some(([start, end]) => start < to && from < end)) row += 1;
    (taken[row] ??= []).push([from, to]);
    for (let one = first; one; one = one.children[0]) {
      one.row = row;
      one.children.sort((a, b) => depth(b) - depth(a) || b.log_p - a.log_p);
      todo.push(...one.children.slice(1).reverse());
    }
  }
  return tree;
}

// Returns the number of steps of the longest path from a node.
function depth(one) {
  one.depth ??= 1 + Math.max(0, ...one.children.map(depth));
  return one.depth;
}

function ancestors(tree, node) {
  const path = [];
  for (let at = node; at !== null; at = tree[at].parent) path.push(at);
  return path.reverse();
}

function branch(from, to, state) {
  const path = document.createElementNS(SVG, "path");
  const [x, y] = [from.step * WIDTH + WIDTH - GAP, (from.row + 0.5) * ROW];
  const [right, down] = [to.step * WIDTH, (to.row + 0.5) * ROW];
  path.setAttribute("d", `M${x} ${y}C${x + GAP / 2} ${y} ${right - GAP / 2} ${down} ${right} ${down}`);
  path.setAttribute("class", state);
  path.setAttribute("stroke-width", 1 + 3 * to.probability);
  return path;
}

function describeNode(page, status, tree, one) {
  const text = ancestors(tree, one.node).slice(1).map((node) => piece(tree[node])).join(" ");
  status.tell(text || piece(one), "", page.say("node", { p: one.probability.toFixed(3), sum: one.log_p.toFixed(2) }));
}

// Arrow keys: left to the parent, right to the best child, up and down within a step.
function moveFocus(event, tree, buttons) {
  const one = tree[buttons.indexOf(event.target)];
  if (!one) return;
  const peers = tree.filter((other) => other.step === one.step).sort((a, b) => a.row - b.row);
  const beside = (by) => peers[peers.indexOf(one) + by];
  const moves = { ArrowLeft: () => tree[one.parent], ArrowRight: () => one.children[0], ArrowUp: () => beside(-1), ArrowDown: () => beside(1) };
  if (!moves[event.key]) return;
  event.preventDefault();
  const to = moves[event.key]();
  if (!to) return;
  buttons[one.node].tabIndex = -1;
  buttons[to.node].tabIndex = 0;
  buttons[to.node].focus();
}
