"""JAX: a cell as one operation under jit, grad, vmap, scan, checkpoint and shard_map, against the same library from
NumPy and against differences, in f64."""

import os
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from conftest import bound_dims  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import cellc  # noqa: E402

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
DIMS = (3, 4, 5)
CELLS = ["lstm", "gru", "e79", "e88", "gated_delta", "s5", "complex_lru", "conv4_silu", "window_attention", "layernorm"]


def case(name, **settings):
    """(cell, params, inputs, states), all drawn; params that start alike would hide exchanged ones."""
    cell = cellc.load(name, framework="jax", dtype="f64", settings={**bound_dims(name), **settings})
    m, g = cell.manifest, np.random.default_rng(5)
    dims = dict(zip(m.dims, DIMS))

    def draw(t, scale=0.5):
        shape = t.shape({**dims, "B": 2, "T": 4})
        z = scale * g.normal(size=shape)
        return jnp.asarray(z + 1j * scale * g.normal(size=shape) if t.dtype == "c128" else z)

    p = cell.init(jax.random.key(0), **{k: dims[k] for k in cell.needs_sizes()})
    p = {t.name: p[t.name] + draw(t, 0.1) for t in m.params}
    return cell, p, tuple(map(draw, m.inputs)), tuple(map(draw, m.states))


def lstm():
    return case("lstm")


@pytest.mark.parametrize("name", CELLS)
def test_gradients(name):
    """Of params, inputs and initial states, through outputs and final states, as they are and compiled."""
    cell, p, x, state = case(name)

    def call(p, x, state):
        return cell(p, *x, state=state or None, t0=4 if cell.manifest.counts_steps else None)

    # check_grads takes differences with steps of some 1e-5: they are off by 1e-10 times a third derivative
    check_grads(call, (p, x, state), order=1, modes=["rev"], atol=1e-5, rtol=1e-5)
    check_grads(jax.jit(call), (p, x, state), order=1, modes=["rev"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["lstm", "s5", "gated_delta"])
def test_is_numpys(name):
    """The same library, so the same bits; gradients of complex numbers are conjugates of each other."""
    cell, p, x, state = case(name)
    other = cellc.load(name, framework="numpy", dtype="f64", settings=bound_dims(name))

    def plain(tree):
        return jax.tree.map(np.asarray, tree)

    (y, final), pull = jax.vjp(lambda *a: cell(a[0], *a[1], state=a[2]), p, x, state)
    z, last, back = other.vjp(plain(p), *plain(x), state=plain(state))
    np.testing.assert_array_equal(y, z)
    weights = jax.tree.map(lambda a: 0.3 * a + 1, (y, final))
    found = pull(weights)
    wanted = back(np.asarray(weights[0]), [np.asarray(w).conj() for w in weights[1]])
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves((wanted.params, wanted.inputs, wanted.state))):
        np.testing.assert_array_equal(a, b.conj())


def test_convention_of_complex_gradients():
    """Against jax.numpy's own product."""
    cell = cellc.load("complex_linear", framework="jax", dtype="f64")
    p = cell.init(jax.random.key(1), **{k: 3 for k in cell.needs_sizes()})
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 2, 3)) * (1 + 2j))
    names = list(p)

    def ours(p, x):
        return (jnp.abs(cell(p, x)[0] - 1j) ** 3).sum()

    def theirs(p, x):
        return (jnp.abs(x @ p[names[0]].T + sum(p[n] for n in names[1:]) - 1j) ** 3).sum()

    for a, b in zip(jax.tree.leaves(jax.grad(ours, (0, 1))(p, x)), jax.tree.leaves(jax.grad(theirs, (0, 1))(p, x))):
        np.testing.assert_allclose(a, b, rtol=1e-11)


