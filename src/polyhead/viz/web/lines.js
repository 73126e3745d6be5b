// The lines: two columns of words, and curves between query and key, one colour for each head, as
// opaque as the weight (as in Figure 3 of "Attention Is All You Need").

import { headColour } from "./colours.js";
import { button, count, element, readout } from "./elements.js";
import { chosenMap, number, shown, visible } from "./weights.js";
import { say } from "./words.js";

const ROW = 30; // height of a word in pixels, as in the style sheet
const MANY = 200000; // with more weights than this, only the larger ones are drawn

export function minWeight(view, state) {
  const map = chosenMap(view, state);
  return map.weights?.length > MANY ? 0.05 : 0.01;
}

export function lines(place, view, state, change) {
  const map = chosenMap(view, state);
  const [rows, columns] = [visible(map.rows, state), visible(map.columns, state)];
  const told = readout(say(state, "lines_hint"));
  const height = `${Math.max(rows.length, columns.length) * ROW}px`;
  const canvas = element("canvas", { class: "curves", "aria-hidden": "true", style: { height } });
  const picture = { map, rows, columns, canvas, told, state, heads: count(map.heads).filter((head) => !state.off.includes(head)), threshold: minWeight(view, state) };
  const alone = isShown(state.word, rows, columns) ? state.word : "";
  const show = (word) => draw(picture, word);
  const list = (letter, tokens, chosen) =>
    element("ol", { class: letter === "r" ? "words left" : "words right" }, ...chosen.map((i) => {
      const word = `${letter}${i + 1}`;
      return element("li", {}, button({
        id: `word-${word}`, title: tokens[i].text, "aria-pressed": String(alone === word),
        pointerenter: () => show(word), focus: () => show(word), blur: () => show(alone),
        click: () => change({ word: alone === word ? "" : word }),
      }, element("bdi", {}, shown(tokens[i])), element("small", {})));
    }));
  const [left, right] = [list("r", map.rows, rows), list("c", map.columns, columns)];
  picture.buttons = { r: [...left.querySelectorAll("button")], c: [...right.querySelectorAll("button")] };
  const node = element("div", {
    class: "pair-of-columns", pointerleave: () => show(alone),
    keydown: (event) => event.key === "Escape" && change({ word: "" }),
  }, left, canvas, right);
  const [first, second] = [map.named ? "written" : "query", "key"].map((key) => element("span", {}, say(state, key)));
  place.append(element("div", { class: "above" }, told.node), element("p", { class: "axes ends" }, first, second), node);
  show(alone);
}

function isShown(word, rows, columns) {
  return (word[0] === "r" ? rows : columns).includes(Number(word.slice(1)) - 1);
}

// Draw all curves, or only those of one word (r3: third row, c1: first column).
function draw(picture, word) {
  const { map, rows, columns, canvas, heads, threshold } = picture;
  const alone = { letter: word[0], index: Number(word.slice(1)) - 1 };
  const context = sharpContext(canvas);
  const width = canvas.clientWidth;
  heads.forEach((head, place) => {
    context.strokeStyle = headColour(head);
    // Curves of several heads to the same word end side by side, so that all colours are visible.
    const offset = (place - (heads.length - 1) / 2) * Math.min(2.5, (0.6 * ROW) / heads.length);
    rows.forEach((row, i) => {
      if (alone.letter === "r" && alone.index !== row) return;
      columns.forEach((column, j) => {
        if (alone.letter === "c" && alone.index !== column) return;
        const weight = map.weights[((head - 1) * map.rows.length + row) * map.columns.length + column];
        if (weight < threshold) return;
        const [from, to] = [(i + 0.5) * ROW, (j + 0.5) * ROW + offset];
        context.globalAlpha = Math.min(1, weight);
        context.beginPath();
        context.moveTo(0, from);
        context.bezierCurveTo(width / 2, from, width / 2, to, width, to);
        context.stroke();
      });
    });
  });
  mark(picture, alone);
}

// Give the canvas the resolution of the screen.
function sharpContext(canvas) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(canvas.clientHeight * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.lineWidth = 2;
  return context;
}

// Write beside each word its mean weight over the heads for the selected word on the other side.
function mark({ map, rows, columns, heads, buttons, told, state }, { letter, index }) {
  const mean = (row, column) =>
    heads.reduce((sum, head) => sum + map.weights[((head - 1) * map.rows.length + row) * map.columns.length + column], 0) /
    Math.max(1, heads.length);
  const sides = { r: { chosen: rows, tokens: map.rows }, c: { chosen: columns, tokens: map.columns } };
  const found = [];
  for (const side of ["r", "c"])
    sides[side].chosen.forEach((i, n) => {
      const other = letter && letter !== side;
      const weight = !other ? 0 : side === "c" ? mean(index, i) : mean(i, index);
      const button = buttons[side][n];
      button.lastChild.textContent = other && weight >= 0.005 ? weight.toFixed(2) : "";
      button.classList.toggle("faded", other ? weight < 0.05 : Boolean(letter) && i !== index);
      button.classList.toggle("alone", letter === side && i === index);
      if (other) found.push([weight, shown(sides[side].tokens[i])]);
    });
  const token = letter && sides[letter].tokens[index];
  if (!token) return told.clear();
  found.sort((a, b) => b[0] - a[0]);
  const best = found.slice(0, 3).map(([weight, text]) => `‘${text}’\u00a0${number(weight)}`).join("   ");
  return told.tell(`‘${shown(token)}’ ${letter === "r" ? "←" : "→"} ${best}`, "", say(state, "mean_of", { n: heads.length }));
}
