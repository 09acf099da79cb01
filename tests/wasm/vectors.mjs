// Holds what a module's layers give against values that were made elsewhere (tests/vectors): all steps at once, forward and
// backward, and steps one by one. In: MODULE.mjs, and CELL=FILE.vec... Out: what failed, and "N passed, N failed".
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const tolerance = 2e-5; // of f32, relative to the largest number of a tensor; sums have some hundred terms
let passed = 0, failed = 0;

function judge(is, what) {
    is ? passed++ : (failed++, console.log(`FAIL ${what}`));
}

function read(path) {
    const sizes = {}, tensors = {};
    let numbers = null;
    for (const line of readFileSync(path, "utf8").split("\n")) {
        const words = line.trim().split(/\s+/);
        if (line.startsWith("# sizes:"))
            words.slice(2).forEach((word) => sizes[word.split("=")[0]] = Number(word.split("=")[1]));
        else if (words[0] === "tensor")
            numbers = (tensors[words[1]] ??= {})[words[2]] = [];
        else if (!line.startsWith("#") && words[0])
            numbers.push(...words.map(Number));
    }
    return { sizes, tensors };
}

function compare(what, got, wanted) {
    const largest = wanted.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-3);
    const worst = wanted.reduce((most, value, i) => Math.max(most, Math.abs(value - got[i])), 0);
    judge(got.length === wanted.length && worst <= tolerance * largest, `${what}: ${got.length} numbers, off by ${worst}`);
}

const { load } = await import(pathToFileURL(process.argv[2]));
const cells = await load();
for (const word of process.argv.slice(3)) {
    const [name, path] = word.split("="), { sizes, tensors } = read(path);
    const { T, ...rest } = sizes, cell = cells[name], B = sizes.B;
    const layer = cell.create(Object.fromEntries(cell.sizes.concat("B").map((size) => [size, rest[size] ?? 1])));
    const states = tensors.state ?? {};
    layer.set(tensors.param);
    layer.set(states);
    const outputs = layer.forward(tensors.input, { train: true });
    for (const [output, wanted] of Object.entries(tensors.output))
        compare(`${name}: ${output}`, outputs[output], wanted);
    for (const [state, wanted] of Object.entries(tensors.final ?? {}))
        compare(`${name}: the last ${state}`, layer.get(state), wanted);
    const cotangents = { ...tensors.dout, ...tensors.dfinal };
    for (const times of [1, 2]) {
        const gradients = layer.backward(cotangents, { accumulate: times === 2 });
        for (const kind of ["dinput", "dparam", "dstate"])
            for (const [of, wanted] of Object.entries(tensors[kind] ?? {}))
                compare(`${name}: gradient of ${of}, ${times} times`, gradients[of], wanted.map((value) => value * times));
    }
    layer.reset();
    layer.set(states);
    const rows = (list, t) => {
        const n = list.length / B / T;
        return Array.from({ length: B }, (_, b) => list.slice((b * T + t) * n, (b * T + t + 1) * n)).flat();
    };
    for (let t = 0; t < T; t++) {
        const one = layer.step(Object.fromEntries(Object.entries(tensors.input).map(([input, list]) => [input, rows(list, t)])));
        for (const [output, wanted] of Object.entries(tensors.output))
            compare(`${name}: ${output} of step ${t}`, one[output], rows(wanted, t));
    }
    layer.free();
}
console.log(`${passed} passed, ${failed} failed`);
