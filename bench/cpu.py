"""The backend for the CPU beside what one would run instead: PyTorch's modules, the same formulas as a plain loop in
PyTorch, as a loop over a compiled step, and in JAX. In: cells of specs/, bench/cpu_peers.py. Out: a table of forward,
and of forward and backward with all gradients: ours, the peer's, ours over the peer's, the goal, and the floor (the
larger of the time of the multiply-adds and that of the bytes of each cache, at what one core was measured to do); then
one step at B 1, called from C, PyTorch and NumPy; with --json FILE all numbers. Each peer's outputs and gradients are
compared with ours before it is timed. Sides take turns in one process; of each the least of several rounds counts.
Processor time (--threads 1) is what a machine that others use as well can measure; with more threads it is time on
the clock. Rows whose peer is missing say so; `pip install torch jax` brings all."""

import argparse
import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings

bench = os.path.dirname(os.path.abspath(__file__))
root = os.path.join(bench, "..")
sys.path.insert(0, os.path.join(root, "python"))
arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--threads", type=int, default=1)
arguments.add_argument("--rounds", type=int, default=5)
arguments.add_argument("--json", metavar="FILE")
arguments.add_argument("--only", default="", help="cases whose name has this word")
arguments.add_argument("--peers", default="", help="peers whose name has this word")
given = arguments.parse_args()
os.environ["OMP_NUM_THREADS"] = str(given.threads)
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:given.threads])  # XLA has as many threads as processors

import numpy  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import cellc  # noqa: E402
import cpu_peers  # noqa: E402

warnings.simplefilter("ignore")
torch.set_num_threads(given.threads)
torch._dynamo.config.recompile_limit = 64
clock = time.process_time if given.threads == 1 else time.perf_counter
try:
    import jax

    jax_functions = cpu_peers.Jax()
except ImportError:
    jax = None
SHORTEST = 2e-3  # seconds that are timed at once
CLOSE = 1e-3  # of a difference's RMS over that of the values: both sides are in f32, through up to 512 steps


# ---- what one core can do


def compiled():
    """bench/cpu_call.c as a library."""
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "libcall.so")
        words = [*os.environ.get("CC", "cc").split(), "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC",
                 os.path.join(bench, "cpu_call.c"), "-o", path]
        subprocess.run(words, check=True)
        return ctypes.CDLL(path)


