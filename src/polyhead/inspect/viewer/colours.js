// Colours: viridis for weights (readable without colour vision and in grey), eight colours for heads.

// Every fifth of the 256 colours of viridis (van der Walt and Smith, CC0), straight between two.
const VIRIDIS =
  "44015446085c471063481769481d6f482475472a7a46307e453781433d844142873f48893d4e8a" +
  "3a538b38598c355e8d33638d31688e2e6d8e2c718e2a768e297b8e27808e25848e23898e218e8d" +
  "20928c1f978b1e9c891fa18821a58524aa8328ae802eb37c35b7793dbc7446c06f50c46a5ac864" +
  "65cb5e70cf577cd25089d54895d840a2da37b0dd2fbddf26cae11fd8e219e5e419f1e51dfde725";
const STEPS = VIRIDIS.match(/../g).map((pair) => parseInt(pair, 16));
const LAST = STEPS.length / 3 - 1;
const FAINTEST = -4; // the logarithmic scale begins at 10^-4

// Write the colour for t between 0 and 1 into four bytes of an image.
function shade(bytes, at, t) {
  const place = Math.min(Math.max(t, 0), 1) * LAST;
  const step = Math.min(Math.floor(place), LAST - 1);
  for (let channel = 0; channel < 3; channel++) {
    const low = STEPS[3 * step + channel];
    const high = STEPS[3 * step + 3 + channel];
    bytes[at + channel] = Math.floor(low + (high - low) * (place - step) + 0.5);
  }
  bytes[at + 3] = 255;
}

// Where a weight stands on the scale: the same for every head, so that maps can be compared.
export function scale(weight, log) {
  if (!log) return weight;
  return weight > 0 ? 1 - Math.log10(weight) / FAINTEST : 0;
}

export function headColour(head) {
  const name = `--head-${((head - 1) % 8) + 1}`;
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// One pixel for each shown cell, coloured by `levelOf` (0 to 1, or null for an empty cell). CSS makes
// the pixels as large as cells: thousands of cells cost no more than one picture.
export function paint(canvas, rows, columns, levelOf) {
  canvas.width = columns.length;
  canvas.height = rows.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns.length || 1, rows.length || 1);
  let at = 0;
  for (const row of rows)
    for (const column of columns) {
      const level = levelOf(row, column);
      if (level !== null) shade(image.data, at, level);
      at += 4;
    }
  context.putImageData(image, 0, 0);
}
