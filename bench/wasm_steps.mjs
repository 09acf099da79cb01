// The same as wasm_steps.c through the module's layers in JavaScript: MODULE.mjs ROUNDS.
import { pathToFileURL } from "node:url";

const { load } = await import(pathToFileURL(process.argv[2]));
const rounds = Number(process.argv[3]), steps = 200, size = 256;
const small = (n) => Float32Array.from({ length: n }, (_, i) => (i % 7 - 3) * 0.01);
for (const cell of Object.values(await load())) {
    const layer = cell.create(Object.fromEntries(cell.sizes.filter((name) => name !== "B").map((name) => [name, size])));
    for (const name of cell.params)
        layer.set({ [name]: small(layer.shape(name).reduce((a, b) => a * b)) });
    const inputs = Object.fromEntries(cell.inputs.map((name) => [name, small(size)]));
    let least = Infinity;
    for (let round = 0; round < rounds; round++) {
        const begun = performance.now();
        for (let step = 0; step < steps; step++)
            layer.step(inputs);
        least = Math.min(least, (performance.now() - begun) * 1000 / steps);
    }
    console.log(`${cell.key} ${least.toFixed(2)}`);
}