def least_of(run, rounds=5):
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def machine():
    """Of one core: GFLOP/s of multiply-adds in registers, and GB/s of reads, by the bytes that are read again and again."""
    call.multiply_adds.argtypes = [ctypes.c_int, ctypes.c_float]
    call.read_numbers.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    turns = 1 << 17
    peak = 2 * 256 * turns / least_of(lambda: call.multiply_adds(turns, 0.5)) / 1e9
    reads = {}
    for name, count in (("L1", 1 << 12), ("L2", 1 << 17), ("L3", 1 << 21), ("memory", 1 << 25)):
        numbers = numpy.ones(count + 16, numpy.float32)
        start, times = numbers.ctypes.data + -numbers.ctypes.data % 64, max(1, (1 << 26) // count)
        taken = least_of(lambda: call.read_numbers(start, count, times))
        reads[name] = (4 * count, 4 * count * times / taken / 1e9)
    return peak, reads


def level_of(size):
    """Where a number of bytes lies that is used again and again, of the sizes common today: 32 KB, 1 MB, 32 MB."""
    return "L1" if size <= 1 << 15 else "L2" if size <= 1 << 20 else "L3" if size <= 1 << 25 else "memory"


def floor(work, core):
    """ms, and what takes them. work: flops, and (bytes of a set, bytes that go through it) for each."""
    flops, *sets = work
    times = {"flops": flops / core[0] / 1e6}
    for size, count in sets:
        level = level_of(size)
        times[level] = times.get(level, 0) + count / core[1][level][1] / 1e6
    what = max(times, key=times.get)
    return times[what] / given.threads, what


# ---- both sides of a case


class Side:
    """forward() keeps nothing; both() gives the output and the gradients of all leaves."""

    def __init__(self, name, forward, both, goal=None):
        self.name, self.forward, self.both, self.goal = name, forward, both, goal


def first(result):
    return result[0] if isinstance(result, tuple) else result


def torch_side(name, run, leaves, weight, goal=None):
    def forward():
        with torch.no_grad():
            return run()

    def both():
        y = run()
        return y, torch.autograd.grad(y, leaves, weight)

    return Side(name, forward, both, goal)


def jax_side(name, run, params, inputs, weight, goal):
    as_jax = lambda t: jax.numpy.asarray(t.detach().numpy())  # noqa: E731
    params, inputs, weight = {k: as_jax(v) for k, v in params.items()}, [as_jax(x) for x in inputs], as_jax(weight)

    def pulled(p, x, w):
        y, pull = jax.vjp(run, p, x)
        d_p, d_x = pull(w)
        return y, (*d_x, *(d_p[k].conj() for k in params))

    forward, both = jax.jit(run), jax.jit(pulled)
    return Side(name, lambda: jax.block_until_ready(forward(params, inputs)),
                lambda: jax.block_until_ready(both(params, inputs, weight)), goal)


def made(name, sizes, shapes, **bound):
    """(module, leaves that are inputs): every value drawn, biases too, so that no term is missing from a comparison.
    Moneta forgets little: where it forgets half in each step it is chaotic, and sums in another order end elsewhere."""
    torch.manual_seed(1)
    module = cellc.load(os.path.join(root, "specs", f"{name}.cell"), **bound)(**sizes)
    for param in module.parameters():
        if float(param.detach().abs().sum()) == 0:
            param.data.uniform_(-0.1, 0.1)
    if name == "moneta":
        module.b_g.data[0] = 6
    return module, [torch.randn(*shape, requires_grad=True) for shape in shapes]


def ours_of(module, inputs):
    leaves = [*inputs, *module.parameters()]
    with torch.no_grad():
        weight = torch.randn_like(first(module(*inputs)))
    return torch_side("cellc", lambda: first(module(*inputs)), leaves, weight), weight


def params_of(module):
    return {t.name: module.param(t.name) for t in module.manifest.params}


def layer(name, sizes, shapes, peer, goal=1.0):
    """A cell beside PyTorch's code for it: peer(module) gives a module and its params in our order, or a function."""
    module, inputs = made(name, sizes, shapes)
    ours, weight = ours_of(module, inputs)
    theirs, leaves = peer(module)
    return ours, [lambda: torch_side("PyTorch", lambda: first(theirs(*inputs)), [*inputs, *leaves], weight, goal)]


def rnn(kind):
    def make(module):
        theirs = kind(module.sizes["D"], module.sizes["H"], batch_first=True)
        for other, own in zip(theirs.parameters(), module.parameters()):
            other.data.copy_(own.data)
        return theirs, list(theirs.parameters())

    return make


def same_params(function):
    """PyTorch's function of inputs and params, on our own."""
    def make(module):
        params = list(module.parameters())
        return lambda *inputs: function(*inputs, *params), params

    return make


def loops(name, sizes, shapes, goals, **bound):
    """A cell beside the same formulas. goals: of a plain loop, of one over a compiled step, of lax.scan, and of
    lax.associative_scan."""
    module, inputs = made(name, sizes, shapes, **bound)
    ours, weight = ours_of(module, inputs)
    leaves, params, peer = [*inputs, *module.parameters()], params_of(module), cpu_peers.peers[name]
    m = cpu_peers.Torch()

    def plain(title, goal, step):
        run = cpu_peers.loop(m, peer, step)
        return torch_side(title, lambda: run(params, inputs), leaves, weight, goal)

    def in_jax(title, way, goal):
        return jax_side(title, way(jax_functions, peer), params, inputs, weight, goal)

    step = lambda p, state, at: peer.step(m, p, state, at)  # noqa: E731
    sides = [lambda: plain("loop", goals[0], None), lambda: plain("compiled", goals[1], torch.compile(step, dynamic=False))]
    if jax:
        sides += [lambda: in_jax("lax.scan", cpu_peers.jax_scan, goals[2])]
        sides += [lambda: in_jax("associative", cpu_peers.jax_associative, goals[3])] if peer.linear else []
    names = ["loop", "compiled", *(["lax.scan"] + (["associative"] if peer.linear else []) if jax else [])]
    return ours, [side for title, side in zip(names, sides) if given.peers in title]


def today(sizes, shapes, **bound):
    """E79 beside the reference, which another build of the same spec runs."""
    module, inputs = made("e79", sizes, shapes, **bound)
    ours, weight = ours_of(module, inputs)
    with open(os.path.join(root, "specs", "e79.cell")) as f:
        other = cellc.load(f.read() + "\n// the same, for the reference\n", **bound)(**sizes)
    other.load_state_dict(module.state_dict())
    os.environ["CELL_BACKEND"] = "reference"  # read where a library's first call makes its context
    with torch.no_grad():
        other(*inputs)
    del os.environ["CELL_BACKEND"]
    return ours, [lambda: torch_side("reference", lambda: first(other(*inputs)), [*inputs, *other.parameters()], weight, 0.05)]


SCANS = (None, 0.5, 0.5, 0.5)
WALKS = (0.1, 0.3, 0.4)
ELEMENTARY = 24  # flops of an exponential function or what is made of one


def dense(gates, H, B, T):
    """Work of a dense recurrence of D = H: weights go from their cache through each step."""
    weights, vectors = 4 * gates * H * H, 4 * B * T * H
    flops = 2 * B * T * gates * H * 2 * H
    return ((flops, (weights, weights * T), (9 * vectors, 2 * vectors)),
            (3 * flops, (weights, 2 * weights * T), (9 * vectors, (8 + gates) * vectors)))


def row(flops, count, forward, both):
    """Of a map: `forward` and `both` arrays of `count` numbers come and go, from memory."""
    return (flops * count, (16 * count, 4 * forward * count)), (3 * flops * count, (16 * count, 4 * both * count))


def walk(flops, elements, states, projected=0):
    """Of a walk with its states in the first cache: elements of a state, flops for each, states times steps."""
    passes, projection = 4 * elements * states, 2 * projected
    return ((flops * elements * states + projection, (4 * elements, 2 * passes)),
            (3 * (flops * elements * states + projection), (4 * elements, 6 * passes)))


def pairs(heads, size, T):
    """Work of causal attention: two products of each pair of steps forward and five more backward, and its weight."""
    count = heads * T * (T + 1) // 2
    return (count * (4 * size + ELEMENTARY),), (count * (14 * size + 2 * ELEMENTARY),)


def attention(q, k, v):
    heads = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)


