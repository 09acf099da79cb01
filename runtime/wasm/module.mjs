// @NAME@.mjs: the cells of @NAME@.wasm, for web pages and Node, written by `cellc build --target wasm`. docs/wasm.md of
// cellc says how it is used.
//
//     import { load } from "./@NAME@.mjs";
//     const cells = await load();                          // one of each cell's name
//     const layer = cells.NAME.create({ D: 64, H: 256 });  // the sizes; B is 1
//     layer.load(bytes);                                   // a safetensors file; or layer.set({ param: numbers })
//     const { y } = layer.step({ x });                     // states stay in the layer

// cell_dtype, cell_tensor_kind, cell_role, CELL_ARG_IGNORED and cell_backend_kind of cell.h and cell_plan.h.
const arrays = [Float32Array, Uint16Array, Uint16Array, Float64Array, Int32Array, Uint8Array];
const F32 = 0, BF16 = 1, F16 = 2;
const INPUT = 0, PARAM = 1, STATE = 2, OUTPUT = 3, LENGTHS = 4, STARTS = 5;
const VALUE = 0, FINAL = 1, D_VALUE = 2, D_OUT = 3, D_FINAL = 4;
const IGNORED = 2, ACCUMULATE = 1;
const backends = { auto: 0, cuda: 1, reference: 2, emulated: 3, cpu: 4 };
const MOST_AXES = 10;

// ---- what the C library asks of its host (WASI): the time, its environment, and where messages go

const SUCCESS = 0, BAD_FILE = 8, NOT_SUPPORTED = 52;

function host(environment, getMemory) {
    const view = () => new DataView(getMemory().buffer);
    const bytes = () => new Uint8Array(getMemory().buffer);
    const words = Object.entries(environment).map(([name, value]) => new TextEncoder().encode(`${name}=${value}\0`));
    let line = "";
    const known = {
        environ_sizes_get(count, size) {
            view().setUint32(count, words.length, true);
            view().setUint32(size, words.reduce((sum, word) => sum + word.length, 0), true);
            return SUCCESS;
        },
        environ_get(list, at) {
            words.forEach((word, i) => {
                view().setUint32(list + 4 * i, at, true);
                bytes().set(word, at);
                at += word.length;
            });
            return SUCCESS;
        },
        clock_time_get(clock, precision, at) {
            const ms = clock === 0 ? Date.now() : performance.now();
            view().setBigUint64(at, BigInt(Math.round(ms * 1e6)), true);
            return SUCCESS;
        },
        fd_write(file, list, count, written) {
            let n = 0;
            for (let i = 0; i < count; i++) {
                const at = view().getUint32(list + 8 * i, true), length = view().getUint32(list + 8 * i + 4, true);
                line += new TextDecoder().decode(bytes().slice(at, at + length));
                n += length;
            }
            const lines = line.split("\n");
            line = lines.pop();
            lines.forEach((text) => console.error(text));
            view().setUint32(written, n, true);
            return SUCCESS;
        },
        fd_close: () => SUCCESS,
        fd_fdstat_get: () => BAD_FILE,
        fd_prestat_get: () => BAD_FILE,
        fd_prestat_dir_name: () => BAD_FILE,
        proc_exit(code) {
            throw new Error(`the module ended with ${code}`);
        },
    };
    return new Proxy(known, { get: (all, name) => all[name] ?? (() => NOT_SUPPORTED) });
}

async function compiled(source) {
    if (source instanceof WebAssembly.Module)
        return source;
    if (source instanceof ArrayBuffer || ArrayBuffer.isView(source))
        return WebAssembly.compile(source);
    if (source instanceof Response)
        return WebAssembly.compile(await source.arrayBuffer());
    const url = new URL(source, import.meta.url);
    if (url.protocol === "file:" && globalThis.process?.versions?.node) {
        const files = await import(/* webpackIgnore: true */ /* @vite-ignore */ "node:fs/promises");
        return WebAssembly.compile(await files.readFile(url));
    }
    const response = await fetch(url);
    if (!response.ok)
        throw new Error(`${url}: ${response.status} ${response.statusText}`);
    return WebAssembly.compile(await response.arrayBuffer());
}

