// Layers in careless hands: wrong names, sizes and types are refused with a sentence, and what is refused changes nothing;
// weights in files; types of 16 bits; packed sequences; memory that grows; backends. In: MODULE.mjs. Out: what failed, and
// "N passed, N failed".
import { pathToFileURL } from "node:url";

const { load } = await import(pathToFileURL(process.argv[2]));
let passed = 0, failed = 0;

function judge(is, what) {
    is ? passed++ : (failed++, console.log(`FAIL ${what}`));
}

async function refuses(words, act, what) {
    try {
        await act();
        judge(false, `${what}: it was taken`);
    } catch (error) {
        judge(error.message.includes(words), `${what}: ${error.message}`);
    }
}

let seed = 1;
const draw = (n) => Float32Array.from({ length: n }, () => (seed = seed * 48271 % 2147483647) / 2147483647 - 0.5);
// To rounding: the sizes of a product decide the order of its sums.
const near = (a, b) => a.length === b.length && a.every((value, i) => Math.abs(value - b[i]) < 1e-6);
const equal = (a, b) => a.length === b.length && a.every((value, i) => Object.is(value, b[i]));

// A file as safetensors' description has it.
function file(tensors) {
    let at = 0;
    const header = {};
    for (const [name, { dtype, shape, bytes }] of Object.entries(tensors))
        header[name] = { dtype, shape, data_offsets: [at, at += bytes.byteLength] };
    const text = new TextEncoder().encode(JSON.stringify(header));
    const all = new Uint8Array(8 + text.length + at);
    new DataView(all.buffer).setBigUint64(0, BigInt(text.length), true);
    all.set(text, 8);
    let place = 8 + text.length;
    for (const { bytes } of Object.values(tensors)) {
        all.set(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength), place);
        place += bytes.byteLength;
    }
    return all;
}

const cells = await load();
const { lstm } = cells;
const sizes = { B: 2, D: 3, H: 4 };
const shapes = { weight_ih: [16, 3], weight_hh: [16, 4], bias_ih: [16], bias_hh: [16] };
const params = Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [name, draw(shape.reduce((a, b) => a * b))]));
const ready = (cell = lstm, own = sizes) => {
    const layer = cell.create(own);
    layer.set(params);
    return layer;
};

// What a cell says of itself.
judge(lstm.sizes.join() === "B,D,H" && lstm.inputs.join() === "x" && lstm.states.join() === "h,c" && lstm.outputs.join() === "y" &&
    lstm.bindings.dtype === "f32" && lstm.name === "lstm", "what lstm says of itself");
judge(cells.lstm_packed.sizes.join() === "B,D,H" && cells.lstm_packed.inputs.join() === "x,cu_seqlens", "what lstm_packed says");

// Wrong words and numbers.
await refuses("there is no size Q; there are B, D, H", () => lstm.create({ ...sizes, Q: 1 }), "a size that is none");
await refuses("the size H is undefined", () => lstm.create({ D: 3 }), "a size too few");
await refuses("the size H is 1.5", () => lstm.create({ D: 3, H: 1.5 }), "half a unit");
await refuses("H is 0; wanted 1 or more", () => { const layer = lstm.create({ D: 3, H: 0 }); layer.set({ weight_ih: [], weight_hh: [], bias_ih: [], bias_hh: [] }); layer.step({ x: draw(3) }); }, "no units");
await refuses("the param weight_ih has no value", () => lstm.create(sizes).step({ x: draw(6) }), "params without values");
await refuses("there is no param or state y", () => ready().set({ y: [1] }), "setting an output");
await refuses("bias_hh has 3 numbers; wanted are [16], 16 in all", () => ready().set({ bias_hh: [1, 2, 3] }), "a short param");
await refuses("there is no input q", () => ready().step({ q: [1] }), "an input that is none");
await refuses("x has no numbers; wanted are [2, 1, 3]", () => ready().step({}), "no input");
await refuses("x has 7 numbers; wanted are 6 for each step", () => ready().forward({ x: draw(7) }), "a part of a step");
await refuses("forward wants T", () => ready().forward({}), "how many steps");
await refuses("forward with { train: true }", () => { const layer = ready(); layer.forward({ x: draw(6) }); layer.backward({}); }, "backward without train");
await refuses("there is no output or state x", () => { const layer = ready(); layer.forward({ x: draw(6) }, { train: true }); layer.backward({ x: draw(6) }); }, "a cotangent of an input");
await refuses("out of memory", () => lstm.create({ D: 50000, H: 50000 }), "ten gigabytes");
await refuses("there is no backend 'gpu'", () => load(undefined, { backend: "gpu" }), "a backend that is none");
await refuses("built without CUDA", () => load(undefined, { backend: "cuda" }), "a GPU");
await refuses("CELL_BACKEND is 'gpu'", () => load(undefined, { backend: "auto", environment: { CELL_BACKEND: "gpu" } }), "the environment");
await refuses("loads no libraries", async () => {
    const other = await load(undefined, { environment: { CELL_BLAS: "libblas.so" } });
    ready(other.lstm).step({ x: draw(6) });
}, "a library");