def test_only_what_is_wanted(monkeypatch):
    """The backward call has results for what is differentiated, and cotangents of what counts."""
    cell, p, (x,), state = lstm()
    layouts = []
    run = type(cell).run

    def listen(self, way, sizes, arrays, made, *more):
        layouts.append((way, [m is not None for m in made], [a is not None for a in arrays[7:]]))
        return run(self, way, sizes, arrays, made, *more)

    monkeypatch.setattr(type(cell), "run", listen)
    jax.grad(lambda w: cell({**p, "weight_hh": w}, x)[0].sum())(p["weight_hh"])
    assert [way for way, _, _ in layouts] == ["forward", "backward"]
    assert layouts[-1][1:] == ([False, False, True, False, False, False, False], [True, False, False])
    jax.grad(lambda s: cell(p, x, state=s)[1].c.sum())(state)
    assert layouts[-1][1:] == ([False] * 5 + [True, True], [False, False, True])
    layouts.clear()
    cell(p, x)
    assert [way for way, _, _ in layouts] == ["forward"]


def test_final_states_that_are_not_wanted():
    cell, p, (x,), _ = lstm()
    y, none = jax.jit(lambda p: cell(p, x, final_state=False))(p)
    assert none is None
    np.testing.assert_array_equal(y, cell(p, x)[0])
    for a, b in zip(*(jax.tree.leaves(jax.grad(lambda p: cell(p, x, **given)[0].sum())(p)) for given in (
            {}, {"final_state": False}))):
        np.testing.assert_array_equal(a, b)


def test_steps_under_scan():
    cell, p, (x,), _ = lstm()
    y, final = cell(p, x)

    def loss(p, step):
        if not step:
            return (cell(p, x)[0] ** 2).sum()
        start = cell.State(*[jnp.zeros_like(s) for s in final])

        def one(state, x):
            y, state = cell.step(p, x, state=state)
            return state, y
        return (jax.lax.scan(one, start, x.swapaxes(0, 1))[1] ** 2).sum()

    a, b = (jax.jit(jax.value_and_grad(loss), static_argnums=1)(p, step) for step in (False, True))
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, rtol=1e-11, atol=1e-12), a, b)


def test_all_steps_are_carried():
    """Pieces of a cell that reads the whole past, and gradients from one piece into the ones before."""
    cell = cellc.load("cell sums { dim N; input x[N]; output y[N]; y[i] = sum[w:T] (1 + w) * x[i; t - w]; }",
                      framework="jax", dtype="f64")
    x = jnp.asarray(np.random.default_rng(2).normal(size=(2, 5, 3)))

    def pieces(x):
        first, state = cell({}, x[:, :2])
        second, state = cell({}, x[:, 2:4], state=state, t0=2)
        last, _ = cell.step({}, x[:, 4], state=state, t0=4)
        return jnp.concatenate([first, second, last[:, None]], 1)

    np.testing.assert_allclose(pieces(x), cell({}, x)[0], rtol=1e-12)
    a, b = (jax.grad(lambda x: (f(x) ** 2).sum())(x) for f in (pieces, lambda x: cell({}, x)[0]))
    np.testing.assert_allclose(a, b, rtol=1e-12)


def test_vmap():
    cell, p, (x,), _ = lstm()
    xs, ps = jnp.stack([x, 2 * x, -x]), jax.tree.map(lambda w: jnp.stack([w, w / 2, w + 1]), p)
    y = jax.vmap(lambda p, x: cell(p, x)[0])(ps, xs)
    one = jax.vmap(jax.grad(lambda p, x: cell(p, x)[0].sum()), (None, 0))(p, xs)
    for i in range(3):
        np.testing.assert_array_equal(y[i], cell(jax.tree.map(lambda w: w[i], ps), xs[i])[0])
        for name, grad in jax.grad(lambda p: cell(p, xs[i])[0].sum())(p).items():
            np.testing.assert_array_equal(one[name][i], grad)


