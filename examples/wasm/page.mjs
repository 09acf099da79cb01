// The page: loads the module and the weights, and writes while it is told to. In its address may stand what it begins with by
// itself: ?seed=1&length=200.
import { load } from "./charlm.mjs";
import { uniform, writer } from "./sample.mjs";

const [form, prompt, temperature, button, text, status] =
    ["form", "prompt", "temperature", "write", "text", "status"].map((name) => document.getElementById(name));
const asked = new URLSearchParams(location.search);
let running = 0;

async function weights() {
    const response = await fetch("charlm.safetensors");
    if (!response.ok)
        throw new Error("There are no weights beside this page: node train.mjs makes them.");
    return response.arrayBuffer();
}

// Writes `length` characters, as many as the model makes in 10 ms of each frame.
function write(layer, length, seed) {
    const next = writer(layer, prompt.value, Number(temperature.value), uniform(seed)), mine = ++running;
    let written = 0, busy = 0;
    text.textContent = prompt.value;
    button.textContent = "Stop";
    function frame() {
        if (mine !== running)
            return;
        const begun = performance.now();
        let piece = "";
        while (written < length && performance.now() - begun < 10) {
            piece += next();
            written++;
        }
        busy += performance.now() - begun;
        text.append(piece);
        status.textContent = `${written} characters` +
            (busy > 0 ? `, ${Math.round(written / busy * 1000)} in a second of computing` : "");
        if (written < length)
            requestAnimationFrame(frame);
        else
            stop();
    }
    frame();
}

function stop() {
    running++;
    button.textContent = "Write";
}

try {
    const [{ charlm }, file] = await Promise.all([load(), weights()]);
    const layer = charlm.create({ V: 128, H: 256 });
    layer.load(file);
    form.addEventListener("submit", (event) => {
        event.preventDefault();
        button.textContent === "Stop" ? stop() : write(layer, 5000, Math.random() * 4294967296);
    });
    button.disabled = false;
    status.textContent = "Ready.";
    if (asked.has("seed"))
        write(layer, Number(asked.get("length") ?? 1000), Number(asked.get("seed")));
} catch (error) {
    status.textContent = error.message;
}