// One by one or all at once, in pieces, and again from the beginning.
{
    const x = draw(30), layer = ready(), whole = layer.forward({ x }).y, last = layer.get("c");
    layer.reset();
    judge(layer.get("h") === null, "a state that was reset");
    const first = layer.forward({ x: [...x.slice(0, 9), ...x.slice(15, 24)] }).y;
    const rest = layer.forward({ x: [...x.slice(9, 15), ...x.slice(24)] }).y;
    judge(near(whole, [...first.slice(0, 12), ...rest.slice(0, 8), ...first.slice(12), ...rest.slice(8)]), "two pieces");
    judge(near(last, layer.get("c")), "their last state");
    const h = layer.get("h"), c = layer.get("c");
    const next = layer.step({ x: draw(6) }).y;
    seed = 1, draw(30);
    layer.reset();
    layer.set({ h, c });
    judge(equal(layer.get("h"), h), "a state that was set");
    judge(next.length === 8 && next.every(Number.isFinite), "a step behind them");
    judge(layer.forward({ x: [] }).y.length === 0 && equal(layer.get("h"), h), "no steps");
    layer.free();
}

// What a failing call leaves alone; a backward behind it is refused.
{
    const layer = ready(), x = draw(6);
    layer.step({ x });
    const before = layer.get("h");
    await refuses("x has 5", () => layer.step({ x: draw(5) }), "a short input");
    judge(equal(layer.get("h"), before), "the state behind a call that failed");
}

// Training by hand: the loss falls.
{
    const layer = ready(), x = draw(30), wanted = draw(40);
    const loss = () => {
        layer.reset();
        const { y } = layer.forward({ x }, { train: true });
        const off = y.map((value, i) => value - wanted[i]);
        return [off.reduce((sum, value) => sum + value * value, 0), layer.backward({ y: off })];
    };
    const [before, gradients] = loss();
    layer.set(Object.fromEntries(Object.keys(params).map((name) => [name, layer.get(name).map((w, i) => w - 0.02 * gradients[name][i])])));
    judge(loss()[0] < before, "a step of descent");
    judge(gradients.x.length === 30 && gradients.h.length === 8, "gradients of inputs and states");
}

// Weights in files: as they are, of another type, behind a prefix; broken ones change nothing.
{
    const tensors = (prefix = "") => Object.fromEntries(Object.entries(params).map(([name, bytes]) => [prefix + name, { dtype: "F32", shape: shapes[name], bytes }]));
    const x = draw(6), y = ready().step({ x }).y, layer = lstm.create(sizes);
    layer.load(file(tensors("rnn.0.")), "rnn.0.");
    judge(equal(layer.step({ x }).y, y), "weights of a file");
    const wide = { ...tensors(), bias_ih: { dtype: "F64", shape: [16], bytes: Float64Array.from(params.bias_ih) } };
    const other = lstm.create(sizes);
    other.load(file(wide).buffer);
    judge(equal(other.step({ x }).y, y), "weights of another type");
    const third = lstm.create(sizes), saved = layer.save("b.");
    third.load(saved, "b.");
    judge(equal(third.step({ x }).y, y) && new DataView(saved.buffer).getUint32(0, true) % 8 === 0, "weights that were saved");
    await refuses("the param weight_ih has no value to save", () => lstm.create(sizes).save(), "saving what has no value");
    await refuses("has no tensor 'weight_ih'", () => other.load(file(tensors("a."))), "a file of others");
    await refuses("wanted is [16, 3]", () => other.load(file({ ...tensors(), weight_ih: { dtype: "F32", shape: [3, 16], bytes: params.weight_ih } })), "another shape");
    const cut = file({ ...tensors(), bias_hh: { dtype: "F32", shape: [16], bytes: draw(16) } });
    await refuses("the file in memory", () => other.load(cut.slice(0, -1)), "a cut file");
    await refuses("the file in memory", () => other.load(new Uint8Array(0)), "an empty file");
    other.reset();
    judge(equal(other.step({ x }).y, y), "weights behind files that were refused");
}