def test_transformations_of_transformations():
    """vmap of jit of grad, over params, inputs or both, and gradients of a scan over cells, with and without checkpoint, are
    those of calls one by one."""
    cell, p, (x,), _ = lstm()
    factors = jnp.array([1.0, 2.0, -1.0])
    ps, xs = jax.tree.map(lambda w: w * factors.reshape(-1, *[1] * w.ndim), p), x * factors.reshape(-1, *[1] * x.ndim)
    one = jax.grad(lambda p, x: (cell(p, x)[0] ** 2).sum(), (0, 1))

    def of(k, tree):
        return jax.tree.map(lambda w: w[k], tree)

    jitted = jax.jit(one)
    for axes, call in (((0, 0), jitted), ((None, 0), jitted), ((0, None), one)):
        given = [whole if axis == 0 else single for axis, whole, single in zip(axes, (ps, xs), (p, x))]
        found = jax.jit(jax.vmap(call, axes))(*given)
        for k in range(3):
            wanted = jitted(*(of(k, t) if axis == 0 else t for axis, t in zip(axes, given)))
            jax.tree.map(np.testing.assert_array_equal, of(k, found), wanted)

    def layers(call, ps, step=jax.lax.scan):
        return (step(lambda h, p: (call(p, h)[..., :x.shape[-1]], None), x, ps)[0] ** 2).sum()

    def by_hand(function, start, ps):
        for k in range(3):
            start, _ = function(start, of(k, ps))
        return start, None

    wanted = jax.jit(jax.grad(lambda ps: layers(lambda p, h: cell(p, h)[0], ps, by_hand)))(ps)
    for call in (lambda p, h: cell(p, h)[0], jax.checkpoint(lambda p, h: cell(p, h)[0])):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), jax.jit(jax.grad(
            lambda ps: layers(call, ps)))(ps), wanted)
    for call in (lambda: jax.jvp(lambda x: cell(p, x)[0], (x,), (x,)), lambda: jax.jacfwd(lambda x: cell(p, x)[0])(x)):
        with pytest.raises(NotImplementedError, match="lstm: forward mode .* is not there for cells"):
            call()
    for call in (lambda: jax.jvp(jax.jit(lambda x: cell(p, x)[0]), (x,), (x,)), lambda: jax.hessian(lambda x: cell(p, x)[0].sum())(x)):
        with pytest.raises(TypeError, match="can't apply forward-mode autodiff"):
            call()


def test_checkpoint():
    cell, p, (x,), _ = lstm()
    plain, again = (jax.jit(jax.grad(lambda p: (f(lambda p: cell(p, x)[0])(p) ** 2).sum()))(p)
                    for f in (lambda g: g, jax.checkpoint))
    jax.tree.map(np.testing.assert_array_equal, plain, again)


def test_first_order_inside_a_gradient():
    """The value of jax.vjp may be differentiated, the gradient may not."""
    cell, p, (x,), _ = lstm()
    a = jax.grad(lambda x: jax.vjp(lambda x: cell(p, x)[0], x)[0].sum())(x)
    np.testing.assert_array_equal(a, jax.grad(lambda x: cell(p, x)[0].sum())(x))
    with pytest.raises(NotImplementedError, match="lstm: the gradient of a gradient was asked for"):
        jax.grad(lambda x: jax.grad(lambda x: cell(p, x)[0].sum())(x).sum())(x)


