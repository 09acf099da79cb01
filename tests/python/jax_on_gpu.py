"""JAX on a GPU: a program of its own, since the tests of the package keep JAX on the CPU. Values and gradients of a
call on the GPU, plain, under jit and repeated, against the same cell through NumPy, which is the plain C.

    python3 tests/python/jax_on_gpu.py                # a few cells; the last line is the sum
    python3 tests/python/jax_on_gpu.py e88 mamba2     # these"""

import os
import sys
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax  # noqa: E402
import numpy as np  # noqa: E402

import cellc  # noqa: E402

CELLS = ["lstm", "gru", "e1", "e79", "e88", "gated_delta", "s5", "layernorm", "causal_attention"]
DIMS, BATCH, STEPS = (16, 8, 4), 3, 20
BOUND = 1e-4      # f32: sums of some tens of terms in another order, through 20 steps; errors by their root mean square


def distance(want, got):
    worst = 0.0
    for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(got)):
        a, b = np.asarray(a), np.asarray(b)
        size = np.sqrt(np.mean(np.abs(a) ** 2)) or 1.0
        error = np.sqrt(np.mean(np.abs(a - b) ** 2)) / size if a.shape == b.shape else np.inf
        worst = error if np.isnan(error) else max(worst, float(error))
    return worst


def check(name):
    cell, plain = (cellc.load(name, framework=f) for f in ("jax", "numpy"))
    m, g = cell.manifest, np.random.default_rng(1)
    dims = dict(zip(m.dims, DIMS))

    def draw(t, scale):
        z = scale * g.normal(size=t.shape({**dims, "B": BATCH, "T": STEPS}))
        return (z + 1j * scale * g.normal(size=z.shape)).astype("c8") if t.dtype == "c64" else z.astype("f4")

    params = {t.name: draw(t, 0.2) for t in m.params}
    inputs = [draw(t, 0.5) for t in m.inputs]
    states = [] if m.counts_steps else [draw(t, 0.5) for t in m.states]
    z, last, back = plain.vjp(params, *inputs, state=states or None)
    weights = jax.tree.map(lambda a: (0.3 * a + 1).astype(a.dtype), (z, tuple(last)))
    wanted = back(weights[0], [np.conj(w) for w in weights[1]])
    here = jax.device_put((params, inputs, states), jax.devices()[0])

    def call(params, inputs, states):
        y, final = cell(params, *inputs, state=states or None)
        return y, tuple(final)

    def all_of(params, inputs, states, weights):
        y, pull = jax.vjp(call, params, inputs, states)
        return y, pull(weights)

    compiled, worst = jax.jit(all_of), 0.0
    for run in (all_of, compiled, compiled, compiled):
        y, found = run(*here, jax.tree.map(jax.numpy.asarray, weights))
        if any(next(iter(a.devices())).platform == "cpu" for a in jax.tree.leaves((y, found))):
            raise ValueError("a result is on the CPU")
        gradients = wanted.params, list(wanted.inputs), list(wanted.state)[:len(states)]
        worst = max(worst, distance((z, tuple(last)), y), distance(jax.tree.map(np.conj, gradients), found))
    return worst


def main():
    if jax.devices()[0].platform != "gpu":
        print("JAX sees no GPU\n0 passed, 0 failed, 1 skipped")
        return 0
    passed = failed = 0
    for name in sys.argv[1:] or CELLS:
        try:
            worst = check(name)
            ok = worst <= BOUND
            print(f"{name}: largest error {worst:.1e} of {BOUND:.0e}{'' if ok else '  FAILED'}")
        except Exception:
            ok = False
            print(f"{name}: FAILED")
            traceback.print_exc(limit=4, file=sys.stdout)
        passed, failed = passed + ok, failed + (not ok)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