// 16 bits: numbers are rounded on their way in and out.
{
    const layer = ready(cells.lstm_dtype_bf16), { y } = layer.step({ x: draw(6) });
    const rounded = (value) => new Uint32Array(Float32Array.of(value).buffer)[0] % 65536 === 0;
    judge(y instanceof Float32Array && y.every(rounded) && y.some((value) => value !== 0), "outputs of bf16");
    const again = cells.lstm_dtype_bf16.create(sizes);
    again.load(layer.save());
    judge(equal(again.get("weight_hh"), layer.get("weight_hh")), "params of bf16 that were saved");
    judge(layer.get("bias_ih").every((value, i) => rounded(value) && Math.abs(value - params.bias_ih[i]) <= Math.abs(value) / 256), "params of bf16");
}

// Packed sequences of 2 and 1 steps are two calls of one sequence each.
{
    const x = draw(9), packed = ready(cells.lstm_packed), one = ready(lstm, { ...sizes, B: 1 });
    const { y } = packed.forward({ x, cu_seqlens: Int32Array.of(0, 2, 3) });
    const first = one.forward({ x: x.slice(0, 6) }).y;
    one.reset();
    judge(near(y, [...first, ...one.forward({ x: x.slice(6) }).y]), "packed sequences");
    const step = ready(cells.lstm_packed).step({ x: x.slice(0, 6) }).y;
    judge(near(step.slice(0, 4), first.slice(0, 4)), "a step of packed sequences");
}

// Integers.
if (cells.embedding) {
    const { embedding } = cells;
    const table = draw(20), name = embedding.params[0], input = embedding.inputs[0];
    const own = embedding.create({ [embedding.sizes[1]]: 5, [embedding.sizes[2]]: 4 });
    own.set({ [name]: table });
    const got = own.forward({ [input]: [3, 0] })[embedding.outputs[0]];
    judge(equal(got, [...table.slice(12, 16), ...table.slice(0, 4)]), "rows of a table");
}

// A history of all steps, with room for four.
if (cells.causal_attention) {
    const attention = cells.causal_attention;
    const room = { H: 1, history: 4 }, few = attention.create(room), all = attention.create({ ...room, history: 5 });
    const q = draw(320), k = draw(320), v = draw(320), part = (list, t) => list.slice(64 * t, 64 * t + 64);
    const step = (layer, t) => layer.step({ q: part(q, t), k: part(k, t), v: part(v, t) }).y;
    const whole = all.forward({ q, k, v }).y;
    for (let t = 0; t < 4; t++)
        judge(near(step(few, t), part(whole, t)), `attention's step ${t}`);
    await refuses("history", () => step(few, 4), "a fifth step in a history of four");
    few.reset();
    judge(near(step(few, 0), part(whole, 0)), "attention from the beginning");
}

// Memory grows under arrays that were given before.
{
    const small = ready(), x = draw(6), y = small.step({ x }).y;
    const large = lstm.create({ D: 1000, H: 1000 });
    large.set({ weight_ih: new Float32Array(4e6), weight_hh: new Float32Array(4e6), bias_ih: new Float32Array(4000), bias_hh: new Float32Array(4000) });
    judge(large.step({ x: new Float32Array(1000) }).y.every((value) => value === 0), "a large layer");
    large.free();
    small.reset();
    judge(equal(small.step({ x }).y, y), "a small layer behind it");
}

// The reference gives the same to rounding, and a module can be given in other ways.
{
    const { readFileSync } = await import("node:fs");
    const bytes = readFileSync(process.argv[2].replace(/mjs$/, "wasm")), x = draw(6);
    const other = await load(bytes, { backend: "reference" });
    const a = ready().step({ x }).y, b = ready(other.lstm).step({ x }).y;
    judge(near(a, b), "the reference");
    judge("lstm" in await load(new WebAssembly.Module(bytes)), "a compiled module");
    judge("lstm" in await load(new Response(bytes)), "a response");
    await refuses("", () => load(new URL("file:///no/such.wasm")), "a module that is not there");
}

console.log(`${passed} passed, ${failed} failed`);