def test_integers_and_types():
    cell = cellc.load("embedding", framework="jax", dtype="f64")
    p, tokens = cell.init(jax.random.key(0), V=5, D=3), np.array([[4, 0, 4]])
    np.testing.assert_array_equal(cell(p, tokens)[0], p["weight"][tokens])
    grad = jax.grad(lambda p: cell(p, tokens)[0].sum())(p)["weight"]
    assert grad.sum(1).tolist() == [3, 0, 0, 0, 6]
    far = np.array([[2**32 + 1, 4, 1 - 2**32]])
    for given in (far, jnp.array(far)):
        with pytest.raises(TypeError, match="embedding: id has the number -4294967295, which int32 does not hold"):
            cell(p, given)
    traced = jax.jit(lambda p, id: cell(p, id)[0])(p, far)        # cannot look: places that are outside
    np.testing.assert_array_equal(traced[0], [np.zeros(3), p["weight"][4], np.zeros(3)])
    half = cellc.load("lstm", framework="jax", dtype=jnp.bfloat16)
    p = half.init(jax.random.key(0), D=5, H=7)
    wide = jax.tree.map(lambda w: w.astype("float32"), p)          # as an optimiser keeps them
    x = jnp.ones((1, 3, 5), jnp.bfloat16)
    (y, state), pull = jax.vjp(lambda p: half(p, x), wide)
    assert y.dtype == jnp.bfloat16 and state.h.dtype == jnp.float32
    assert pull((jnp.ones_like(y), jax.tree.map(jnp.zeros_like, state)))[0]["bias_ih"].dtype == jnp.float32
    np.testing.assert_array_equal(y, half(p, x)[0])


def test_errors():
    cell, p, (x,), _ = lstm()
    for call, kind, message in [
            (lambda: cell(p, x[..., :2]), ValueError, "lstm: weight_ih has shape"),
            (lambda: cell(p, x.astype("float32")), TypeError, "x is float32; this instance stores it as float64"),
            (lambda: cell(p, [1.0]), TypeError, "x is a list; wanted an array"),
            (lambda: cell.init(jax.random.key(0)), ValueError, r"as in params = lstm.init\(key, D=64, H=64\)")]:
        with pytest.raises(kind, match=message):
            call()
    counted = cellc.load("cell n { state h; output y; h' = h + t; y = h'; }", framework="jax", dtype="f64")
    assert counted({}, batch=1, steps=4)[0].tolist() == [[0, 1, 3, 6]]
    with pytest.raises(ValueError, match="n: t0 is traced; it must be a number that is known"):
        jax.jit(lambda t0: counted({}, batch=1, steps=4, t0=t0))(3)


def test_symbolic_sizes_are_refused():
    cell, p, (x,), _ = lstm()
    shape = jax.export.symbolic_shape("b, 4, 3")
    with pytest.raises(ValueError, match="lstm: B is b, a symbol; a cell's sizes are numbers in the program"):
        jax.export.export(jax.jit(lambda x: cell(p, x)[0]))(jax.ShapeDtypeStruct(shape, x.dtype))


def test_what_the_library_refuses():
    """The message of the cell's own condition on its sizes comes through XLA."""
    cell = cellc.load("cell h { dim D; dim H = 4; input x[D]; output y[H, D / H]; y[h,i] = x[h * (D / H) + i]; }",
                      framework="jax", dtype="f64")
    assert cell({}, jnp.arange(8.0).reshape(1, 1, 8))[0].shape == (1, 1, 4, 2)
    with pytest.raises(Exception, match="D"):
        cell({}, jnp.zeros((1, 1, 6)))


def test_empty_calls():
    cell, p, _, _ = lstm()
    for shape in ((0, 3, 3), (2, 0, 3)):
        y, state = cell(p, jnp.zeros(shape))
        assert y.shape == (*shape[:2], 4) and state.h.shape == (shape[0], 4)
        grad = jax.grad(lambda p: cell(p, jnp.zeros(shape))[0].sum())(p)
        assert not any(w.any() for w in jax.tree.leaves(grad))


