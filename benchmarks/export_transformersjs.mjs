// Translate sentences with an exported folder in transformers.js.
//
//     node export_transformersjs.mjs FOLDER DTYPE < sentences > translations
//
// DTYPE is fp32 or q8. Input and output are JSON lists of texts. Nothing is downloaded.

import { readFileSync } from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// the package is installed in the current directory, not beside this script
const packages = createRequire(path.resolve("package.json"));
const { env, pipeline } = await import(pathToFileURL(packages.resolve("@huggingface/transformers")));

const [folder, dtype] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = path.dirname(path.resolve(folder));
const translate = await pipeline("translation", path.basename(folder), { dtype });
const sentences = JSON.parse(readFileSync(0, "utf8"));
const outputs = [];
const started = performance.now();
for (const sentence of sentences) {
  outputs.push((await translate(sentence))[0].translation_text);
}
const seconds = (performance.now() - started) / 1000;
process.stdout.write(JSON.stringify({ outputs, seconds }));
