"""A byte-level language model of any cell in plain JAX: layers of x + W_out cell(W_in norm(x)), trained with Adam, all
of a training step in one compiled program, and sampled byte by byte inside lax.scan.

    python jax_lm.py                                      # a GRU on Newton's Opticks, a minute on a CPU
    python jax_lm.py --cell e79 --set N=16 bias=input
    python jax_lm.py --cell lstm --width 512 --layers 6 --batch 16 --length 512 --steps 2000 --dtype bf16"""

import argparse
import math
import os
import time

import jax
import jax.numpy as jnp
import numpy as np

import cellc

OPTICKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "bytelm", "opticks.txt")


def arguments():
    p = argparse.ArgumentParser(description="Trains a byte-level language model of any cell in JAX.")
    p.add_argument("--cell", default="gru", help="a file, or a cell of cellc with one input of one axis (gru)")
    p.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="dims and options of the cell")
    p.add_argument("--text", default=OPTICKS, help="what to learn (Newton's Opticks)")
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--rate", type=float, default=4e-3)
    p.add_argument("--dtype", default="f32", choices=["f32", "bf16", "f16"], help="of the cell; params stay f32")
    p.add_argument("--sample", type=int, default=200, help="bytes to write at the end")
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def init(cell, key, a):
    """All params: a tree of dicts and lists."""
    sizes = {name: a.width for name in cell.manifest.dims}
    keys = iter(jax.random.split(key, 4 * a.layers + 2))

    def matrix(rows, columns):
        return jax.random.normal(next(keys), (rows, columns)) / math.sqrt(columns)

    wide = math.prod(axis.of({**sizes}) for axis in cell.manifest.outputs[0].axes)
    return {"embed": matrix(256, a.width), "head": matrix(256, a.width),
            "layers": [{"cell": jax.tree.map(lambda w: w.astype(jnp.float32), cell.init(next(keys), **sizes)),
                        "norm": jnp.ones(a.width), "out": matrix(a.width, wide) / math.sqrt(2 * a.layers)}
                       for _ in range(a.layers)]}


def norm(x, weight):
    return weight * x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def model(cell, p, tokens, states=None):
    """Logits [B, T, 256] and each layer's state; T is 1 in a step."""
    x, after = p["embed"][tokens], []
    for layer, state in zip(p["layers"], states or [None] * len(p["layers"])):
        z = norm(x, layer["norm"]).astype(cell.dtypes[cell.dtype])
        y, state = cell(layer["cell"], z, state=state)
        x = x + y.reshape(*tokens.shape, -1).astype(jnp.float32) @ layer["out"].T
        after.append(state)
    return x @ p["head"].T, after


def loss_of(cell, p, rows):
    logits, _ = model(cell, p, rows[:, :-1])
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), rows[:, 1:, None], -1).mean()


def adam(p, grads, m, v, t, rate):
    size = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g / jnp.maximum(size, 1.0), grads)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, v, grads)
    p = jax.tree.map(lambda p, m, v: p - rate * (m / (1 - 0.9 ** t)) / (jnp.sqrt(v / (1 - 0.95 ** t)) + 1e-8), p, m, v)
    return p, m, v


def sample(cell, p, start, count, key, temperature=0.8):
    """The prefix is read in one call; then every byte is a step of a scan that carries the states."""
    logits, states = model(cell, p, jnp.asarray([list(start)]))

    def one(carry, key):
        states, logits = carry
        token = jax.random.categorical(key, logits / temperature)
        logits, states = model(cell, p, token[:, None], states)
        return (states, logits[:, -1]), token[0]

    _, tokens = jax.lax.scan(one, (states, logits[:, -1]), jax.random.split(key, count))
    return (start + bytes(np.asarray(tokens).astype(np.uint8))).decode("utf-8", errors="replace")


def main():
    a = arguments()
    settings = dict(word.split("=", 1) for word in a.set)
    cell = cellc.load(a.cell, framework="jax", dtype=a.dtype, settings=settings)
    if len(cell.manifest.inputs) != 1 or len(cell.manifest.inputs[0].axes) != 1:
        raise SystemExit(f"{cell.name} takes {cell.listed(cell.manifest.inputs)}; this example wants one input x[D]")
    data = np.fromfile(a.text, np.uint8).astype(np.int32)
    p = init(cell, jax.random.key(a.seed), a)
    print(f"{a.cell}: {sum(w.size for w in jax.tree.leaves(p)):,} params, {len(data):,} bytes, on "
          f"{jax.devices()[0].platform}")

    @jax.jit
    def update(p, m, v, rows, t):
        loss, grads = jax.value_and_grad(lambda p: loss_of(cell, p, rows))(p)
        rate = a.rate * jnp.minimum(t / 20, 1) * (0.55 + 0.45 * jnp.cos(jnp.pi * t / a.steps))
        return loss, *adam(p, grads, m, v, t, rate)

    m = v = jax.tree.map(jnp.zeros_like, p)
    g, begin = np.random.default_rng(a.seed), None
    for t in range(1, a.steps + 1):
        starts = g.integers(0, len(data) - a.length - 1, a.batch)
        loss, p, m, v = update(p, m, v, np.stack([data[s:s + a.length + 1] for s in starts]), float(t))
        if t == 1:
            loss.block_until_ready()
            begin = time.time()
        elif t % 50 == 0 or t == a.steps:
            bits, each = float(loss) / math.log(2), (time.time() - begin) / (t - 1)
            print(f"{t}/{a.steps}  {bits:.3f} bits/byte  {a.batch * a.length / each:,.0f} tokens/s", flush=True)
    if a.sample:
        print(sample(cell, p, b"The ", a.sample, jax.random.key(a.seed)))


if __name__ == "__main__":
    main()