SHARDED = """
import jax, jax.numpy as jnp, numpy as np, cellc
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
cell = cellc.load("lstm", framework="jax", dtype="f64")
g, p = np.random.default_rng(0), cell.init(jax.random.key(0), D=3, H=4)
x, s = jnp.asarray(g.normal(size=(4, 5, 3))), cell.State(*jnp.asarray(g.normal(size=(2, 4, 4))))
tests = 0

def call(p, x, s):
    return cell(p, x, state=s)[0]

def steps(p, x, s):
    def one(s, x):
        y, s = cell.step(p, x, state=s)
        return s, y
    return jax.lax.scan(one, s, x.swapaxes(0, 1))[1].swapaxes(0, 1)

def one_by_one(p, x, s):
    return jax.vmap(lambda x, s: call(p, x[None], jax.tree.map(lambda a: a[None], s))[0])(x, s)

def gradients(f):
    return jax.grad(lambda *a: (f(*a) ** 2).sum(), tuple(range(f.__code__.co_argcount)))

def same(name, found, wanted):
    global tests
    tests += 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=name), found, wanted)

wanted = gradients(call)(p, x, s)
for n in (2, 4):
    mesh, rows = Mesh(np.array(jax.devices()[:n]), ("b",)), (P(), P("b"), P("b"))
    for vma in (True, False):
        def shard(f, given=rows, gives=P("b")):
            return jax.shard_map(f, mesh=mesh, in_specs=given, out_specs=gives, check_vma=vma)
        for form in (call, steps, jax.checkpoint(call), one_by_one) if n == 2 and vma else (call,):
            def inside(p, x, s):
                of_p, *others = jax.grad(lambda *a: (form(*a) ** 2).sum(), (0, 1, 2))(p, x, s)
                return (of_p if vma else jax.lax.psum(of_p, "b")), *others
            def outside(p, x, s):
                return shard(form)(p, x, s)
            if form is call:
                same("values", shard(form)(p, x, s), call(p, x, s))
            for compiled in (True, False) if n == 2 else (True,):
                wrap = jax.jit if compiled else lambda f: f
                same(f"outside {n} {vma} {compiled}", wrap(gradients(outside))(p, x, s), wanted)
                same(f"inside {n} {vma} {compiled}", wrap(shard(inside, rows, rows))(p, x, s), wanted)
    def total(p, x, s):                                          # a loss that is the same on all devices
        return jax.lax.psum((call(p, x, s) ** 2).sum(), "b")
    whole = jax.shard_map(total, mesh=mesh, in_specs=rows, out_specs=P())
    same("psum outside", jax.jit(jax.grad(whole, (0, 1, 2)))(p, x, s), wanted)
    inside = jax.shard_map(jax.grad(total, (0, 1, 2)), mesh=mesh, in_specs=rows, out_specs=rows)
    same("psum inside", jax.jit(inside)(p, x, s), wanted)
    def ensemble(ps, x):                                         # params differ, the input does not
        return jax.vmap(lambda w: cell(w, x)[0])(ps)
    ps = jax.tree.map(lambda w: jnp.stack([w * (i + 1) for i in range(n)]), p)
    own = jax.shard_map(ensemble, mesh=mesh, in_specs=(P("b"), P()), out_specs=P("b"))
    def sharded(ps, x):
        return own(ps, x)
    same("ensemble", jax.jit(gradients(sharded))(ps, x), gradients(ensemble)(ps, x))
    def split(a):
        return a.reshape(n, 4 // n, *a.shape[1:])
    def mapped(p, x, s):
        return jax.pmap(call, in_axes=(None, 0, 0), devices=jax.devices()[:n])(p, split(x), jax.tree.map(split, s)).reshape(4, 5, 4)
    same("pmap", gradients(mapped)(p, x, s), wanted)
    def in_pmap(p, x, s):
        return jax.lax.psum(jax.grad(lambda p: (call(p, x, s) ** 2).sum())(p), "b")
    found = jax.pmap(in_pmap, "b", in_axes=(None, 0, 0), devices=jax.devices()[:n])(p, split(x), jax.tree.map(split, s))
    same("in pmap", jax.tree.map(lambda a: a[0], found), wanted[0])
    for kind in (AxisType.Auto, AxisType.Explicit):
        with jax.set_mesh(Mesh(np.array(jax.devices()[:n]), ("b",), axis_types=(kind,))) as _:
            everywhere, row = (NamedSharding(jax.sharding.get_mesh(), spec) for spec in (P(), P("b")))
            placed = jax.device_put((p, x, s), (everywhere, row, row))
            same("values of jit", jax.jit(call)(*placed), call(p, x, s))
            same("jit", jax.jit(gradients(call))(*placed), wanted)
            same("not compiled", gradients(call)(*placed), wanted)
            found = jax.jit(gradients(call), in_shardings=(everywhere, row, row), out_shardings=(everywhere, row, row))(p, x, s)
            same("pjit", found, wanted)
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
for rows in ("a", ("a", "b")):                                  # the same over the other axis, or not
    def outside(p, x, s):
        return jax.shard_map(call, mesh=mesh, in_specs=(P(), P(rows), P(rows)), out_specs=P(rows))(p, x, s)
    same("two axes", jax.jit(gradients(outside))(p, x, s), wanted)
def of_one(p, x, s):
    return jax.shard_map(call, mesh=mesh, in_specs=(P(), P("a"), P("a")), out_specs=P("a"), axis_names={"a"})(p, x, s)
same("one manual axis", jax.jit(gradients(of_one))(p, x, s), wanted)
print(len(jax.devices()), "devices,", tests, "comparisons")
"""