def cases():
    """(title, what makes both sides, work forward and with backward)"""
    for name, kind, gates in (("lstm", torch.nn.LSTM, 4), ("gru", torch.nn.GRU, 3)):
        for H in (256, 512, 1024):
            yield (f"{name} {H}, B 16, T 128", lambda n=name, k=kind, H=H: layer(n, {"D": H, "H": H}, [(16, 128, H)], rnn(k)),
                   dense(gates, H, 16, 128))
    rows, wide = 2048, 1024
    yield ("layernorm 2048 x 1024", lambda: layer("layernorm", {"D": wide}, [(1, rows, wide)], same_params(
        lambda x, w, b: F.layer_norm(x, (wide,), w, b))), row(8, rows * wide, 2, 5))
    yield ("swiglu 2048 x 1024", lambda: layer("swiglu", {"D": wide}, [(1, rows, wide)] * 2, same_params(
        lambda g, u: F.silu(g) * u)), row(ELEMENTARY + 3, rows * wide, 3, 8))
    yield ("softmax 2048 x 1024", lambda: layer("softmax_row", {"D": wide}, [(1, rows, wide)], same_params(
        lambda x: torch.softmax(x, -1))), row(ELEMENTARY + 3, rows * wide, 2, 5))
    product = 2 * 512 * 1024 * 1024
    yield ("linear + gelu 512 x 1024", lambda: layer("linear_act", {"D": 1024, "F": 1024}, [(1, 512, 1024)], same_params(
        lambda x, w, b: F.gelu(F.linear(x, w, b)))), ((product, (1 << 23, 1 << 23)), (3 * product, (1 << 23, 3 << 23))))
    for T in (512, 2048):
        yield (f"causal attention 8 x 64, T {T}", lambda T=T: layer("causal_attention", {"H": 8}, [(1, T, 8, 64)] * 3, same_params(
            attention), goal=1.2), pairs(8, 64, T))
    B, T = 4, 512
    yield ("hgrn 512, B 4, T 512", lambda: loops("hgrn", {"D": 512}, [(B, T, 512)] * 3, SCANS),
           row(3 * ELEMENTARY + 8, B * T * 512, 4, 12))
    yield ("mingru 256, B 4, T 512", lambda: loops("mingru", {"D": 256, "H": 256}, [(B, T, 256)], SCANS),
           walk(2 * ELEMENTARY, 256, B * T, B * T * 3 * 256 * 256))
    yield ("s5 256, B 4, T 512", lambda: loops("s5", {"D": 256, "P": 256}, [(B, T, 256)], SCANS),
           walk(8, 256, B * T, B * T * 4 * 256 * 256))
    B, T = 4, 64
    for N in (32, 64):
        yield (f"e79 {N}, B 4, T 64", lambda N=N: loops("e79", {"D": 4 * N}, [(B, T, 4 * N)], WALKS, N=N),
               walk(22, N * N, B * T, B * T * 16 * N * N))
    yield ("e88 8 x 32 x 32, B 2, T 64", lambda: loops("e88", {"D": 256, "H": 8}, [(2, T, 256)], WALKS),
           walk(7 + ELEMENTARY, 32 * 32, 2 * 8 * T, 2 * T * 4 * 256 * 256))
    heads = [(2, T, 8, 64)] * 3
    yield ("delta 8 x 64 x 64, B 2, T 64", lambda: loops("delta", {"H": 8}, [*heads, (2, T, 8)], WALKS),
           walk(6, 64 * 64, 2 * 8 * T))
    yield ("gated delta 8 x 64 x 64, B 2, T 64", lambda: loops("gated_delta", {"H": 8}, [*heads, (2, T, 8), (2, T, 8)], WALKS),
           walk(7, 64 * 64, 2 * 8 * T))
    yield ("titans 64, B 4, T 64", lambda: loops("titans", {"D": 256}, [(B, T, 256)], WALKS),
           walk(9, 64 * 64, B * T, B * T * 3 * 64 * 256))
    yield ("moneta 32 x 64, B 4, T 64", lambda: loops("moneta", {"D": 64}, [(B, T, 64)] * 3, WALKS),
           walk(20, 2 * 32 * 64, B * T))
    yield ("e79 64, B 4, T 64", lambda: today({"D": 256}, [(B, T, 256)], N=64), walk(22, 64 * 64, B * T, B * T * 16 * 64 * 64))


