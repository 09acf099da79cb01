// Trains the model of the page, on this machine, by the same module that the page runs:
//
//     node train.mjs FOLDER TEXT SECONDS [UPDATES]
//
// In: FOLDER with charlm.mjs (`cellc build charlm.cell --target wasm -o FOLDER`), a text in ASCII. Trains for SECONDS, and for
// UPDATES at most, and prints the loss in nats per character. Out: FOLDER/charlm.safetensors.
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { uniform, writer } from "./sample.mjs";

const V = 128, H = 256, B = 16, T = 64;
const [folder, path, seconds, updates = "Infinity"] = process.argv.slice(2);
const { load } = await import(pathToFileURL(resolve(folder, "charlm.mjs")));
const { charlm } = await load();
const layer = charlm.create({ B, V, H });
const text = Int32Array.from(readFileSync(path), (character) => Math.min(character, V - 1));
const random = uniform(1);

const spread = { table: 0.2, weight_hh: 1 / Math.sqrt(H), bias: 0, weight_out: 0.1 / Math.sqrt(H), bias_out: 0 };
const params = Object.entries(spread).map(([name, bound]) => {
    const value = new Float32Array(layer.shape(name).reduce((a, b) => a * b)).map(() => bound * (2 * random() - 1));
    return { name, value, mean: new Float32Array(value.length), square: new Float32Array(value.length) };
});
const give = () => layer.set(Object.fromEntries(params.map(({ name, value }) => [name, value])));

// The loss of all characters, and its gradient in the place of the scores.
function cross_entropy(scores, next) {
    let loss = 0;
    next.forEach((wanted, row) => {
        const of = scores.subarray(row * V, row * V + V);
        const largest = of.reduce((most, score) => Math.max(most, score));
        let sum = 0;
        for (let v = 0; v < V; v++)
            sum += of[v] = Math.exp(of[v] - largest);
        loss -= Math.log(of[wanted] / sum);
        for (let v = 0; v < V; v++)
            of[v] = (of[v] / sum - (v === wanted ? 1 : 0)) / next.length;
    });
    return loss / next.length;
}

// Adam (Kingma and Ba 2015, arXiv:1412.6980), with the gradient's norm cut at 1.
function update(gradients, count, rate) {
    let norm = 0;
    for (const { name } of params)
        for (const slope of gradients[name])
            norm += slope * slope;
    const cut = Math.min(1, 1 / Math.sqrt(norm)), c1 = 1 - 0.9 ** count, c2 = 1 - 0.99 ** count;
    for (const { name, value, mean, square } of params)
        gradients[name].forEach((slope, i) => {
            mean[i] += 0.1 * (cut * slope - mean[i]);
            square[i] += 0.01 * (cut * cut * slope * slope - square[i]);
            value[i] -= rate * (mean[i] / c1) / (Math.sqrt(square[i] / c2) + 1e-8);
        });
    give();
}

// B places of the text are read side by side; the states go on from one piece of T characters to the next.
const share = Math.floor((text.length - 1) / B), c = new Int32Array(B * T), next = new Int32Array(B * T);
const begun = performance.now();
let place = 0, mean = NaN;
give();
for (let count = 1; performance.now() - begun < seconds * 1000 && count <= updates; count++) {
    if (place + T > share) {
        place = 0;
        layer.reset();
    }
    for (let b = 0; b < B; b++)
        for (let t = 0; t < T; t++) {
            c[b * T + t] = text[b * share + place + t];
            next[b * T + t] = text[b * share + place + t + 1];
        }
    place += T;
    const { score } = layer.forward({ c }, { train: true });
    const loss = cross_entropy(score, next);
    const gone = Math.min(1, Math.max((performance.now() - begun) / seconds / 1000, count / updates));
    update(layer.backward({ score }), count, 4e-3 * (1 - 0.9 * gone));
    mean = Number.isNaN(mean) ? loss : 0.95 * mean + 0.05 * loss;
    if (count % 100 === 0)
        console.log(`${count} updates, ${Math.round((performance.now() - begun) / 1000)} s: ${mean.toFixed(3)}`);
}
const file = layer.save();
writeFileSync(resolve(folder, "charlm.safetensors"), file);
console.log(`${resolve(folder, "charlm.safetensors")}: ${(file.length / 1e6).toFixed(1)} MB; loss ${mean.toFixed(3)}`);

const one = charlm.create({ V, H });
one.load(file);
const write = writer(one, "The Rays of Light ", 0.7, uniform(1));
console.log("The Rays of Light " + Array.from({ length: 200 }, write).join(""));
