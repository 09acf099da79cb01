// How the model writes, in the page and in Node: a character after the other, drawn by the scores of the one before.

// Uniform numbers in [0, 1) from a seed: mulberry32.
export function uniform(seed) {
    let state = seed >>> 0;
    return () => {
        state = (state + 0x6d2b79f5) >>> 0;
        let mixed = Math.imul(state ^ (state >>> 15), state | 1);
        mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
        return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
    };
}

// The place of one of exp(score / temperature), drawn in proportion.
function draw(scores, temperature, random) {
    const largest = scores.reduce((most, score) => Math.max(most, score));
    const weights = Array.from(scores, (score) => Math.exp((score - largest) / temperature));
    let left = random() * weights.reduce((sum, weight) => sum + weight, 0);
    const place = weights.findIndex((weight) => (left -= weight) < 0);
    return place < 0 ? weights.length - 1 : place;
}

// Begins after the prompt; each call gives the next character. What is no character of the model is left out of the prompt.
export function writer(layer, prompt, temperature, random) {
    const characters = layer.sizes.V;
    let scores = null;
    layer.reset();
    for (const character of `\n${prompt}`)
        if (character.charCodeAt(0) < characters)
            scores = layer.step({ c: [character.charCodeAt(0)] }).score;
    return () => {
        const next = draw(scores, temperature, random);
        scores = layer.step({ c: [next] }).score;
        return String.fromCharCode(next);
    };
}