// Gives an object with each cell of the module under its name. source: where the module is, if not beside this file: a
// URL, a Response, bytes, or a WebAssembly.Module. backend: "cpu", or "reference" for the plain C of the cell.
// environment: variables of the runtime, such as { CELL_VERBOSE: "1" }.
export async function load(source = new URL("./@NAME@.wasm", import.meta.url), { backend = "cpu", environment = {} } = {}) {
    if (!(backend in backends))
        throw new TypeError(`there is no backend '${backend}'; there are ${Object.keys(backends).join(", ")}`);
    let memory;
    const instance = await WebAssembly.instantiate(await compiled(source),
        { wasi_snapshot_preview1: host(environment, () => memory) });
    memory = instance.exports.memory;
    instance.exports._initialize();
    const module = new Module(instance.exports, backends[backend]);
    return Object.fromEntries(module.cells.map((cell) => [cell.name, cell]));
}

// An instance of the module, with a context of the runtime.
class Module {
    constructor(exports, backend) {
        this.c = exports;
        const text = this.c.cell_module_text();
        const list = JSON.parse(this.text(text));
        this.c.free(text);
        const place = this.take(4), message = this.take(1024);
        const status = this.c.cell_context_create(place, backend, 0, message, 1024);
        this.context = this.words(place, 1)[0];
        const why = this.text(message);
        this.c.free(place);
        this.c.free(message);
        if (status !== 0)
            throw new Error(why);
        this.cells = list.map((about, i) => new Cell(this, about, this.c.cell_module_cell(i)));
    }

    // Memory in the module, zero; bytes may be 0.
    take(bytes) {
        const at = bytes <= 0x7fffffff ? this.c.malloc(Math.max(bytes, 16)) >>> 0 : 0;
        if (!at)
            throw new RangeError(`out of memory: ${bytes} bytes`);
        new Uint8Array(this.c.memory.buffer, at, bytes).fill(0);
        return at;
    }

    // Views end where the memory grows, so they are made for each use.
    words(at, n) {
        return new Uint32Array(this.c.memory.buffer, at, n);
    }

    text(at) {
        const bytes = new Uint8Array(this.c.memory.buffer, at >>> 0);
        return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
    }

    check(status) {
        if (status !== 0)
            throw new Error(this.text(this.c.cell_last_error(this.context)));
    }

    // Numbers from JavaScript to a place of n numbers of a type, and back.
    write(at, dtype, numbers) {
        if (dtype !== BF16 && dtype !== F16) {
            new arrays[dtype](this.c.memory.buffer, at, numbers.length).set(numbers);
            return;
        }
        const wide = this.take(4 * numbers.length);
        new Float32Array(this.c.memory.buffer, wide, numbers.length).set(numbers);
        this.c.cell_module_narrow(dtype, at, wide, numbers.length);
        this.c.free(wide);
    }

    read(at, dtype, n) {
        if (dtype !== BF16 && dtype !== F16)
            return new arrays[dtype](this.c.memory.buffer, at, n).slice();
        const wide = this.take(4 * n);
        this.c.cell_module_widen(dtype, wide, at, n);
        const numbers = new Float32Array(this.c.memory.buffer, wide, n).slice();
        this.c.free(wide);
        return numbers;
    }
}

// A cell of the module: what it is, and layers of it.
class Cell {
    #module;
    #about;
    #at;

    constructor(module, about, at) {
        this.#module = module;
        this.#about = about;
        this.#at = at;
        const named = (...kinds) => about.tensors.filter(([, kind]) => kinds.includes(kind)).map(([name]) => name);
        this.name = about.name; // as its functions in C are called
        this.cell = about.cell; // as in its spec
        this.key = about.key;
        this.bindings = about.bindings; // { dtype: "f32", N: "64", ... }
        this.sizes = about.sizes.filter((name, i) => i !== 1 && !(i && i === about.total) && i < about.sizes.length - 1);
        this.inputs = named(INPUT, LENGTHS, STARTS);
        this.params = named(PARAM);
        this.states = named(STATE);
        this.outputs = named(OUTPUT);
    }