def test_several_devices():
    """On two and four devices: shard_map with and without types of axes, compiled and not, gradients taken inside and
    outside of it; pmap; arrays that are sharded without either, on axes of both kinds. All gradients are those of one
    device."""
    if not hasattr(jax, "set_mesh"):
        pytest.skip("JAX before 0.8 calls all of this otherwise")
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", SHARDED], capture_output=True, text=True, env=env)
    assert out.stdout == "4 devices, 57 comparisons\n", out.stdout + out.stderr


def test_64_bits_must_be_on():
    program = "import cellc; cellc.load('lstm', framework='jax', dtype='f64')"
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, env=env)
    assert "JAX has no 64-bit numbers before jax.config.update(\"jax_enable_x64\", True)" in out.stderr


def test_a_program_of_another_process(tmp_path):
    """An exported program finds the cell where it is loaded, of a build by another compiler too, and says so where it is
    not. Two builds of one cell in one process are two cells for programs."""
    pytest.importorskip("flatbuffers")
    program = ("import sys, jax, jax.export, jax.numpy as jnp, cellc\n"
               "cell = cellc.load('lstm', framework='jax')\n"
               "p = cell.init(jax.random.key(0), D=3, H=4)\n"
               "f = jax.export.export(jax.jit(lambda x: cell(p, x)[0]), disabled_checks=[\n"
               "    jax.export.DisabledSafetyCheck.custom_call('cellc')])(jnp.ones((1, 2, 3)))\n"
               "open(sys.argv[1], 'wb').write(f.serialize())\n")
    use = ("import os, sys, jax, jax.export, jax.numpy as jnp, cellc\n"
           "os.environ['CC'] = 'gcc -O1'\n"
           "first = cellc.load(sys.argv[2], framework='jax')\n"
           "os.environ['CC'] = 'gcc -O0'\n"
           "assert cellc.load(sys.argv[2], framework='jax').call_name == first.call_name + '_2'\n"
           "print(jax.export.deserialize(bytearray(open(sys.argv[1], 'rb').read())).call(jnp.ones((1, 2, 3))).shape)\n")
    place = str(tmp_path / "lstm")
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}

    def run(text, *words):
        return subprocess.run([sys.executable, "-W", "ignore", "-c", text, *words], capture_output=True, text=True,
                              env=env)

    made = run(program, place)
    assert made.returncode == 0, made.stderr
    assert run(use, place, "lstm").stdout == "(1, 2, 4)\n"
    assert "is not loaded in this process; load it with cellc.load first" in run(use, place, "gru").stderr
