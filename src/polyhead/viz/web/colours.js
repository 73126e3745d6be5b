// Colours: viridis for weights (readable with every colour vision and in grey), eight colours for heads.

// Every fifth of the 256 colours of viridis (van der Walt and Smith, CC0); linear in between.
const VIRIDIS =
  "44015446085c471063481769481d6f482475472a7a46307e453781433d844142873f48893d4e8a" +
  "3a538b38598c355e8d33638d31688e2e6d8e2c718e2a768e297b8e27808e25848e23898e218e8d" +
  "20928c1f978b1e9c891fa18821a58524aa8328ae802eb37c35b7793dbc7446c06f50c46a5ac864" +
  "65cb5e70cf577cd25089d54895d840a2da37b0dd2fbddf26cae11fd8e219e5e419f1e51dfde725";
const STEPS = Float64Array.from(VIRIDIS.match(/../g), (pair) => parseInt(pair, 16));
const LAST = STEPS.length / 3 - 1;
const MIN_EXPONENT = -4; // the logarithmic scale starts at 10^-4

// Return the colour for t between 0 and 1 as one pixel: red in the lowest byte, then green, blue, opacity.
function shade(t) {
  const place = (t < 0 ? 0 : t > 1 ? 1 : t) * LAST;
  const step = Math.min(Math.floor(place), LAST - 1);
  const at = 3 * step;
  const part = place - step;
  const red = STEPS[at] + (STEPS[at + 3] - STEPS[at]) * part + 0.5;
  const green = STEPS[at + 1] + (STEPS[at + 4] - STEPS[at + 1]) * part + 0.5;
  const blue = STEPS[at + 2] + (STEPS[at + 5] - STEPS[at + 2]) * part + 0.5;
  return (255 << 24) | (blue << 16) | (green << 8) | red;
}

// Map a weight onto 0 to 1, alike for every head, so that maps can be compared.
export function scale(weight, log) {
  if (!log) return weight;
  return weight > 0 ? 1 - Math.log10(weight) / MIN_EXPONENT : 0;
}

export function headColour(head) {
  const name = `--head-${((head - 1) % 8) + 1}`;
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Paint one pixel for each cell, coloured by `levelOf` (0 to 1, or null for an empty cell). CSS enlarges
// the pixels to cells, so thousands of cells cost no more than one image.
export function paint(canvas, rows, columns, levelOf) {
  canvas.width = columns.length;
  canvas.height = rows.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns.length || 1, rows.length || 1);
  const pixels = new Int32Array(image.data.buffer);
  for (let i = 0, at = 0; i < rows.length; i++)
    for (let j = 0; j < columns.length; j++, at++) {
      const level = levelOf(rows[i], columns[j]);
      if (level !== null) pixels[at] = shade(level);
    }
  context.putImageData(image, 0, 0);
}