    // sizes: a number for each of the cell's `sizes`, B (sequences at a time) is 1 if it is left out.
    create(sizes = {}) {
        for (const name of Object.keys(sizes))
            if (!this.sizes.includes(name))
                throw new TypeError(`${this.name}: there is no size ${name}; there are ${this.sizes.join(", ")}`);
        const all = { B: 1, ...sizes };
        for (const name of this.sizes)
            if (!Number.isSafeInteger(all[name]) || all[name] < 0)
                throw new TypeError(`${this.name}: the size ${name} is ${all[name]}; create() wants a whole number`);
        return new Layer(this.#module, this.#about, this.#at, all);
    }
}

const product = (shape) => shape.reduce((a, b) => a * b, 1);

// A cell at sizes, with params and states. Memory of the module holds all of it until free().
class Layer {
    #module;
    #about;
    #cell; // its description in C
    #sizes; // in memory, 64 bits each
    #args; // in memory: pointers
    #shape; // in memory: extents of one argument
    #memory; // in memory: a cell_memory
    #inputs; // names
    #shapes = [[], []]; // of arguments of forward and backward at the sizes that are set, as far as they were asked for
    #rooms = new Map(); // what is in memory: name -> { at, bytes }
    #known = new Set(); // params and states that have values
    #steps = 0; // done since the states' beginning
    #saved = null; // what backward wants of the last forward

    constructor(module, about, cell, sizes) {
        this.#module = module;
        this.#about = about;
        this.#cell = cell;
        this.#sizes = module.take(8 * about.sizes.length);
        this.#args = module.take(4 * Math.max(about.forward.length, about.backward.length, 1));
        this.#shape = module.take(8 * MOST_AXES);
        this.#memory = module.take(16);
        this.#inputs = new Set(about.tensors.filter(([, kind]) => [INPUT, LENGTHS, STARTS].includes(kind)).map(([name]) => name));
        this.sizes = Object.freeze({ ...sizes });
        this.#setSizes(1, sizes.B);
        about.forward.forEach(([tensor, role, , dtype], i) => {
            const [name, kind] = about.tensors[tensor];
            if (role === VALUE && (kind === PARAM || kind === STATE))
                this.#room(name, dtype, product(this.#shapeOf(i)));
        });
    }

    #error(text) {
        return new TypeError(`${this.#about.name}: ${text}`);
    }