def as_numpy(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else numpy.asarray(value)


def compare(title, ours, peer):
    """Outputs and gradients of all leaves are the same on both sides, or the peer is none."""
    y, grads = ours.both()
    other_y, other_grads = peer.both()
    both = [(y, other_y), (ours.forward(), peer.forward()), *zip(grads, other_grads)]
    for k, (own, other) in enumerate((as_numpy(a), as_numpy(b)) for a, b in both):
        wrong = numpy.sqrt(numpy.mean(numpy.abs(own - other) ** 2)) / (numpy.sqrt(numpy.mean(numpy.abs(own) ** 2)) + 1e-30)
        if own.shape != other.shape or not wrong <= CLOSE:
            raise SystemExit(f"{title}, {peer.name}: {('output', 'output')[k] if k < 2 else f'gradient {k - 2}'} differs by {wrong:.1e}")


def timed(run, times):
    start = clock()
    for _ in range(times):
        run()
    return (clock() - start) / times


def by_turns(runs):
    """ms of each, the least of all rounds."""
    times = []
    for run in runs:
        run()
        times.append(max(1, int(SHORTEST / max(timed(run, 1), 1e-7))))
    best = [float("inf")] * len(runs)
    for _ in range(given.rounds):
        for i, run in enumerate(runs):
            best[i] = min(best[i], *(timed(run, times[i]) for _ in range(3)))
    return [b * 1e3 for b in best]


def measure(title, make, work):
    ours, makers = make()
    peers = [maker() for maker in makers]
    for peer in peers:
        compare(title, ours, peer)
    forward = by_turns([side.forward for side in (ours, *peers)])
    both = by_turns([side.both for side in (ours, *peers)])
    floors = [floor(part, core) for part in work]
    rows = []
    for k, peer in enumerate(peers, 1):
        found = {"case": title, "peer": peer.name, "goal": peer.goal}
        for name, times, (least, what) in (("forward", forward, floors[0]), ("both", both, floors[1])):
            found[name] = {"ours": times[0], "peer": times[k], "ratio": times[0] / times[k], "floor": least, "bound": what}
        rows.append(found)
    return rows


# ---- one step


def call_from_c(module, step):
    """What repeats a step's call in C. The arguments are those of a call of the module, caught on their way."""
    library = module.instance.library.host or module.instance.library
    caught = []
    plain_call = library.call
    library.call = lambda *arguments: caught.append(arguments) or plain_call(*arguments)
    module.instance.plans.clear()  # by which the call would go past it
    kept = step()
    del library.call
    way, device, _, sizes, pointers, workspace, *_ = caught[0]
    size, places = library.array(sizes), (ctypes.c_void_p * len(pointers))(*pointers)
    scratch = torch.empty(max(workspace[1], 1), dtype=torch.uint8)
    memory = (ctypes.c_size_t * 4)(scratch.data_ptr() if workspace[1] else 0, workspace[1], 0, 0)
    results = len(module.manifest.outputs) + len(module.manifest.states)
    made_by_call = [torch.empty(1 << 18) for _ in range(results)]
    for i, t in enumerate(made_by_call):
        places[len(pointers) - results + i] = t.data_ptr()
    context = library.take(device)
    address = ctypes.cast(library.run[way], ctypes.c_void_p)

    def run(times, kept=(kept, scratch, made_by_call)):
        if call.call_times(address, context, ctypes.c_void_p(library.desc), size, places, memory, times):
            raise SystemExit(library.last_error(context).decode())

    return run


def steps():
    """(title, cell, sizes, shapes of a step's inputs, what PyTorch has for it)"""
    for H in (8, 256):
        yield f"lstm {H}", "lstm", {"D": H, "H": H}, [(1, H)], torch.nn.LSTMCell
        yield f"gru {H}", "gru", {"D": H, "H": H}, [(1, H)], torch.nn.GRUCell
    yield "mingru 256", "mingru", {"D": 256, "H": 256}, [(1, 256)], None
    yield "hgrn 512", "hgrn", {"D": 512}, [(1, 512)] * 3, None
    yield "e79 64", "e79", {"D": 256}, [(1, 256)], None
    yield "e88 8 x 32 x 32", "e88", {"D": 256, "H": 8}, [(1, 256)], None
    yield "delta 8 x 64 x 64", "delta", {"H": 8}, [(1, 8, 64)] * 3 + [(1, 8)], None
    yield "titans 64", "titans", {"D": 256}, [(1, 256)], None
    yield "moneta 32 x 64", "moneta", {"D": 64}, [(1, 64)] * 3, None


def one_step(m, peer):
    """The peer's step of inputs [B, ...]."""
    def run(p, inputs, state):
        prepared = peer.prepare(m, p, *(x[:, None] for x in inputs))
        state, y = peer.step(m, p, state, [a[:, 0] if len(a.shape) > 1 else a for a in prepared])
        return peer.finish(m, p, y[:, None], prepared)[:, 0], state

    return run


def measure_step(title, name, sizes, shapes, kind):
    module, inputs = made(name, sizes, shapes)
    inputs = [x.detach() for x in inputs]
    params, peer = {k: v.detach() for k, v in params_of(module).items()}, cpu_peers.peers[name]
    with torch.no_grad():
        state = module.step(*inputs)[1]
        state = module.step(*inputs, state=state)[1]
    in_numpy = cellc.load(os.path.join(root, "specs", f"{name}.cell"), framework="numpy")
    number = lambda t: t.numpy()  # noqa: E731
    p, x, s = {k: number(v) for k, v in params.items()}, [number(x) for x in inputs], [number(t) for t in state]
    if kind:
        cell = kind(sizes["D"], sizes["H"])
        for other, own in zip(cell.parameters(), module.parameters()):
            other.data.copy_(own.data)
        given_state = tuple(state) if len(state) == 2 else state[0]
        theirs, what = lambda: cell(inputs[0], given_state), f"nn.{kind.__name__}"
    else:
        step, what = one_step(cpu_peers.Torch(), peer), "plain PyTorch"
        theirs = lambda: step(params, inputs, tuple(state))  # noqa: E731
    plain = one_step(cpu_peers.Numpy(), peer)
    in_c = call_from_c(module, lambda: no_grad(lambda: module.step(*inputs, state=state)))
    runs = [lambda: in_c(1), lambda: module.step(*inputs, state=state), theirs, lambda: in_numpy.step(p, *x, state=s),
            lambda: plain(p, x, tuple(s))]
    values = [as_numpy(first(no_grad(run))) for run in runs[1:]]
    for other in values[1:]:
        if not numpy.allclose(values[0], other, rtol=1e-3, atol=1e-4):
            raise SystemExit(f"{title}: a step is another: {numpy.abs(values[0] - other).max()}")
    runs[0] = lambda: in_c(100)
    c, from_torch, torch_peer, from_numpy, numpy_peer = no_grad(lambda: by_turns(runs))
    found = {"C": (c / 100, torch_peer, 0.2), "PyTorch": (from_torch, torch_peer, 1.0), "NumPy": (from_numpy, numpy_peer, 1.5)}
    return {"case": title, "peer": what, **{k: {"ours": 1e3 * a, "peer": 1e3 * b, "ratio": a / b, "goal": goal}
                                            for k, (a, b, goal) in found.items()}}


def no_grad(run):
    with torch.no_grad():
        return run()


# ---- the tables


def processor():
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def miss(ratio, goal):
    return "!" if goal and ratio > goal else " "


what = "processor time" if given.threads == 1 else "time on the clock"
call = compiled()
call.call_times.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_int]
core = machine()
print(f"{processor()}, {given.threads} threads, PyTorch {torch.__version__}, JAX {jax.__version__ if jax else 'is missing: pip install jax'}: "
      f"ms of {what}, least of {given.rounds} rounds; ! is above the goal")
