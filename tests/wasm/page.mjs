// Opens the page of examples/wasm in Chromium, without a network: it writes, from a seed, just what the same module writes in
// Node, and says where there are no weights. In: FOLDER, with the page, its module and its weights; CHROMIUM. Out: what
// failed, and "N passed, N failed".
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, chromium] = process.argv.slice(2);
const types = { ".html": "text/html", ".mjs": "text/javascript", ".wasm": "application/wasm" };
const { load } = await import(pathToFileURL(resolve(folder, "charlm.mjs")));
const { uniform, writer } = await import(pathToFileURL(resolve(folder, "sample.mjs")));
const profile = mkdtempSync(join(tmpdir(), "chromium-"));
let passed = 0, failed = 0;

function judge(is, what) {
    is ? passed++ : (failed++, console.log(`FAIL ${what}`));
}

const server = createServer((request, response) => {
    const name = new URL(request.url, "http://a").pathname.slice(1) || "index.html";
    try {
        const body = readFileSync(join(folder, name));
        response.writeHead(200, { "Content-Type": types[extname(name)] ?? "application/octet-stream" }).end(body);
    } catch {
        response.writeHead(404).end();
    }
});
await new Promise((listens) => server.listen(0, "127.0.0.1", listens));

function open(question) {
    const words = ["--headless", "--no-sandbox", "--disable-gpu", `--user-data-dir=${profile}`, "--virtual-time-budget=60000",
        "--dump-dom", `http://127.0.0.1:${server.address().port}/${question}`];
    return new Promise((done) => execFile(chromium, words, { timeout: 120000 }, (error, page) => done(error ? String(error) : page)));
}

const text = (page, element) => new RegExp(`id="${element}"[^>]*>([^<]*)<`).exec(page)?.[1]
    .replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&nbsp;/g, "\u00a0").replace(/&amp;/g, "&");
const { charlm } = await load();
const layer = charlm.create({ V: 128, H: 256 });
layer.load(readFileSync(join(folder, "charlm.safetensors")));
const write = writer(layer, "The Rays of Light ", 0.7, uniform(7));
const wanted = "The Rays of Light " + Array.from({ length: 300 }, write).join("");
let page = await open("?seed=7&length=300");
judge(text(page, "text") === wanted, `the page wrote '${text(page, "text") ?? page}', Node '${wanted}'`);
judge(text(page, "status")?.startsWith("300 characters"), `the page's status is '${text(page, "status")}'`);
renameSync(join(folder, "charlm.safetensors"), join(folder, "elsewhere"));
page = await open("");
judge(text(page, "status")?.includes("node train.mjs"), `without weights its status is '${text(page, "status")}'`);
server.close();
rmSync(profile, { recursive: true, force: true });
console.log(`${passed} passed, ${failed} failed`);