    #setSizes(T, total) {
        const view = new BigInt64Array(this.#module.c.memory.buffer, this.#sizes, this.#about.sizes.length);
        this.#about.sizes.forEach((name, i) => {
            const last = i === view.length - 1, own = i === this.#about.total && i > 0 ? total : this.sizes[name];
            const value = BigInt(i === 1 ? T : last ? this.#steps : own);
            if (view[i] !== value && !last) // no shape depends on the number of the first step
                this.#shapes = [[], []];
            view[i] = value;
        });
    }

    // Of an argument of forward or backward, at the sizes that are set.
    #shapeOf(i, backward = false) {
        const known = this.#shapes[Number(backward)];
        if (known[i])
            return known[i];
        const n = this.#module.c.cell_module_shape(this.#cell, backward, i, this.#sizes, this.#shape);
        if (n < 0)
            throw this.#error("the sizes give an argument no shape");
        return known[i] = Array.from(new BigInt64Array(this.#module.c.memory.buffer, this.#shape, n), Number);
    }

    // Memory for n numbers of that name, which is kept while it is large enough.
    #room(name, dtype, n) {
        const bytes = arrays[dtype].BYTES_PER_ELEMENT * n;
        let room = this.#rooms.get(name);
        if (!room || room.bytes < bytes) {
            if (room)
                this.#module.c.free(room.at);
            this.#rooms.delete(name);
            room = { at: this.#module.take(bytes), bytes };
            this.#rooms.set(name, room);
        }
        return room.at;
    }

    #put(name, dtype, shape, numbers) {
        const n = product(shape), list = typeof numbers === "number" ? [numbers] : numbers;
        if (!list || list.length !== n)
            throw this.#error(list?.length === undefined ? `${name} has no numbers; wanted are [${shape.join(", ")}]`
                : `${name} has ${list.length} numbers; wanted are [${shape.join(", ")}], ${n} in all`);
        const at = this.#room(name, dtype, n);
        this.#module.write(at, dtype, list);
        return at;
    }

    // The argument of forward that is the value of a param or state.
    #own(name) {
        const { forward, tensors } = this.#about;
        const i = forward.findIndex(([tensor, role]) => role === VALUE && tensors[tensor][0] === name &&
            (tensors[tensor][1] === PARAM || tensors[tensor][1] === STATE));
        if (i < 0)
            throw this.#error(`there is no param or state ${name}`);
        return { shape: this.#shapeOf(i), dtype: forward[i][3] };
    }

    // Gives params and states values: { NAME: numbers, ... }, row by row as declared, states with B in front.
    set(values) {
        this.#setSizes(1, this.sizes.B);
        for (const [name, numbers] of Object.entries(values)) {
            const { shape, dtype } = this.#own(name);
            this.#put(name, dtype, shape, numbers);
            this.#known.add(name);
        }
        this.#saved = null;
    }

    // A copy of a param or state; null: it has no value yet, a state then begins as the cell says.
    get(name) {
        this.#setSizes(1, this.sizes.B);
        const { shape, dtype } = this.#own(name);
        return this.#known.has(name) ? this.#module.read(this.#rooms.get(name).at, dtype, product(shape)) : null;
    }

    shape(name) {
        this.#setSizes(1, this.sizes.B);
        return [...this.#own(name).shape];
    }

    // Fills all params from the bytes of a safetensors file, in which they have their names behind the prefix.
    load(bytes, prefix = "") {
        const { c } = this.#module, { tensors } = this.#about;
        const file = ArrayBuffer.isView(bytes) ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)
            : new Uint8Array(bytes);
        const front = new TextEncoder().encode(prefix + "\0");
        const params = tensors.filter(([, kind]) => kind === PARAM).map(([name]) => name);
        this.#setSizes(1, this.sizes.B);
        const held = [this.#module.take(file.length), this.#module.take(front.length), this.#module.take(4 * params.length)];
        new Uint8Array(c.memory.buffer, held[0], file.length).set(file);
        new Uint8Array(c.memory.buffer, held[1], front.length).set(front);
        this.#module.words(held[2], params.length).set(params.map((name) => this.#rooms.get(name).at));
        const status = c.cell_module_load(this.#module.context, this.#cell, this.#sizes, held[1], held[2], held[0],
            file.length);
        held.forEach((at) => c.free(at));
        this.#module.check(status);
        params.forEach((name) => this.#known.add(name));
        this.#saved = null;
    }

    // All params as the bytes of a safetensors file, under their names behind the prefix.
    save(prefix = "") {
        const words = ["F32", "BF16", "F16", "F64", "I32", "BOOL"], header = {}, parts = [];
        let end = 0;
        this.#setSizes(1, this.sizes.B);
        for (const [name] of this.#about.tensors.filter(([, kind]) => kind === PARAM)) {
            if (!this.#known.has(name))
                throw this.#error(`the param ${name} has no value to save`);
            const { shape, dtype } = this.#own(name), bytes = arrays[dtype].BYTES_PER_ELEMENT * product(shape);
            header[prefix + name] = { dtype: words[dtype], shape, data_offsets: [end, end += bytes] };
            parts.push(new Uint8Array(this.#module.c.memory.buffer, this.#rooms.get(name).at, bytes));
        }
        const text = new TextEncoder().encode(JSON.stringify(header));
        const room = Math.ceil(text.length / 8) * 8, file = new Uint8Array(8 + room + end).fill(0x20, 0, 8 + room);
        new DataView(file.buffer).setBigUint64(0, BigInt(room), true);
        file.set(text, 8);
        parts.reduce((at, part) => (file.set(part, at), at + part.length), 8 + room);
        return file;
    }

    // States are again what the cell says that they begin with, and the next step is the first one.
    reset() {
        for (const [name, kind] of this.#about.tensors)
            if (kind === STATE)
                this.#known.delete(name);
        this.#steps = 0;
        this.#saved = null;
    }

    // How many steps the inputs have: those of the first one that says it; of packed sequences the longest.
    #stepsOf(given) {
        const { forward, tensors, total } = this.#about;
        for (const [i, [tensor, role]] of forward.entries()) {
            const [name, kind] = tensors[tensor], list = given[name];
            if (role !== VALUE || !list)
                continue;
            if (total && kind === STARTS)
                return { T: Math.max(0, ...Array.from(list, (n, b) => (b ? n - list[b - 1] : 0))), total: list.at(-1) };
            const one = kind === INPUT && !total ? product(this.#shapeOf(i)) : 0;
            if (one && list.length % one === 0)
                return { T: list.length / one, total: 0 };
            if (one)
                throw this.#error(`${name} has ${list.length} numbers; wanted are ${one} for each step`);
        }
        return { T: undefined, total: 0 };
    }

    #pointersOfForward(given, reserved) {
        const { forward, tensors } = this.#about;
        const pointers = [];
        for (const [i, [tensor, role, , dtype]] of forward.entries()) {
            const [name, kind] = tensors[tensor], state = kind === STATE;
            if (kind === PARAM && !this.#known.has(name))
                throw this.#error(`the param ${name} has no value; load() or set() gives it one`);
            if (kind === PARAM)
                pointers.push(this.#rooms.get(name).at);
            else if (state && role === VALUE)
                pointers.push(this.#known.has(name) ? this.#rooms.get(name).at : 0);
            else if (state) // what backward reads of the first states is not to be overwritten
                pointers.push(reserved ? this.#room(`${name}, next`, dtype, product(this.#shapeOf(i)))
                    : this.#rooms.get(name).at);
            else if (kind === OUTPUT)
                pointers.push(this.#room(name, dtype, product(this.#shapeOf(i))));
            else
                pointers.push(this.#put(name, dtype, this.#shapeOf(i), given[name]));
        }
        return pointers;
    }

    #run(given, T, total, step, train) {
        const { c, context } = this.#module, { forward, tensors } = this.#about;
        for (const name of Object.keys(given))
            if (!this.#inputs.has(name))
                throw this.#error(`there is no input ${name}`);
        this.#setSizes(T, total);
        this.#saved = null;
        const pointers = this.#pointersOfForward(given, train);
        let bytes = 0;
        if (train) {
            this.#module.check(c.cell_reserve_bytes(context, this.#cell, this.#sizes, this.#memory));
            bytes = this.#module.words(this.#memory, 1)[0];
        }
        const reserve = train ? this.#room("the reserve", 5, bytes) : 0;
        this.#module.words(this.#memory, 4).set([0, 0, reserve, bytes]);
        this.#module.words(this.#args, pointers.length).set(pointers);
        const run = step ? c.cell_run_step : c.cell_run_forward;
        this.#module.check(run(context, this.#cell, this.#sizes, this.#args, this.#memory, 0));
        const result = {}, initial = train ? new Set(this.#known) : null;
        forward.forEach(([tensor, role, , dtype], i) => {
            const [name, kind] = tensors[tensor];
            if (kind === OUTPUT)
                result[name] = this.#module.read(pointers[i], dtype, product(this.#shapeOf(i)));
            if (kind === STATE && role === FINAL)
                this.#known.add(name);
            if (kind === STATE && role === FINAL && train) {
                const first = this.#rooms.get(name);
                this.#rooms.set(name, this.#rooms.get(`${name}, next`));
                this.#rooms.set(`${name}, next`, first);
            }
        });
        if (train)
            this.#saved = { T, total, first: this.#steps, initial, reserve, bytes };
        this.#steps += T;
        return result;
    }

    // One step of every sequence: { NAME: numbers [B, ...], ... } to the same of the outputs.
    step(inputs = {}) {
        const { total, tensors } = this.#about, B = this.sizes.B;
        const starts = tensors.find(([, kind]) => kind === STARTS);
        const given = total && !(starts[0] in inputs)
            ? { ...inputs, [starts[0]]: Int32Array.from({ length: B + 1 }, (_, b) => b) } : inputs;
        return this.#run(given, 1, B, true, false);
    }

    // All steps of every sequence: { NAME: numbers [B, T, ...], ... } to the same of the outputs. T follows from the
    // inputs, or is given. With `train` backward() may follow.
    forward(inputs = {}, { T, train = false } = {}) {
        this.#setSizes(1, this.sizes.B);
        const found = this.#stepsOf(inputs), steps = T ?? found.T;
        if (!Number.isSafeInteger(steps) || steps < 0)
            throw this.#error("forward wants T, as no input says how many steps there are");
        return this.#run(inputs, steps, found.total, false, train);
    }

    // Gradients of what the last forward({ train: true }) computed: { NAME: numbers } of what reaches outputs and the last
    // states, to the same of inputs, params and first states. accumulate: they are added to those of the call before.
    backward(cotangents = {}, { accumulate = false } = {}) {
        const { c, context } = this.#module, { backward, tensors } = this.#about, saved = this.#saved;
        if (!backward.length)
            throw this.#error("the cell has no gradient");
        if (!saved)
            throw this.#error("backward wants a call of forward with { train: true } in front of it");
        for (const name of Object.keys(cotangents))
            if (!tensors.some(([own, kind]) => own === name && (kind === OUTPUT || kind === STATE)))
                throw this.#error(`there is no output or state ${name}`);
        const now = this.#steps;
        this.#steps = saved.first;
        this.#setSizes(saved.T, saved.total);
        this.#steps = now;
        const pointers = backward.map(([tensor, role, flags, dtype], i) => {
            const [name, kind] = tensors[tensor], n = () => product(this.#shapeOf(i, true));
            if (role === D_OUT || role === D_FINAL)
                return name in cotangents ? this.#put(`gradient into ${name}`, dtype, this.#shapeOf(i, true), cotangents[name]) : 0;
            if (role === D_VALUE)
                return flags & IGNORED ? 0 : this.#room(`gradient of ${name}`, dtype, n());
            if (kind === STATE)
                return saved.initial.has(name) ? this.#rooms.get(`${name}, next`).at : 0;
            return this.#rooms.get(name).at;
        });
        this.#module.words(this.#memory, 4).set([0, 0, saved.reserve, saved.bytes]);
        this.#module.words(this.#args, pointers.length).set(pointers);
        const flags = accumulate ? ACCUMULATE : 0;
        this.#module.check(c.cell_run_backward(context, this.#cell, this.#sizes, this.#args, this.#memory, flags));
        const result = {};
        backward.forEach(([tensor, role, flags, dtype], i) => {
            if (role === D_VALUE && !(flags & IGNORED))
                result[tensors[tensor][0]] = this.#module.read(pointers[i], dtype, product(this.#shapeOf(i, true)));
        });
        return result;
    }

    // Gives the memory back; the layer is of no use any more.
    free() {
        for (const { at } of this.#rooms.values())
            this.#module.c.free(at);
        [this.#sizes, this.#args, this.#shape, this.#memory].forEach((at) => this.#module.c.free(at));
        this.#rooms.clear();
        this.#known.clear();
        this.#saved = null;
        this.#module = null;
    }
}