print(f"One core: {core[0]:.0f} GFLOP/s of multiply-adds; reads " + ", ".join(
    f"{name} ({size >> 10} KB) {rate:.0f} GB/s" for name, (size, rate) in core[1].items()) + "\n")
print(f"{'':36}{'peer':12}{'goal':>5} {'forward':>9}{'peer':>9}{'ratio':>7} {'floor':>8}  {'with grads':>10}{'peer':>9}{'ratio':>7} {'floor':>8}")
results = []
for title, make, work in cases():
    if given.only not in title:
        continue
    for found in measure(title, make, work):
        results.append(found)
        a, b, goal = found["forward"], found["both"], found["goal"]
        print(
            f"{title:36}{found['peer']:12}{goal or '-':>5} "
            f"{a['ours']:9.3f}{a['peer']:9.3f}{a['ratio']:7.2f}{miss(a['ratio'], goal)}{a['floor']:8.3f}  "
            f"{b['ours']:10.3f}{b['peer']:9.3f}{b['ratio']:7.2f}{miss(b['ratio'], goal)}{b['floor']:8.3f} "
            f"{b['bound']}",
            flush=True,
        )
one = []
print(f"\n{'one step at B 1, us':22}{'peer':16}" + "".join(f"{'from ' + k:>14}{'peer':>8}{'ratio':>7} " for k in ("C", "PyTorch", "NumPy"))
      + "  goals 0.2, 1, 1.5")
for title, *rest in steps():
    if given.only not in "step " + title:
        continue
    one.append(measure_step(title, *rest))
    print(f"{title:22}{one[-1]['peer']:16}" + "".join(
        f"{r['ours']:14.2f}{r['peer']:8.1f}{r['ratio']:7.2f}{miss(r['ratio'], r['goal'])}"
        for r in (one[-1][k] for k in ("C", "PyTorch", "NumPy"))), flush=True)
if given.json:
    with open(given.json, "w") as f:
        json.dump({"processor": processor(), "threads": given.threads, "torch": torch.__version__,
                   "jax": jax.__version__ if jax else None, "gflops": core[0],
                   "reads": {name: {"bytes": size, "GB/s": rate} for name, (size, rate) in core[1].items()},
                   "results": results, "steps": one}, f, indent=1)
        f.write("\n")
